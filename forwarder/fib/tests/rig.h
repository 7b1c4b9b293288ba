// SPDX-License-Identifier: Apache-2.0
//
// Arrays, grace periods and a plain reference for the tests of the tries.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <vector>

extern "C" {
#include "pipeline/trie.h"
}

#include "fib/fib.h"
#include "fib/key.h"

namespace splitplane {

class Arrays {
  public:
    explicit Arrays(uint32_t words) : words_(words / 2), vrfs_(std::make_unique<sp_vrf[]>(SP_VRFS)) {
        arrays.words = reinterpret_cast<sp_u32*>(words_.data());
        arrays.word_count = words;
        arrays.vrfs = vrfs_.get();
    }
    // The default route has a word of its own: the two words are of one moment if it has not changed between.
    uint32_t lookup(uint32_t vrf, Family family, Key address) const {
        auto at = static_cast<size_t>(family);
        const sp_vrf& entry = arrays.vrfs[vrf];
        for (;;) {
            uint32_t fallback = sp_load_word(&entry.default_leaf[at]);
            sp_u64 root = sp_load_long(&entry.root[at]);
            uint32_t leaf = family == Family::kIpv4
                                ? sp_trie_lookup4(&arrays, root, static_cast<uint32_t>(high_of(address) >> 32))
                                : sp_trie_lookup6(&arrays, root, high_of(address), low_of(address));
            if (leaf != 0) {
                return leaf;
            }
            if (sp_load_word(&entry.default_leaf[at]) == fallback) {
                return fallback;
            }
        }
    }

    sp_arrays arrays{};

  private:
    std::vector<uint64_t> words_;
    std::unique_ptr<sp_vrf[]> vrfs_;
};

// No readers: every grace period is over at once.
class NoReaders : public GracePeriods {
  public:
    void synchronize() override { ++calls; }
    std::atomic<uint64_t> calls{0};
};

// Routes of one table by (address, length), which is also their order.
class Reference {
  public:
    std::map<std::pair<Key, uint32_t>, uint32_t> routes;

    uint32_t lookup(Key address, uint32_t bits) const {
        for (uint32_t length = bits + 1; length-- > 0;) {
            auto found = routes.find({address & mask_of(length), length});
            if (found != routes.end()) {
                return found->second;
            }
        }
        return 0;
    }
};

inline uint32_t bits_of(Family family) { return family == Family::kIpv4 ? 32 : 128; }

}  // namespace splitplane
