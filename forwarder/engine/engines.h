// SPDX-License-Identifier: Apache-2.0
//
// Which engines there are, by name. Above this nobody knows one from the other.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "engine/engine.h"

namespace splitplane {

enum class EngineKind {
    kXdp,     // in the kernel, and goes on when the process ends
    kMemory,  // tables without packets, for who tries a controller and has no privileges
};
inline constexpr std::array<const char*, 2> kEngineNames{"xdp", "memory"};

struct EngineOptions {
    EngineKind kind = EngineKind::kXdp;
    std::string instance = "vr-forwarder";  // of what outlives the process
    Capacity capacity;
    bool native = true;  // native XDP where all ports' drivers have it
    bool core_shares = false;  // divide cores that are too small for all by routers' shares
};

// EngineError.
std::unique_ptr<Engine> make_engine(const EngineOptions& options);

// Take off all ports what an engine whose process has ended has left there. Returns how many there were. EngineError
// where its process runs.
size_t detach_engine(const EngineOptions& options);

}  // namespace splitplane
