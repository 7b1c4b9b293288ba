// SPDX-License-Identifier: Apache-2.0
#include "fib/arena.h"

#include <gtest/gtest.h>

#include <set>

namespace splitplane {
namespace {

// Grace periods that end when the test says so.
class Gate : public GracePeriods {
  public:
    void synchronize() override {
        std::unique_lock lock(mutex_);
        ++asked_;
        changed_.notify_all();
        changed_.wait(lock, [this] { return open_; });
    }
    void open() {
        std::lock_guard lock(mutex_);
        open_ = true;
        changed_.notify_all();
    }
    void wait_asked() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return asked_ > 0; });
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool open_ = false;
    int asked_ = 0;
};

TEST(BlockArena, UsesABlockAgainOnlyAfterAGracePeriod) {
    std::vector<uint64_t> memory(1001);
    Gate gate;
    BlockArena arena(memory, gate);
    std::set<uint32_t> retired;
    for (int at = 0; at < 300; ++at) {
        retired.insert(arena.allocate(2));
    }
    for (uint32_t first : retired) {
        arena.retire(first, 2);
    }
    gate.wait_asked();
    EXPECT_EQ(arena.usage().waiting, 600u);
    std::vector<uint32_t> others;
    for (int at = 0; at < 200; ++at) {  // never waits while there is room
        others.push_back(arena.allocate(2));
        EXPECT_NE(others.back(), 0u);
        EXPECT_FALSE(retired.contains(others.back()));
    }
    EXPECT_EQ(arena.allocate(2, 0, false), 0u);
    gate.open();
    EXPECT_TRUE(retired.contains(arena.allocate(2)));
    arena.settle();
    EXPECT_EQ(arena.usage().waiting, 0u);
    EXPECT_EQ(arena.usage().used, 402u);
}

TEST(BlockArena, WaitsOnlyWhenFull) {
    std::vector<uint64_t> memory(101);
    Gate gate;
    gate.open();
    BlockArena arena(memory, gate);
    for (int round = 0; round < 50; ++round) {
        uint32_t first = arena.allocate(60);
        ASSERT_NE(first, 0u);
        arena.retire(first, 60);
    }
    arena.settle();
    EXPECT_EQ(arena.usage().used, 0u);
}

TEST(BlockArena, KeepsAReserve) {
    std::vector<uint64_t> memory(101);
    Gate gate;
    gate.open();
    BlockArena arena(memory, gate);
    EXPECT_EQ(arena.allocate(91, 10), 0u);
    EXPECT_NE(arena.allocate(90, 10), 0u);
    EXPECT_EQ(arena.allocate(1, 10), 0u);
    EXPECT_NE(arena.allocate(10), 0u);
}

TEST(BlockArena, ReleasesWhatWasNeverPublishedAtOnce) {
    std::vector<uint64_t> memory(101);
    Gate gate;
    BlockArena arena(memory, gate);
    uint32_t first = arena.allocate(100);
    arena.release(first, 100);
    EXPECT_EQ(arena.allocate(100), first);
}

// The thread hands batch after batch back while the writer goes on.
TEST(BlockArena, LivesOnLittleMemory) {
    std::vector<uint64_t> memory(4096);
    Gate gate;
    gate.open();
    BlockArena arena(memory, gate);
    std::vector<uint32_t> ring(64);
    for (uint32_t at = 0; at < 200000; ++at) {
        uint32_t& slot = ring[at % ring.size()];
        if (slot != 0) {
            arena.retire(slot, 3);
        }
        slot = arena.allocate(3);
        ASSERT_NE(slot, 0u);
    }
}

}  // namespace
}  // namespace splitplane
