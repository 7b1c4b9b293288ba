// SPDX-License-Identifier: Apache-2.0
//
// A BPF object that uses maps.h: sized, loaded, and its arrays mapped into this process.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/descriptor.h"
#include "engine/engine.h"

extern "C" {
#include "engine/xdp/shared.h"
}

struct bpf_map;
struct bpf_object;

namespace splitplane {

class XdpObject {
  public:
    // `elf`: the object; it has to live as long as this. `pins`: a directory of a bpffs whose counters are taken over
    // where they fit, and where they are pinned from then on; empty: counters begin at 0 and end with this. `frags`:
    // whether its program is to get frames in several buffers, too (BPF_F_XDP_HAS_FRAGS). EngineError, VerifierRefused.
    XdpObject(std::span<const uint8_t> elf, const Capacity& capacity, const std::string& pins = {},
              bool frags = false);
    ~XdpObject();
    XdpObject(const XdpObject&) = delete;
    XdpObject& operator=(const XdpObject&) = delete;

    sp_arrays& arrays() { return arrays_; }
    sp_fixed& fixed() { return *fixed_; }
    // Descriptors that stay the object's own. EngineError where there is no such name.
    int program(const char* name) const;
    int map(const char* name) const;
    int fixed_map() const;  // whose one element is fixed()
    bool counters_taken_over() const { return counters_taken_over_; }
    // Take away counters that an earlier program of another layout has pinned beside these.
    void drop_other_counters() const;

    // The ELF of the program that is attached to ports.
    static std::span<const uint8_t> forwarding_program();

  private:
    struct Unmap {
        size_t octets = 0;
        void operator()(void* memory) const;
    };

    bpf_map* find(const char* name) const;
    void size_maps(const Capacity& capacity);
    void take_frags();
    bool take_over();
    void pin_counters() const;
    void* map_memory(const char* name);

    struct Close {
        void operator()(bpf_object* object) const;
    };
    std::string pins_;
    std::unique_ptr<bpf_object, Close> object_;
    std::vector<std::unique_ptr<void, Unmap>> memory_;
    sp_arrays arrays_{};
    sp_fixed* fixed_ = nullptr;
    bool counters_taken_over_ = false;
};

}  // namespace splitplane
