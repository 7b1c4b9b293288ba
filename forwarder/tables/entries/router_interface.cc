// SPDX-License-Identifier: Apache-2.0
#include "tables/entries/router_interface.h"

#include <algorithm>

#include "tables/entries/policer.h"

namespace splitplane {

namespace {

constexpr uint32_t kLeastBurst = 10, kBurstPart = 10;  // of samples: a tenth of a second, ten packets at least

}  // namespace

RouterInterface::RouterInterface(sp_arrays& arrays, Objects& objects, SampleRate rate)
    : EntryTable(kTraits, arrays, objects), rate_(rate) {
    if (rate_.count_routes) {
        set_sampling();
    }
}

std::vector<Reference> RouterInterface::references(Key key, const Row&) const {
    return {{Space::kInterface, id_of(key.first)}};
}

Result RouterInterface::store(Key key, const Row& row) {
    publish(port(key), sp_port(id_of(row.params[0]), id_of(row.params[1]), id_of(row.params[2])) |
                           (sampled() ? SP_SAMPLED : 0));
    ways_out_.set(id_of(key.first), {id_of(row.params[0]), static_cast<uint16_t>(row.params[1])});
    return {};
}

void RouterInterface::clear(Key key) {
    publish(port(key), sp_u64{0});
    ways_out_.remove(id_of(key.first));
}

std::optional<SampleDigest> RouterInterface::samples() const {
    std::lock_guard guard(samples_mutex_);
    return samples_;
}

// Every way out says whether it is sampled: what a packet reads anyway. How is said before that.
void RouterInterface::sample(std::optional<SampleDigest> digest) {
    {
        std::lock_guard guard(samples_mutex_);
        samples_ = digest;
    }
    if (digest) {
        set_sampling();
    }
    for (const auto& [key, row] : rows()) {
        store(key, row);
    }
}

void RouterInterface::set_sampling() {
    auto& sampling = *arrays().sampling;
    publish(sampling.threshold, static_cast<sp_u32>((uint64_t{1} << 32) / rate_.one_in - 1));
    set_rate(sampling.policer, rate_.per_s, std::max(kLeastBurst, rate_.per_s / kBurstPart));
}

}  // namespace splitplane
