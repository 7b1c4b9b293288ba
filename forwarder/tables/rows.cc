// SPDX-License-Identifier: Apache-2.0
#include "tables/rows.h"

namespace splitplane {

const TableTraits& traits(Table table) {
    // In the order of `Table`.
    static constexpr std::array<TableTraits, kTables> kAll{
        InterfaceClassifier::kTraits, L3Admit::kTraits, RouterInterface::kTraits, RouterInterfaceEgress::kTraits,
        FallbackLink::kTraits,        Nexthop::kTraits, NexthopGroup::kTraits,    Reason::kTraits,
        Policer::kTraits,             RouterShare::kTraits, SliceShare::kTraits,
    };
    return kAll[static_cast<size_t>(table)];
}

}  // namespace splitplane
