// SPDX-License-Identifier: Apache-2.0
//
// interface_classifier: whose a frame is, by the port and VLAN that it comes in by.
#pragma once

#include "tables/entries/policer.h"
#include "tables/link_shares.h"

namespace splitplane {

class InterfaceClassifier : public EntryTable {
  public:
    static constexpr TableTraits kTraits{"interface_classifier", SP_INTERFACES, true};
    InterfaceClassifier(sp_arrays& arrays, Objects& objects, Policer& policers, LinkShares& links)
        : EntryTable(kTraits, arrays, objects), policers_(policers), links_(links) {}

  protected:
    std::vector<Reference> references(Key key, const Row& row) const override {
        return {{Space::kRxCounter, index(key)},
                {Space::kInterface, id_of(row.params[0])},
                {Space::kVrf, id_of(row.params[1])}};
    }
    Result store(Key key, const Row& row) override {
        publish(arrays().classifier[index(key)],
                sp_classifier(is_ingress(row) ? SP_CLASSIFIER_INGRESS : SP_CLASSIFIER_EGRESS,
                              slot_of(Space::kVrf, row.params[1]), slot_of(Space::kInterface, row.params[0]),
                              slot_of(Space::kRxCounter, index(key))));
        return {};
    }
    void clear(Key key) override { publish(arrays().classifier[index(key)], sp_u64{0}); }
    void entered(const Row& row) override {
        const uint32_t interface = slot_of(Space::kInterface, row.params[0]);
        const uint32_t vrf = slot_of(Space::kVrf, row.params[1]);
        if (is_ingress(row)) {
            policers_.enter(vrf, interface);
        }
        links_.entered(interface, vrf);
    }
    void left(const Row& row) override {
        const uint32_t interface = slot_of(Space::kInterface, row.params[0]);
        if (is_ingress(row)) {
            policers_.leave(slot_of(Space::kVrf, row.params[1]));
        }
        links_.left(interface);
    }
    std::optional<Counter> counter(Key key) const override {
        return Counter{arrays().rx + slot_of(Space::kRxCounter, index(key)), SP_INTERFACES};
    }

  private:
    static uint32_t index(Key key) { return sp_classifier_index(id_of(key.first), id_of(key.second)); }
    static bool is_ingress(const Row& row) { return row.action == Action::kSetRouterInterface; }

    Policer& policers_;
    LinkShares& links_;
};

}  // namespace splitplane
