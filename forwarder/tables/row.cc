// SPDX-License-Identifier: Apache-2.0
#include "tables/row.h"

namespace splitplane {

namespace {

constexpr std::array<TableTraits, kTables> kTraits{{
    {"interface_classifier", SP_INTERFACES, true},
    {"l3_admit", SP_INTERFACES * SP_INTERFACE_MACS, false},
    {"router_interface", SP_INTERFACES, false},
    {"router_interface_egress", SP_INTERFACES, true},
    {"fallback_link", SP_INTERFACES, false},
    {"nexthop", SP_NEXTHOPS, false},
    {"nexthop_group", SP_GROUPS, false},
    {"reason", SP_VRFS * (SP_REASONS - 1), true},
    {"policer", SP_VRFS * SP_PUNT_CLASSES, false},
}};

}  // namespace

const TableTraits& traits(Table table) {
    return kTraits[static_cast<size_t>(table)];
}

const Extras& Row::more() const {
    static const Extras none;
    return extras ? *extras : none;
}

}  // namespace splitplane
