// SPDX-License-Identifier: Apache-2.0

#include "engine/memory_engine.h"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <utility>

namespace splitplane {

// calloc: pages that nobody writes cost nothing, and the arrays are large.
template <typename T>
T* MemoryEngine::zeroed(size_t count) {
    void* memory = std::calloc(count, sizeof(T));
    if (memory == nullptr) throw std::bad_alloc();
    memory_.emplace_back(static_cast<std::byte*>(memory), std::free);
    return static_cast<T*>(memory);
}

MemoryEngine::MemoryEngine(const Capacity& capacity, uint32_t cpus) {
    arrays_.classifier = zeroed<sp_u64>(size_t{SP_PORTS} * SP_VLANS);
    arrays_.macs = zeroed<sp_u64>(SP_INTERFACES);
    arrays_.egresses = zeroed<sp_egress>(SP_INTERFACES);
    arrays_.interfaces = zeroed<sp_interface>(SP_INTERFACES);
    for (sp_u64*& roots : arrays_.roots) roots = zeroed<sp_u64>(SP_VRFS);
    arrays_.vrfs = zeroed<sp_vrf>(SP_VRFS);
    arrays_.words = zeroed<sp_u32>(capacity.words);
    arrays_.groups = zeroed<sp_u64>(SP_GROUPS);
    arrays_.members = zeroed<sp_u16>(capacity.members);
    arrays_.nexthops = zeroed<sp_u64>(SP_NEXTHOPS);
    arrays_.policers = zeroed<sp_policer>(size_t{SP_VRFS} * SP_CLASS_SLOTS);
    arrays_.share_dues = zeroed<sp_u64>(size_t{SP_INTERFACES} * SP_CLASS_SLOTS);
    arrays_.punt_drops = zeroed<sp_u64>(size_t{SP_INTERFACES} * SP_PLACES * SP_CLASS_SLOTS);
    arrays_.router_shares = zeroed<sp_share>(SP_VRFS);
    arrays_.slice_shares = zeroed<sp_share>(SP_SLICES);
    arrays_.link_modes = zeroed<sp_u64>(SP_PORTS);
    arrays_.link_slots = zeroed<sp_u32>(SP_INTERFACES);
    arrays_.links = zeroed<sp_link>(SP_PORTS);
    arrays_.link_slices = zeroed<sp_link_slice>(SP_LINK_SLICES);
    arrays_.link_routers = zeroed<sp_link_router>(SP_LINK_ROUTERS);
    arrays_.link_credits = zeroed<sp_link_credit>(size_t{cpus} * SP_PORTS);
    arrays_.sampling = zeroed<sp_sampling>(1);
    arrays_.ports_down = zeroed<sp_u64>(SP_PORTS / 64);
    arrays_.hash_seed = zeroed<sp_u64>(1);
    arrays_.rx = zeroed<sp_counter>(size_t{cpus} * SP_INTERFACES);
    arrays_.tx = zeroed<sp_counter>(size_t{cpus} * SP_INTERFACES);
    arrays_.reasons = zeroed<sp_counter>(size_t{cpus} * SP_VRFS * SP_REASONS);
    arrays_.engine_counters = zeroed<sp_u64>(size_t{cpus} * SP_ENGINE_COUNTERS);
    arrays_.cores = zeroed<sp_core>(cpus);
    arrays_.core_routers = zeroed<sp_core_router>(size_t{cpus} * SP_VRFS);
    arrays_.core_slices = zeroed<sp_core_slice>(size_t{cpus} * SP_SLICES);
    arrays_.word_count = capacity.words;
    arrays_.member_count = capacity.members;
    arrays_.cpus = cpus;
}

MemoryEngine::~MemoryEngine() = default;

void MemoryEngine::activate(const std::vector<Port>& ports) {
    const std::lock_guard guard(lock_);
    ports_.clear();
    for (const Port& port : ports) ports_.push_back({port, true, true, "memory", "", port.speed});
}

std::vector<PortStatus> MemoryEngine::ports() {
    const std::lock_guard guard(lock_);
    return ports_;
}

std::vector<PortLosses> MemoryEngine::losses() {
    const std::lock_guard guard(lock_);
    if (!losses_.empty()) return losses_;
    std::vector<PortLosses> none;
    for (const PortStatus& status : ports_) none.push_back({status.port.number, {}, {}});
    return none;
}

void MemoryEngine::set_losses(std::vector<PortLosses> losses) {
    const std::lock_guard guard(lock_);
    losses_ = std::move(losses);
}

bool MemoryEngine::transmit(uint32_t port, uint16_t vlan, std::span<const uint8_t> frame) {
    const std::lock_guard guard(lock_);
    const bool taken = std::ranges::any_of(
        ports_, [&](const PortStatus& status) { return status.port.number == port && status.up; });
    if (!taken) ++transmit_failures_;
    if (taken && sent_.size() < kSentAtMost) sent_.push_back({port, vlan, {frame.begin(), frame.end()}});
    return taken;
}

std::string MemoryEngine::description() const { return "memory, without packets"; }

void MemoryEngine::punt(uint32_t router_interface_id, uint8_t reason, std::span<const uint8_t> frame,
                        uint8_t punt_class, uint16_t router, uint16_t interface) {
    if (sink_) sink_(Punt{router_interface_id, reason, punt_class, router, interface, frame});
}

void MemoryEngine::set_up(uint32_t port, bool up) {
    std::vector<PortStatus> changed;
    {
        const std::lock_guard guard(lock_);
        for (PortStatus& status : ports_) {
            if (status.port.number != port || status.up == up) continue;
            status.up = up;
            set_port_down(arrays_, port, !up);
            changed.push_back(status);
        }
    }
    for (const PortStatus& status : changed) {
        if (port_sink_) port_sink_(status);
    }
}

std::vector<MemoryEngine::Sent> MemoryEngine::sent() {
    const std::lock_guard guard(lock_);
    return std::exchange(sent_, {});
}

}  // namespace splitplane
