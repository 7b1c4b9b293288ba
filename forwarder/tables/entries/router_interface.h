// SPDX-License-Identifier: Apache-2.0
//
// router_interface: the port, VLAN and MTU by which packets leave, and whether they are looked at for samples.
#pragma once

#include <mutex>

#include "tables/entry_table.h"
#include "tables/ways_out.h"

namespace splitplane {

class RouterInterface : public EntryTable {
  public:
    static constexpr TableTraits kTraits{"router_interface", SP_INTERFACES, false};
    RouterInterface(sp_arrays& arrays, Objects& objects, SampleRate rate);

    // Whether a controller wants samples of what router interfaces send, and how they are sent. Anybody may ask at any time: who has a
    // sample to send does not wait for who writes.
    std::optional<SampleDigest> samples() const;
    void sample(std::optional<SampleDigest> digest);
    // Where a router interface sends. Anybody may ask at any time, too.
    std::optional<WayOut> way_out(uint32_t router_interface_id) const { return ways_out_.find(router_interface_id); }

  protected:
    std::vector<Reference> references(Key key, const Row& row) const override;
    Result store(Key key, const Row& row) override;
    void clear(Key key) override;

  private:
    bool sampled() const { return samples_ || rate_.count_routes; }
    void set_sampling();
    sp_u64& port(Key key) const { return arrays().egresses[slot_of(Space::kInterface, key.first)].port; }

    const SampleRate rate_;
    mutable std::mutex samples_mutex_;
    std::optional<SampleDigest> samples_;
    WaysOut ways_out_;
};

}  // namespace splitplane
