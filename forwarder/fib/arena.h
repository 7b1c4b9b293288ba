// SPDX-License-Identifier: Apache-2.0
//
// Blocks of an array that readers walk without locks: given out, published, unpublished, and used again only when no
// reader can still be in them.
//
//     allocate ─► written ─► published ─► unpublished, retire ─► a grace period ─► free
//                    └─► release (never published) ─────────────────────────────────┘
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "fib/free_blocks.h"

namespace splitplane {

// Whoever knows the readers.
class GracePeriods {
  public:
    virtual ~GracePeriods() = default;
    // Return once every reader that was in the tables at the time of the call has left them. Any thread.
    virtual void synchronize() = 0;
};

// One writer calls; a thread of the arena's own waits for grace periods, and the writer only where no room is left
// otherwise. A unit is 8 octets; unit 0 is never given out.
class BlockArena {
  public:
    struct Usage {
        uint32_t units;      // all of them
        uint32_t used;       // given out
        uint32_t waiting;    // retired, for a grace period
        uint32_t peak;       // the highest unit that was ever given out
    };

    // The last `kept` units of each chunk of `chunk` units are never given out.
    BlockArena(std::span<uint64_t> memory, GracePeriods& grace, uint32_t chunk = UINT32_MAX, uint32_t kept = 0);
    ~BlockArena();
    BlockArena(const BlockArena&) = delete;
    BlockArena& operator=(const BlockArena&) = delete;

    // The first unit of a block of `units`, or 0: no room, of which the last `reserve` units do not count. The block's
    // octets are those of whoever had it before. Where it may not wait, what is retired is not counted on.
    uint32_t allocate(uint32_t units, uint32_t reserve = 0, bool may_wait = true);
    // Readers that come now cannot reach the block.
    void retire(uint32_t first, uint32_t units);
    // No reader could ever reach it.
    void release(uint32_t first, uint32_t units);
    // Wait until everything retired is free.
    void settle();

    Usage usage() const;

  private:
    struct Block {
        uint32_t first;
        uint32_t units;
    };
    enum class State : uint8_t { kIdle, kWaiting, kPassed };

    void pump();
    void free_passed();
    void wait_for_grace_periods();

    FreeBlocks free_;
    GracePeriods& grace_;
    uint32_t waiting_units_ = 0;
    std::vector<Block> retired_;  // since the batch under way began
    std::vector<Block> batch_;    // the thread's while kWaiting, else the writer's
    std::atomic<State> state_{State::kIdle};
    std::mutex mutex_;            // of state_'s changes, for the two conditions
    std::condition_variable changed_;
    bool ending_ = false;
    std::thread thread_;          // started with the first batch
};

}  // namespace splitplane
