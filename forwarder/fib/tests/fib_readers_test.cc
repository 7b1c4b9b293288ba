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
constexpr uint32_t kVersions = 12000;

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

// Steps that can all be done, and the answer for each address after each of them; version 0 is the empty table.
struct Story {
    std::vector<Step> steps;
    std::vector<Key> addresses;
    std::vector<std::array<uint32_t, kAddresses>> answers;

    Story(Family family, uint32_t seed) {
        std::mt19937 chance(seed);
        uint32_t bits = bits_of(family);
        Key base = ~Key{0} / 5;
        Key varying = Key{0xfff} << (kKeyBits - 24) | Key{0xf} << (kKeyBits - bits);
        auto address = [&] { return base ^ (varying & (Key{chance()} << 96 | Key{chance()} << (kKeyBits - bits))); };
        for (uint32_t at = 0; at < kAddresses; ++at) {
            addresses.push_back(address() & mask_of(bits));
        }
        const uint32_t lengths[] = {0, 2, 11, 13, 16, 18, 21, 24, bits - 3, bits};
        Reference reference;
        answers.push_back({});
        while (steps.size() < kVersions) {
            uint32_t length = lengths[chance() % std::size(lengths)];
            Key near = chance() % 2 == 0 ? address() : addresses[chance() % kAddresses];
            Prefix prefix = prefix_of(near & mask_of(length), length);
            auto key = std::pair{key_of(prefix), length};
            uint32_t size = steps.size() / 3000 % 2 == 0 ? 600 : 30;  // the root grows and shrinks
            if (chance() % size > reference.routes.size() / 2) {
                uint32_t leaf = 1 + chance() % 1000;
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
            answers.emplace_back();
            for (uint32_t at = 0; at < kAddresses; ++at) {
                answers.back()[at] = reference.lookup(addresses[at], bits);
            }
        }
    }
};

class Readers : public testing::TestWithParam<Family> {};

TEST_P(Readers, SeeTheOldOrTheNew) {
    Family family = GetParam();
    Story story(family, 11);
    Arrays arrays(1 << 15);
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
            uint32_t leaf = arrays.lookup(1, family, story.addresses[at]);
            epochs.leave(reader);
            uint32_t last = begun.load();
            bool right = false;
            for (uint32_t version = first; version <= last && !right; ++version) {
                right = story.answers[version][at] == leaf;
            }
            wrong += right ? 0 : 1;
            ++count;
        }
        lookups += count;
    };
    std::vector<std::thread> readers;
    for (uint32_t reader = 0; reader < kReaders; ++reader) {
        readers.emplace_back(read, reader);
    }
    for (uint32_t at = 0; at < kVersions; ++at) {
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
    EXPECT_GT(lookups, kReaders * 1000u);
    fib.settle();
    EXPECT_GT(epochs.periods, 0u);
}

INSTANTIATE_TEST_SUITE_P(Families, Readers, testing::Values(Family::kIpv4, Family::kIpv6));

}  // namespace
}  // namespace splitplane
