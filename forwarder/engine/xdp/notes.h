// SPDX-License-Identifier: Apache-2.0
//
// What has to be known of attached interfaces by the process that comes after this one: a line each, beside the links.
//
// They live and end with what they tell of, the kernel's state: a file in another place would be wrong after a reboot.
// bpffs has no files, but it has symbolic links, whose targets are the lines.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace splitplane {

// Set by an engine: promiscuous mode. The line is empty.
constexpr const char* kPromiscuousNote = "promiscuous";
// Native XDP was refused: under which conditions (conditions_of()), a line break, and why.
constexpr const char* kRefusedNote = "refused";

class InterfaceNotes {
  public:
    // Of an instance's directory (PinDirectory).
    explicit InterfaceNotes(std::string directory) : directory_(std::move(directory)) {}

    std::optional<std::string> find(const char* kind, uint32_t ifindex) const;
    // In place of what stood there. False where it cannot be kept, with errno.
    bool put(const char* kind, uint32_t ifindex, const std::string& line) const;
    void drop(const char* kind, uint32_t ifindex) const;
    // The interfaces that have one.
    std::vector<uint32_t> all(const char* kind) const;

  private:
    std::string path(const char* kind, uint32_t ifindex) const;

    std::string directory_;
};

}  // namespace splitplane
