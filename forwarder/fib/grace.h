// SPDX-License-Identifier: Apache-2.0
//
// What readers may still hold: retired, and handed back in batches once each is over a grace period.
//
//     retire ─► gathered ─► a batch, which a thread waits for ─► handed back
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace splitplane {

// Whoever knows the readers.
class GracePeriods {
  public:
    virtual ~GracePeriods() = default;
    // Return once every reader that was in the tables at the time of the call has left them. Any thread.
    virtual void synchronize() = 0;
};

// Waits for one grace period after another, so that its owner need not.
class GraceThread {
  public:
    explicit GraceThread(GracePeriods& grace) : grace_(grace) {}
    ~GraceThread();
    GraceThread(const GraceThread&) = delete;
    GraceThread& operator=(const GraceThread&) = delete;

    bool idle() const { return state_.load(std::memory_order_acquire) == State::kIdle; }
    bool passed() const { return state_.load(std::memory_order_acquire) == State::kPassed; }
    // From idle on until it has passed; the first call starts the thread.
    void begin();
    // Wait until what was begun has passed; at once where nothing was.
    void wait();
    // Idle again.
    void end() { state_.store(State::kIdle, std::memory_order_release); }
    // Have the caller itself wait for a grace period.
    void synchronize() { grace_.synchronize(); }

  private:
    enum class State : uint8_t { kIdle, kWaiting, kPassed };

    void run();

    GracePeriods& grace_;
    std::atomic<State> state_{State::kIdle};
    std::mutex mutex_;  // of state_'s changes, for the two conditions
    std::condition_variable changed_;
    bool ending_ = false;
    std::thread thread_;
};

// One thread calls, and from it `free` is called with each item that no reader holds any more.
template <typename Item>
class Retired {
  public:
    Retired(GracePeriods& grace, std::function<void(const Item&)> free) : thread_(grace), free_(std::move(free)) {}

    // No reader that comes now can reach it. What is `large` is worth a grace period alone.
    void retire(const Item& item, bool large = false) {
        gathered_.push_back(item);
        enough_ = enough_ || large || gathered_.size() >= kBatch;
        pump();
    }
    // Free what has passed and send off what has gathered; never waits.
    void pump() {
        if (thread_.passed()) {
            free_passed();
        }
        if (enough_ && thread_.idle()) {
            batch_.swap(gathered_);
            enough_ = false;
            thread_.begin();
        }
    }
    // Wait until everything is free.
    void settle() {
        thread_.wait();
        free_passed();
        if (!gathered_.empty()) {
            thread_.synchronize();
            batch_.swap(gathered_);
            enough_ = false;
            free_passed();
        }
    }
    bool empty() const { return gathered_.empty() && batch_.empty(); }

  private:
    // Small items that are worth a grace period, which takes some ten milliseconds in a kernel.
    static constexpr size_t kBatch = 64;

    void free_passed() {
        for (const Item& item : batch_) {
            free_(item);
        }
        batch_.clear();
        thread_.end();
    }

    std::vector<Item> gathered_;  // since the batch under way began
    std::vector<Item> batch_;
    bool enough_ = false;
    GraceThread thread_;
    std::function<void(const Item&)> free_;
};

}  // namespace splitplane
