// SPDX-License-Identifier: Apache-2.0
//
// The attachments of the XDP program to interfaces, pinned so that they outlive the process.
//
//     <bpffs>/<instance>/link-<ifindex>     one for each interface that is attached
//     <bpffs>/<instance>/map_…-<layout>     counters (object.h)
//     <bpffs>/<instance>/<note>-<ifindex>   what has to be known of them later (notes.h)
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/xdp/object.h"

namespace splitplane {

// The directory of an instance below a bpffs, which is mounted where there is none. One process at a time has it.
class PinDirectory {
  public:
    // EngineError.
    PinDirectory(const std::string& bpffs, const std::string& instance);
    const std::string& path() const { return path_; }
    bool mounted() const { return mounted_; }  // the bpffs, by this call

  private:
    std::string path_;
    bool mounted_ = false;
    Descriptor lock_;
};

// What became of an attach.
struct Attachment {
    int error = 0;      // why the driver refuses, an errno value; 0: it is attached
    std::string words;  // what the driver says of that, often nothing
};

// Not thread-safe.
class Links {
  public:
    // Finds the links of an earlier process.
    Links(std::string directory, int program);

    // Let packets of an interface go through the program: in place of that of an earlier process, without a gap, where
    // there is one of the same mode. EngineError says why not where that is not for the driver, without the interface's
    // name; nothing is attached then.
    Attachment attach(uint32_t ifindex, bool generic);
    void detach(uint32_t ifindex);
    // Whether the program is attached to that interface still, and not to one that had its number before, nor was it
    // detached by somebody else.
    bool holds(uint32_t ifindex) const;
    // Whether what is attached is generic; none where nothing is.
    std::optional<bool> generic(uint32_t ifindex) const;
    // Interfaces with a link, this process's or an earlier one's.
    std::vector<uint32_t> attached() const;

  private:
    struct Link {
        Descriptor descriptor;
        bool generic;
    };

    bool replace(uint32_t ifindex, bool generic);
    std::string path(uint32_t ifindex) const;

    std::string directory_;
    int program_;
    std::map<uint32_t, Link> links_;
};

// Take every link and counter of an instance that no process has away. Returns how many interfaces were attached.
size_t remove_pins(const std::string& bpffs, const std::string& instance);

}  // namespace splitplane
