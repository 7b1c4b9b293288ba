// SPDX-License-Identifier: Apache-2.0
//
// Random tables and frames near their edges, by seed.
#pragma once

#include <random>

#include "tests/pipeline/world.h"

namespace splitplane::test {

class Draw {
  public:
    explicit Draw(uint64_t seed) : random_(seed) {}
    uint64_t below(uint64_t limit) { return random_() % limit; }
    bool chance(int percent) { return below(100) < static_cast<uint64_t>(percent); }
    uint64_t bits() { return random_(); }
    template <typename T>
    T one_of(std::initializer_list<T> values) {
        return values.begin()[below(values.size())];
    }
    Octets octets(size_t count) {
        Octets all(count);
        for (uint8_t& octet : all) octet = static_cast<uint8_t>(random_());
        return all;
    }

  private:
    std::mt19937_64 random_;
};

// The same tables for the same seed, whichever engine they are written to.
void write_random_tables(Writer& write, uint64_t seed);

// Let some routers have had their share of every core, and some have it soon: as in the midst of a poll. The engine is to
// measure no packet.
void hold_back_some(sp_arrays& tables, uint64_t seed);

// For tables of write_random_tables(). Most frames are somebody's; some have a few octets damaged.
Arrival random_arrival(Draw& draw);

// What the pipeline has counted, of all CPUs together.
std::vector<uint64_t> totals(const sp_arrays& tables);

}  // namespace splitplane::test
