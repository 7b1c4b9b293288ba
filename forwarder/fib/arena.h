// SPDX-License-Identifier: Apache-2.0
//
// Blocks of an array that readers walk without locks: given out, published, unpublished, and used again only when no
// reader can still be in them.
//
//     allocate ─► written ─► published ─► unpublished, retire ─► a grace period ─► free
//                    └─► release (never published) ─────────────────────────────────┘
#pragma once

#include <cstdint>
#include <span>

#include "fib/free_blocks.h"
#include "fib/grace.h"

namespace splitplane {

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

    FreeBlocks free_;
    uint32_t waiting_units_ = 0;
    Retired<Block> retired_;
};

}  // namespace splitplane
