// SPDX-License-Identifier: Apache-2.0
#include "fib/grace.h"

namespace splitplane {

GraceThread::~GraceThread() {
    if (thread_.joinable()) {
        {
            std::lock_guard lock(mutex_);
            ending_ = true;
        }
        changed_.notify_all();
        thread_.join();
    }
}

void GraceThread::begin() {
    {
        std::lock_guard lock(mutex_);
        state_.store(State::kWaiting, std::memory_order_release);
    }
    if (thread_.joinable()) {
        changed_.notify_all();
    } else {
        thread_ = std::thread([this] { run(); });
    }
}

void GraceThread::wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return state_.load(std::memory_order_acquire) != State::kWaiting; });
}

void GraceThread::run() {
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

}  // namespace splitplane
