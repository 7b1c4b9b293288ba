// SPDX-License-Identifier: Apache-2.0
//
// All tables but the routes', by their number.
//
//     Rows ──► EntryTable: entries as written, references, counters
//                   ▲
//                   └ entries/: interface_classifier, l3_admit, router_interface, … ──► arrays
#pragma once

#include <array>

#include "tables/entries/fallback_link.h"
#include "tables/entries/interface_classifier.h"
#include "tables/entries/l3_admit.h"
#include "tables/entries/nexthop.h"
#include "tables/entries/nexthop_group.h"
#include "tables/entries/policer.h"
#include "tables/entries/reason.h"
#include "tables/entries/router_interface.h"
#include "tables/entries/router_interface_egress.h"
#include "tables/entries/router_share.h"
#include "tables/entries/slice_share.h"
#include "tables/link_shares.h"

namespace splitplane {

class Rows {
  public:
    Rows(sp_arrays& arrays, GracePeriods& grace, Objects& objects, SampleRate rate)
        : links_(arrays),
          policers_(arrays, objects),
          classifier_(arrays, objects, policers_, links_),
          l3_admit_(arrays, objects),
          router_interfaces_(arrays, objects, rate),
          egresses_(arrays, objects),
          fallback_links_(arrays, objects),
          nexthops_(arrays, objects),
          groups_(arrays, grace, objects),
          reasons_(arrays, objects),
          router_shares_(arrays, objects),
          slice_shares_(arrays, objects) {}

    EntryTable& of(Table table) { return *tables_[static_cast<size_t>(table)]; }
    const EntryTable& of(Table table) const { return *tables_[static_cast<size_t>(table)]; }
    void limit(const TableLimits& limits) {
        for (size_t table = 0; table < kTables; ++table) {
            tables_[table]->limit(limits.of(static_cast<Table>(table)));
        }
    }

    // What links are divided into by what several tables say.
    LinkShares& links() { return links_; }
    const LinkShares& links() const { return links_; }
    // What single tables have beside entries: the action profile and samples.
    NexthopGroup& profile() { return groups_; }
    const NexthopGroup& profile() const { return groups_; }
    RouterInterface& router_interfaces() { return router_interfaces_; }
    const RouterInterface& router_interfaces() const { return router_interfaces_; }

  private:
    LinkShares links_;
    Policer policers_;
    InterfaceClassifier classifier_;
    L3Admit l3_admit_;
    RouterInterface router_interfaces_;
    RouterInterfaceEgress egresses_;
    FallbackLink fallback_links_;
    Nexthop nexthops_;
    NexthopGroup groups_;
    Reason reasons_;
    RouterShare router_shares_;
    SliceShare slice_shares_;
    // In the order of `Table`.
    const std::array<EntryTable*, kTables> tables_{&classifier_,     &l3_admit_, &router_interfaces_,
                                                   &egresses_,       &fallback_links_, &nexthops_,
                                                   &groups_,         &reasons_,  &policers_,
                                                   &router_shares_,  &slice_shares_};
};

}  // namespace splitplane
