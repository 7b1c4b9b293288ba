// SPDX-License-Identifier: Apache-2.0
//
// Readers on threads of their own while the writer writes: each answer is one that was right at some moment between
// the beginning and the end of its look-up, and freed blocks are used again as soon as they may be.
#include <gtest/gtest.h>

#include <thread>

#include "fib/tests/rig.h"

namespace splitplane {
namespace {

constexpr uint32_t kReaders = 2;
constexpr uint32_t kAddresses = 48;
constexpr uint32_t kVersions = rounds(12000);

// A reader is in the tables while its number is odd (epochs; McKenney's quiescent states).
class Epochs : public GracePeriods {
  public:
    void enter(uint32_t reader) { numbers_[reader].fetch_add(1, std::memory_order_seq_cst); }
    void leave(uint32_t reader) { numbers_[reader].fetch_add(1, std::memory_order_seq_cst); }
    void synchronize() override {
        std::atomic_thread_fence(std::memory_order_seq_cst);
        for (auto& number : numbers_) {
            uint64_t seen = number.load();
            while (seen % 2 == 1 && number.load() == seen) {
                std::this_thread::yield();
            }
        }
        ++periods;
    }
    std::atomic<uint64_t> periods{0};

  private:
    std::array<std::atomic<uint64_t>, kReaders> numbers_{};
};

struct Step {
    Prefix prefix;
    uint32_t leaf;  // 0: erase
};

// Steps that can all be done, and the answer of the trie (without the default route, which has a word of its own) for
// each address after each of them; version 0 is the empty table.
struct Story {
    std::vector<Step> steps;
    std::vector<Key> addresses;
    std::vector<std::array<uint32_t, kAddresses>> answers;
    std::vector<uint32_t> defaults;

    // In every other `phase` the table shrinks. With an odd seed routes are spread evenly and fit into buckets.
    Story(Family family, uint32_t seed, uint32_t versions, uint32_t phase, uint32_t most) {
        std::mt19937 chance(seed);
        uint32_t bits = bits_of(family);
        Key base = ~Key{0} / 5;
        bool even = seed % 2 != 0;
        Key varying = Key{even ? 0xfb0fffu : 0x1b0fffu} << (kKeyBits - 24) | Key{0xf} << (kKeyBits - bits);
        auto address = [&] { return base ^ (varying & (Key{chance()} << 96 | Key{chance()} << (kKeyBits - bits))); };
        for (uint32_t at = 0; at < kAddresses; ++at) {
            addresses.push_back(address() & mask_of(bits));
        }
        const uint32_t lengths[] = {0, 2, 7, 8, 11, 13, 16, 18, 21, 24, even ? 22u : bits - 3, even ? 23u : bits};
        Reference reference;
        answers.push_back({});
        defaults.push_back(0);
        while (steps.size() < versions) {
            uint32_t length = lengths[chance() % std::size(lengths)];
            Key near = chance() % 2 == 0 ? address() : addresses[chance() % kAddresses];
            Prefix prefix = prefix_of(near & mask_of(length), length);
            auto key = std::pair{key_of(prefix), length};
            uint32_t size = steps.size() / phase % 2 == 0 ? most : 30;  // the root grows and shrinks
            if (chance() % size > reference.routes.size() / 2) {
                uint32_t leaf = even ? sp_leaf(SP_ROUTE_NEXTHOP, chance() % 1000) : leaf_of(1 + chance() % 1000);
                reference.routes[key] = leaf;
                steps.push_back({prefix, leaf});
            } else {
                auto found = reference.routes.lower_bound(key);
                if (found == reference.routes.end()) {
                    continue;
                }
                steps.push_back({prefix_of(found->first.first, found->first.second), 0});
                reference.routes.erase(found);
            }
            answers.push_back(answers.back());
            const Step& step = steps.back();  // no address outside of its prefix has another answer
            for (uint32_t at = 0; at < kAddresses; ++at) {
                if ((addresses[at] & mask_of(step.prefix.length)) == key_of(step.prefix)) {
                    answers.back()[at] = reference.lookup(addresses[at], bits, 1);
                }
            }
            defaults.push_back(reference.lookup(0, 0));
        }
    }

