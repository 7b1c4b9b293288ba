// SPDX-License-Identifier: Apache-2.0
#include "fib/free_blocks.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace splitplane {
namespace {

TEST(FreeBlocks, GivesOutEverythingButUnit0) {
    std::vector<uint64_t> memory(100);
    FreeBlocks blocks(memory);
    EXPECT_EQ(blocks.free_units(), 99u);
    EXPECT_EQ(blocks.allocate(100), 0u);
    EXPECT_EQ(blocks.allocate(99), 1u);
    EXPECT_EQ(blocks.allocate(1), 0u);
    blocks.free(1, 99);
    EXPECT_EQ(blocks.free_units(), 99u);
}

TEST(FreeBlocks, ManagesNothing) {
    FreeBlocks none({});
    EXPECT_EQ(none.allocate(1), 0u);
    std::vector<uint64_t> memory(1);
    FreeBlocks only_unit_0(memory);
    EXPECT_EQ(only_unit_0.allocate(1), 0u);
}

// Of each chunk, and of the rest behind the last whole one, the end stays free of blocks: so none reaches across.
TEST(FreeBlocks, KeepsTheEndsOfChunks) {
    for (uint32_t size : {299u, 304u, 305u, 306u}) {
        std::vector<uint64_t> memory(size);
        FreeBlocks blocks(memory, 100, 5);
        uint32_t last_two = size < 300 ? 95 + 94 : 95 + 95, behind = size > 305 ? size - 305 : 0;
        EXPECT_EQ(blocks.capacity(), 94 + last_two + behind);
        EXPECT_EQ(blocks.allocate(96), 0u);
        std::vector<uint32_t> given;
        for (uint32_t first = blocks.allocate(1); first != 0; first = blocks.allocate(1)) {
            EXPECT_LT(first % 100, 95u);
            given.push_back(first);
        }
        EXPECT_EQ(given.size(), blocks.capacity());
        for (uint32_t first : given) {
            blocks.free(first, 1);
        }
        EXPECT_EQ(blocks.free_units(), blocks.capacity());
        EXPECT_NE(blocks.allocate(95), 0u);
    }
}

// Blocks never overlap, their content is left alone, and what is free joins again.
TEST(FreeBlocks, JoinsNeighbors) {
    for (uint32_t seed = 0; seed < 20; ++seed) {
        std::vector<uint64_t> memory(3000 + seed * 64);
        FreeBlocks blocks(memory);
        std::mt19937 chance(seed);
        std::map<uint32_t, uint32_t> used;
        uint32_t total = 0;
        for (uint32_t step = 0; step < 5000; ++step) {
            if (chance() % 100 < (step / 1000 % 2 == 0 ? 60u : 40u)) {
                uint32_t units = chance() % 10 == 0 ? 1 + chance() % 300 : 1 + chance() % 8;
                uint32_t first = blocks.allocate(units);
                if (first == 0) {
                    continue;
                }
                auto behind = used.lower_bound(first);
                ASSERT_TRUE(behind == used.end() || first + units <= behind->first);
                ASSERT_TRUE(behind == used.begin() || std::prev(behind)->first + std::prev(behind)->second <= first);
                ASSERT_LE(first + units, memory.size());
                std::fill_n(memory.begin() + first, units, uint64_t{first} << 32 | 0xffffffff);
                used[first] = units;
                total += units;
            } else if (!used.empty()) {
                auto found = used.lower_bound(chance() % memory.size());
                found = found == used.end() ? used.begin() : found;
                for (uint32_t at = 0; at < found->second; ++at) {
                    ASSERT_EQ(memory[found->first + at], uint64_t{found->first} << 32 | 0xffffffff);
                }
                blocks.free(found->first, found->second);
                total -= found->second;
                used.erase(found);
            }
            ASSERT_EQ(blocks.free_units(), memory.size() - 1 - total);
        }
        for (const auto& [first, units] : used) {
            blocks.free(first, units);
        }
        EXPECT_EQ(blocks.allocate(static_cast<uint32_t>(memory.size()) - 1), 1u);
    }
}

TEST(FreeBlocks, ExtendBlocks) {
    std::vector<uint64_t> memory(10);
    FreeBlocks blocks(memory);
    uint32_t first = blocks.allocate(2), second = blocks.allocate(3);
    EXPECT_FALSE(blocks.extend(first, 2)) << "in use";
    blocks.free(second, 2);
    EXPECT_TRUE(blocks.extend(first, 2));
    EXPECT_TRUE(blocks.extend(first, 3)) << "the last of those";
    EXPECT_FALSE(blocks.extend(first, 4));
    EXPECT_EQ(blocks.free_units(), 4u);
    for (uint32_t units = 1; units < 5; ++units) {
        EXPECT_TRUE(blocks.extend(second + 2, units));
    }
    EXPECT_FALSE(blocks.extend(second + 2, 5)) << "the end";
    EXPECT_EQ(blocks.free_units(), 0u);
    blocks.free(second + 2, 5);
    blocks.free(first, 4);
    EXPECT_EQ(blocks.allocate(9), 1u);
}

TEST(FreeBlocks, TakesTheSmallestThatFits) {
    std::vector<uint64_t> memory(1000);
    FreeBlocks blocks(memory);
    uint32_t small = blocks.allocate(5);
    blocks.allocate(1);
    uint32_t big = blocks.allocate(20);
    blocks.allocate(1);
    blocks.free(big, 20);
    blocks.free(small, 5);
    EXPECT_EQ(blocks.allocate(4), small);
    EXPECT_EQ(blocks.allocate(20), big);
}

}  // namespace
}  // namespace splitplane
