// SPDX-License-Identifier: Apache-2.0
#include "tables/entries/router_interface.h"

#include <algorithm>

#include "tables/entries/policer.h"

namespace splitplane {

namespace {

constexpr uint32_t kLeastBurst = 10, kBurstPart = 10;  // of samples: a tenth of a second, ten packets at least

}  // namespace

std::vector<Reference> RouterInterface::references(Key key, const Row&) const {
    return {{Space::kInterface, id_of(key.first)}};
}

Result RouterInterface::store(Key key, const Row& row) {
    publish(port(key), sp_port(id_of(row.params[0]), id_of(row.params[1]), id_of(row.params[2])) |
                           (samples_ ? SP_SAMPLED : 0));
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
    auto& sampling = *arrays().sampling;
    if (digest) {
        publish(sampling.threshold, static_cast<sp_u32>((uint64_t{1} << 32) / rate_.one_in - 1));
        set_rate(sampling.policer, rate_.per_s, std::max(kLeastBurst, rate_.per_s / kBurstPart));
    }
    for (const auto& [key, row] : rows()) {
        store(key, row);
    }
}

}  // namespace splitplane