    // Whether an address had this answer at some time from one version to another.
    bool had(uint32_t at, uint32_t leaf, uint32_t first, uint32_t last) const {
        return std::any_of(answers.begin() + first, answers.begin() + last + 1,
                           [&](const auto& each) { return each[at] == leaf; });
    }
    // Over several updates a reader may see the trie of one moment and the default route of another.
    bool had_default(uint32_t leaf, uint32_t first, uint32_t last) const {
        return std::find(defaults.begin() + first, defaults.begin() + last + 1, leaf) != defaults.begin() + last + 1;
    }
};

class Readers : public testing::TestWithParam<std::tuple<Family, uint32_t>> {};

TEST_P(Readers, SeeTheOldOrTheNew) {
    auto [family, seed] = GetParam();
    Story story(family, seed, kVersions, 3000, 600);
    Arrays arrays(1 << 17);
    Epochs epochs;
    Fib fib(arrays.arrays, epochs);
    std::atomic<uint32_t> begun{0}, done{0}, wrong{0};
    std::atomic<uint64_t> lookups{0};

    auto read = [&](uint32_t reader) {
        std::mt19937 chance(reader);
        uint64_t count = 0;
        while (done.load() < kVersions || count < 1000) {
            uint32_t at = chance() % kAddresses;
            uint32_t first = done.load();
            epochs.enter(reader);
            uint32_t leaf = arrays.trie_lookup(1, family, story.addresses[at]);
            uint32_t fallback = sp_load_word(&arrays.arrays.vrfs[1].default_leaf[static_cast<size_t>(family)]);
            epochs.leave(reader);
            uint32_t last = begun.load();
            wrong += story.had(at, leaf, first, last) && story.had_default(fallback, first, last) ? 0 : 1;
            ++count;
        }
        lookups += count;
    };
    std::vector<std::thread> readers;
    for (uint32_t reader = 0; reader < kReaders; ++reader) {
        readers.emplace_back(read, reader);
    }
    Shapes seen;
    for (uint32_t at = 0; at < kVersions; ++at) {
        if (at % 250 == 0) {
            seen += Shapes(arrays, 1, family);
        }
        begun = at + 1;
        const Step& step = story.steps[at];
        FibResult result =
            step.leaf != 0 ? fib.set(1, family, step.prefix, step.leaf) : fib.erase(1, family, step.prefix);
        EXPECT_EQ(result, FibResult::kDone);
        done = at + 1;
        if (at % 64 == 0) {
            std::this_thread::yield();
        }
    }
    for (std::thread& reader : readers) {
        reader.join();
    }
    EXPECT_EQ(wrong, 0u);
    EXPECT_GT(seen.root_lists, 0u);
    EXPECT_GT(seen.node_lists + seen.shared_lists, 0u);
    EXPECT_GT(seen.nodes, 0u);
    EXPECT_GE(seen.longest, SP_TRIE_LIST);
    EXPECT_EQ(seen.buckets > 0, family == Family::kIpv4 && seed % 2 != 0);
    EXPECT_GT(seen.wide_lists + seed % 2, 0u);
    EXPECT_LT(seen.wide_lists, seen.lists());
    EXPECT_GT(lookups, kReaders * 1000u);
    fib.settle();
    EXPECT_GT(epochs.periods, 0u);
}

// No grace period ends while a reader is in the tables.
class Held : public GracePeriods {
  public:
    void hold() { held_.test_and_set(); }
    void release() {
        held_.clear();
        held_.notify_all();
    }
    void synchronize() override { held_.wait(true); }

  private:
    std::atomic_flag held_;
};

// A look-up that some blocks of the way, or some words of a bucket, have been loaded for.
struct Paused {
    uint32_t address = 0, version = 0;  // of which story, since when
    uint32_t word = 0;
    uint64_t high = 0, low = 0;
    const sp_u32* bucket = nullptr;  // that it is in
    uint32_t at = 0;                 // the next word of that, where no route has matched
    uint32_t bits = 0;               // that its list does not ask for again

