// SPDX-License-Identifier: Apache-2.0

#include "engine/xdp/notes.h"

#include <unistd.h>

#include <charconv>
#include <filesystem>

namespace splitplane {

std::string InterfaceNotes::path(const char* kind, uint32_t ifindex) const {
    return directory_ + "/" + kind + "-" + std::to_string(ifindex);
}

std::optional<std::string> InterfaceNotes::find(const char* kind, uint32_t ifindex) const {
    std::error_code error;
    const std::filesystem::path line = std::filesystem::read_symlink(path(kind, ifindex), error);
    if (error) return std::nullopt;
    return line.string().substr(1);
}

// The target of a symbolic link is not empty, hence a character before the line.
bool InterfaceNotes::put(const char* kind, uint32_t ifindex, const std::string& line) const {
    drop(kind, ifindex);
    return ::symlink(("-" + line).c_str(), path(kind, ifindex).c_str()) == 0;
}

void InterfaceNotes::drop(const char* kind, uint32_t ifindex) const { ::unlink(path(kind, ifindex).c_str()); }

std::vector<uint32_t> InterfaceNotes::all(const char* kind) const {
    const std::string prefix = std::string(kind) + "-";
    std::vector<uint32_t> found;
    for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
        const std::string name = entry.path().filename();
        uint32_t ifindex = 0;
        if (!name.starts_with(prefix)) continue;
        const auto read = std::from_chars(name.data() + prefix.size(), name.data() + name.size(), ifindex);
        if (read.ec == std::errc() && read.ptr == name.data() + name.size()) found.push_back(ifindex);
    }
    return found;
}

}  // namespace splitplane
