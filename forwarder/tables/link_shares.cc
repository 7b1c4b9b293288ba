// SPDX-License-Identifier: Apache-2.0
#include "tables/link_shares.h"

#include <algorithm>

#include "tables/objects.h"

namespace splitplane {

namespace {

constexpr uint64_t kBitsToRate = 8'000'000'000;  // a rate is bits a second << 30 by this
constexpr uint64_t kOldNs = 1'000'000'000;       // a use that nobody has noted for so long is none
constexpr uint64_t kTold = 16;                   // times that a CPU tells of what it sends in a tick

__extension__ using Wide = unsigned __int128;

uint64_t rate_of(uint64_t bits_per_s) { return static_cast<uint64_t>((Wide{bits_per_s} << 30) / kBitsToRate); }
uint64_t bits_of(uint64_t rate) { return static_cast<uint64_t>(Wide{rate} * kBitsToRate >> 30); }

template <typename Word>
Word loaded(const Word& word) {
    return __atomic_load_n(&word, __ATOMIC_RELAXED);
}

sp_share loaded_share(const sp_share& share) {
    return {loaded(share.weight), loaded(share.guarantee), loaded(share.ceiling), loaded(share.slice)};
}

// As nobody has sent yet.
void open(sp_link_whole& whole, uint64_t rate) {
    publish(whole.held, sp_u64{0});
    publish(whole.highest, sp_u64{0});
    publish(whole.level, sp_u64{rate << SP_LINK_LEVEL_SHIFT});
}

}  // namespace

// -- slots -----------------------------------------------------------------------------------------------------------
uint32_t LinkShares::Pool::acquire(OnPort whom) {
    const auto found = taken_.find(whom);
    if (found != taken_.end()) return found->second;
    const auto slot = free_.take();
    if (slot) taken_[whom] = *slot;
    return slot.value_or(0);
}

// A packet that is on its way may still take from one of them on behalf of who had it: that does no harm.
std::vector<std::pair<LinkShares::OnPort, uint32_t>> LinkShares::Pool::release_others(const std::set<OnPort>& those) {
    std::vector<std::pair<OnPort, uint32_t>> released;
    std::erase_if(taken_, [&](const auto& entry) {
        if (those.contains(entry.first)) return false;
        released.push_back(entry);
        free_.free(entry.second);
        return true;
    });
    return released;
}

// -- what changes ------------------------------------------------------------------------------------------------------
LinkShares::LinkShares(sp_arrays& arrays) : arrays_(arrays) {}

void LinkShares::entered(uint32_t interface, uint32_t vrf) {
    const std::lock_guard guard(mutex_);
    owners_[interface] = {vrf, owners_[interface].entries + 1};
}

void LinkShares::left(uint32_t interface) {
    const std::lock_guard guard(mutex_);
    if (--owners_[interface].entries == 0) owners_[interface] = {};
}

void LinkShares::divide() {
    const std::lock_guard guard(mutex_);
    divide_now();
}

void LinkShares::set_speed(uint32_t port, uint64_t bits_per_s) {
    const std::lock_guard guard(mutex_);
    if (speeds_[port] == bits_per_s) return;
    speeds_[port] = bits_per_s;
    if (bits_per_s == 0) publish(arrays_.link_modes[port], sp_u64{0});
    divide_now();
}

// -- what it comes to --------------------------------------------------------------------------------------------------
// Routers' slots are known to slices, and slices' ceilings to ports; who sends is told last.
void LinkShares::divide_now() {
    if (std::ranges::all_of(speeds_, [](uint64_t speed) { return speed == 0; }) && routers_.taken().empty()) return;
    Division division;
    std::vector<std::pair<uint32_t, OnPort>> senders;
    for (uint32_t interface = 0; interface < SP_INTERFACES; ++interface) {
        const sp_u64 way = loaded(arrays_.egresses[interface].port);
        const uint32_t port = sp_port_number(way);
        if ((way & SP_PRESENT) == 0 || speeds_[port] == 0) {
            sp_u32& slot = arrays_.link_slots[interface];  // may be another's by the time that it comes back
            if (loaded(slot) != 0) publish(slot, sp_u32{0});
            continue;
        }
        senders.push_back({interface, {port, owners_[interface].vrf}});
        division.routers.insert(senders.back().second);
    }
    for (const OnPort& router : division.routers) {
        const sp_share share = loaded_share(arrays_.router_shares[router.second]);
        if (share.slice == 0) continue;
        division.slices.insert({router.first, share.slice});
        division.guaranteed[{router.first, share.slice}] += share.guarantee;
    }
    for (const auto& [router, slot] : routers_.release_others(division.routers)) {
        dropped_[router.first] += dropped(slot);
    }
    slices_.release_others(division.slices);
    for (const OnPort& slice : division.slices) write_slice(slice, division);
    for (const OnPort& router : division.routers) write_router(router, division);
    for (const auto& [interface, router] : senders) {
        publish(arrays_.link_slots[interface], sp_u32{routers_.acquire(router)});
    }
    for (uint32_t port = 1; port < SP_PORTS; ++port) {
        if (speeds_[port] != 0) write_port(port, division.has_ceiling[port]);
    }
}

uint64_t LinkShares::part(uint32_t port, uint64_t millionths) const {
    const auto rate = static_cast<uint64_t>(Wide{rate_of(speeds_[port])} * millionths / SP_SHARE_WHOLE);
    return std::max<uint64_t>(rate, millionths != 0);  // a ceiling of 0 is none
}

void LinkShares::write_router(OnPort whom, Division& division) {
    const bool is_new = !routers_.taken().contains(whom);
    const uint32_t slot = routers_.acquire(whom);
    if (slot == 0) return;
    const sp_share share = loaded_share(arrays_.router_shares[whom.second]);
    sp_link_router& router = arrays_.link_routers[slot];
    if (is_new) publish(router.dropped, sp_u64{0});
    const uint32_t slice = share.slice == 0 ? 0 : slices_.acquire({whom.first, share.slice});
    publish(router.weight, sp_u32{share.weight});
    publish(router.guarantee, sp_u64{part(whom.first, share.guarantee)});
    publish(router.ceiling, sp_u64{part(whom.first, share.ceiling)});
    publish(router.slice, sp_u32{slice});
    if (share.ceiling != 0) division.has_ceiling[whom.first] = true;
}

void LinkShares::write_slice(OnPort whom, Division& division) {
    const bool is_new = !slices_.taken().contains(whom);
    const uint32_t slot = slices_.acquire(whom);
    if (slot == 0) return;
    const sp_share share = loaded_share(arrays_.slice_shares[whom.second]);
    sp_link_slice& slice = arrays_.link_slices[slot];
    const uint64_t guaranteed = std::max<uint64_t>(share.guarantee, division.guaranteed[whom]);
    if (is_new) open(slice.whole, rate_of(speeds_[whom.first]));
    publish(slice.weight, sp_u64{share.weight});
    publish(slice.guarantee, sp_u64{part(whom.first, guaranteed)});
    publish(slice.ceiling, sp_u64{part(whom.first, share.ceiling)});
    if (share.ceiling != 0) division.has_ceiling[whom.first] = true;
}

// The mode last: packets look at the rest only behind it. A change of it that a CPU makes meanwhile may be lost; the next
// tick makes it again.
void LinkShares::write_port(uint32_t port, bool has_ceiling) {
    sp_link& link = arrays_.links[port];
    const uint64_t speed = rate_of(speeds_[port]);
    const uint64_t burst = std::max<uint64_t>(SP_LINK_BURST, speed >> SP_LINK_BURST_SHIFT);
    publish(link.tick_ns, sp_u64{(burst << 30) / speed});
    publish(link.speed, sp_u64{speed});
    sp_u64& mode = arrays_.link_modes[port];
    const sp_u64 before = loaded(mode), always = SP_LINK_CONTENDED | SP_LINK_ALWAYS;
    const sp_u64 bits = SP_LINK_SHARED | (before & SP_LINK_CONTENDED) | (has_ceiling ? always : 0);
    const sp_u64 wanted = sp_link_mode(bits, burst / kTold);
    if (wanted == before) return;
    if ((before & SP_LINK_CONTENDED) == 0) open(link.whole, speed);
    publish(mode, sp_u64{wanted});
}

// -- what is known -----------------------------------------------------------------------------------------------------
uint64_t LinkShares::dropped(uint32_t slot) const { return loaded(arrays_.link_routers[slot].dropped); }

LinkStatus LinkShares::status(uint32_t port, uint64_t now_ns) const {
    const std::lock_guard guard(mutex_);
    LinkStatus status;
    if (speeds_[port] == 0) return status;
    const sp_link& link = arrays_.links[port];
    const uint64_t since = loaded(link.whole.since);
    status.speed = speeds_[port];
    status.contended = (loaded(arrays_.link_modes[port]) & SP_LINK_CONTENDED) != 0;
    status.level = status.contended ? std::min(status.speed, bits_of(loaded(link.whole.level) >> SP_LINK_LEVEL_SHIFT))
                                    : status.speed;
    status.over_share = dropped_[port];
    if (now_ns < since + kOldNs) status.use = bits_of(loaded(link.use));
    for (const auto& [router, slot] : routers_.taken()) {
        if (router.first == port) status.over_share += dropped(slot);
    }
    return status;
}

}  // namespace splitplane
