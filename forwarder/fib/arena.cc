// SPDX-License-Identifier: Apache-2.0
#include "fib/arena.h"

namespace splitplane {

namespace {

constexpr uint32_t kLarge = 512;  // units of a block that is not kept waiting for others

}  // namespace

BlockArena::BlockArena(std::span<uint64_t> memory, GracePeriods& grace, uint32_t chunk, uint32_t kept)
    : free_(memory, chunk, kept), retired_(grace, [this](const Block& block) {
          free_.free(block.first, block.units);
          waiting_units_ -= block.units;
      }) {}

uint32_t BlockArena::allocate(uint32_t units, uint32_t reserve, bool may_wait) {
    retired_.pump();
    auto take = [&] { return free_.free_units() < uint64_t{units} + reserve ? 0 : free_.allocate(units); };
    uint32_t first = take();
    if (first == 0 && may_wait && waiting_units_ > 0) {
        settle();
        first = take();
    }
    return first;
}

void BlockArena::retire(uint32_t first, uint32_t units) {
    waiting_units_ += units;
    retired_.retire({first, units}, units >= kLarge);
}

void BlockArena::release(uint32_t first, uint32_t units) { free_.free(first, units); }

void BlockArena::settle() { retired_.settle(); }

BlockArena::Usage BlockArena::usage() const {
    return {free_.units(), free_.capacity() - free_.free_units() - waiting_units_, waiting_units_, free_.peak()};
}

}  // namespace splitplane
