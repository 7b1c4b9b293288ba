// SPDX-License-Identifier: Apache-2.0
#include "tables/ways_out.h"

namespace splitplane {

void WaysOut::set(uint32_t router_interface_id, WayOut way) {
    const uint64_t wanted = uint64_t{router_interface_id} << 32 | kPresent | uint64_t{way.vlan} << 16 | way.port;
    std::optional<uint32_t> room;
    for (uint32_t step = 0; step < kPlaces; ++step) {
        const uint32_t place = first_place(router_interface_id) + step;
        const uint64_t held = word(place);
        if (is(held, router_interface_id)) {
            word(place) = wanted;
            return;
        }
        if (!room && (held & kPresent) == 0) room = place;
        if (held == 0) break;
    }
    word(*room) = wanted;  // there is some: a fourth of the places is taken at most
}

// Places at the end of a run are free again: nobody looks for anything behind them.
void WaysOut::remove(uint32_t router_interface_id) {
    for (uint32_t step = 0; step < kPlaces; ++step) {
        uint32_t at = first_place(router_interface_id) + step;
        const uint64_t held = word(at);
        if (held == 0) return;
        if (!is(held, router_interface_id)) continue;
        word(at) = kGone;
        if (word(at + 1) != 0) return;
        for (; word(at) == kGone; at += kPlaces - 1) word(at) = 0;
        return;
    }
}

std::optional<WayOut> WaysOut::find(uint32_t router_interface_id) const {
    for (uint32_t step = 0; step < kPlaces; ++step) {
        const uint64_t held = word(first_place(router_interface_id) + step);
        if (held == 0) break;
        if (is(held, router_interface_id)) {
            return WayOut{static_cast<uint32_t>(held & (SP_PORTS - 1)),
                          static_cast<uint16_t>(held >> 16 & (SP_VLANS - 1))};
        }
    }
    return std::nullopt;
}

}  // namespace splitplane
