// SPDX-License-Identifier: Apache-2.0

#include "engine/engines.h"

#include "engine/memory_engine.h"
#include "engine/xdp/xdp_engine.h"

namespace splitplane {

std::unique_ptr<Engine> make_engine(const EngineOptions& options) {
    if (options.kind == EngineKind::kMemory) return std::make_unique<MemoryEngine>(options.capacity);
    XdpOptions xdp;
    xdp.instance = options.instance;
    xdp.capacity = options.capacity;
    xdp.generic_only = !options.native;
    xdp.core_shares = options.core_shares;
    return std::make_unique<XdpEngine>(std::move(xdp));
}

size_t detach_engine(const EngineOptions& options) {
    return options.kind == EngineKind::kXdp ? XdpEngine::detach(options.instance) : 0;
}

}  // namespace splitplane