    void scan(uint32_t end);
};

// Words of the bucket before one. The one that matches becomes the leaf.
void Paused::scan(uint32_t end) {
    for (; bucket != nullptr && at < end; ++at) {
        sp_u32 route = sp_load_word(bucket + at);
        if (sp_trie_begins(route, sp_trie_list_bits(high << bits))) {
            word = sp_trie_coded(word, route);
            bucket = nullptr;
        }
    }
}

Paused begin_lookup(const Arrays& arrays, Family family, Key address, uint32_t blocks, uint32_t words) {
    sp_u64 root = arrays.root(1, family);
    Paused paused;
    if (root == 0) {
        return paused;
    }
    uint32_t taken = sp_trie_root_taken(root);
    paused.high = high_of(address << taken);
    paused.low = low_of(address << taken);
    if (!sp_trie_root_has_buckets(root)) {
        paused.word = sp_trie_first(&arrays.arrays, root, high_of(address));
    } else {
        const sp_u32* bucket = sp_bucket_at(&arrays.arrays, sp_trie_root_base(root) +
                                                                sp_trie_root_slot(root, high_of(address)));
        paused.word = sp_load_word(bucket);
        if (sp_trie_is_here(paused.word)) {
            paused.bucket = bucket;
            paused.at = 1;
            paused.bits = sp_trie_root_bits(root) - taken;
            paused.scan(1 + words);
            return paused;
        }
    }
    for (; blocks > 0 && paused.word & SP_TRIE_BLOCK; --blocks) {
        paused.word = sp_trie_step(&arrays.arrays, paused.word, paused.high, &taken);
        Key rest = (Key{paused.high} << 64 | paused.low) << taken;
        paused.high = high_of(rest);
        paused.low = low_of(rest);
    }
    return paused;
}

uint32_t end_lookup(const Arrays& arrays, Paused paused) {
    paused.scan(SP_BUCKET_WORDS);
    if (paused.bucket != nullptr) {
        paused.word = sp_load_word(paused.bucket);
        if (sp_trie_is_here(paused.word)) {
            return sp_trie_coded(paused.word, paused.word);
        }
    }
    return sp_trie_walk(&arrays.arrays, paused.word, paused.high, paused.low, SP_TRIE_BLOCKS6);
}

// A reader may be held up for as long as many updates take: what it comes to then is an answer of that time.
TEST_P(Readers, HeldUpSeeAnAnswerOfTheirTime) {
    constexpr uint32_t kSteps = 3000, kAtOnce = 40;
    auto [family, first] = GetParam();
    for (uint32_t seed = first; seed < rounds(12); seed += 2) {
        Story story(family, seed, kSteps, 1000, 6000);
        Arrays arrays(1 << 18);
        Held held;
        Fib fib(arrays.arrays, held);
        std::mt19937 chance(seed);
        std::vector<Paused> paused;
        uint32_t wrong = 0, biggest_root = 0, in_buckets = 0;
        for (uint32_t at = 0; at < kSteps; ++at) {
            if (at % kAtOnce == 0) {
                for (const Paused& each : paused) {
                    uint32_t leaf = end_lookup(arrays, each);
                    wrong += story.had(each.address, leaf, each.version, at) ? 0 : 1;
                }
                paused.clear();
                held.release();
                fib.settle();
                held.hold();
            }
            for (uint32_t address = 0; address < kAddresses; ++address) {
                paused.push_back(begin_lookup(arrays, family, story.addresses[address], chance() % 3, chance() % 16));
                paused.back().address = address;
                paused.back().version = at;
                in_buckets += paused.back().bucket != nullptr;
            }
            const Step& step = story.steps[at];
            FibResult result =
                step.leaf != 0 ? fib.set(1, family, step.prefix, step.leaf) : fib.erase(1, family, step.prefix);
            ASSERT_EQ(result, FibResult::kDone);
            sp_u64 root = arrays.root(1, family);
            biggest_root = std::max(biggest_root, sp_trie_root_bits(root));
        }
        held.release();
        EXPECT_GT(biggest_root, kStride - 1);
        EXPECT_EQ(in_buckets > kSteps, family == Family::kIpv4 && seed % 2 != 0);
        EXPECT_EQ(wrong, 0u) << "seed " << seed;
    }
}

INSTANTIATE_TEST_SUITE_P(Families, Readers,
                         testing::Combine(testing::Values(Family::kIpv4, Family::kIpv6), testing::Values(0u, 1u)));

}  // namespace
}  // namespace splitplane
