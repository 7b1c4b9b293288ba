// SPDX-License-Identifier: Apache-2.0
#include "fib/arena.h"

#include <algorithm>

namespace splitplane {

namespace {

// Blocks that are worth a grace period of their own, which takes some ten milliseconds in a kernel.
constexpr size_t kBatch = 64;

}  // namespace

BlockArena::BlockArena(std::span<uint64_t> memory, GracePeriods& grace, uint32_t chunk, uint32_t kept)
    : free_(memory, chunk, kept), grace_(grace) {}

BlockArena::~BlockArena() {
    if (thread_.joinable()) {
        {
            std::lock_guard lock(mutex_);
            ending_ = true;
        }
        changed_.notify_all();
        thread_.join();
    }
}

uint32_t BlockArena::allocate(uint32_t units, uint32_t reserve, bool may_wait) {
    if (state_.load(std::memory_order_acquire) == State::kPassed) {
        pump();
    }
    auto take = [&] { return free_.free_units() < uint64_t{units} + reserve ? 0 : free_.allocate(units); };
    uint32_t first = take();
    if (first == 0 && may_wait && waiting_units_ > 0) {
        settle();
        first = take();
    }
    return first;
}

void BlockArena::retire(uint32_t first, uint32_t units) {
    retired_.push_back({first, units});
    waiting_units_ += units;
    if (retired_.size() >= kBatch) {
        pump();
    }
}

void BlockArena::release(uint32_t first, uint32_t units) { free_.free(first, units); }

// Free what has passed and send off what has gathered; never waits.
void BlockArena::pump() {
    State state = state_.load(std::memory_order_acquire);
    if (state == State::kPassed) {
        free_passed();
        state = State::kIdle;
    }
    if (state == State::kIdle && retired_.size() >= kBatch) {
        batch_.swap(retired_);
        {
            std::lock_guard lock(mutex_);
            state_.store(State::kWaiting, std::memory_order_release);
        }
        if (thread_.joinable()) {
            changed_.notify_all();
        } else {
            thread_ = std::thread([this] { wait_for_grace_periods(); });
        }
    }
}

void BlockArena::free_passed() {
    for (const Block& block : batch_) {
        free_.free(block.first, block.units);
        waiting_units_ -= block.units;
    }
    batch_.clear();
    state_.store(State::kIdle, std::memory_order_release);
}

void BlockArena::settle() {
    if (state_.load(std::memory_order_acquire) == State::kWaiting) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return state_.load(std::memory_order_acquire) == State::kPassed; });
    }
    if (state_.load(std::memory_order_acquire) == State::kPassed) {
        free_passed();
    }
    if (!retired_.empty()) {
        grace_.synchronize();
        batch_.swap(retired_);
        free_passed();
    }
}

void BlockArena::wait_for_grace_periods() {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [this] { return ending_ || state_.load(std::memory_order_acquire) == State::kWaiting; });
        if (ending_) {
            return;
        }
        lock.unlock();
        grace_.synchronize();
        lock.lock();
        state_.store(State::kPassed, std::memory_order_release);
        changed_.notify_all();
    }
}

BlockArena::Usage BlockArena::usage() const {
    return {free_.units(), free_.capacity() - free_.free_units() - waiting_units_, waiting_units_, free_.peak()};
}

}  // namespace splitplane
