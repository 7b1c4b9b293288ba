// SPDX-License-Identifier: Apache-2.0
//
// What waits to be sent on one stream, bounded by kind.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>

#include "p4/v1/p4runtime.pb.h"

namespace splitplane {

class Outbox {
  public:
    explicit Outbox(size_t packet_ins) : room_(packet_ins) {}

    // False, and not queued, where too many wait.
    bool push_packet(p4::v1::StreamMessageResponse message);
    // The same of a sample, for which there is a quarter of the room, so that punts find some.
    bool push_sample(p4::v1::StreamMessageResponse message);
    bool push_error(p4::v1::StreamMessageResponse message);
    // Always queued: of many that wait, the oldest goes, because only the last is true.
    void push_arbitration(p4::v1::StreamMessageResponse message);

    // The next message, waiting for it; none once closed. `more` tells whether another one waits.
    std::optional<p4::v1::StreamMessageResponse> pop(bool& more);
    void close();

  private:
    static constexpr size_t kErrors = 64, kArbitrations = 64;

    void push(p4::v1::StreamMessageResponse message);
    bool push_packet_within(size_t room, p4::v1::StreamMessageResponse message);

    const size_t room_;
    std::mutex mutex_;
    std::condition_variable filled_;
    std::deque<p4::v1::StreamMessageResponse> queue_;
    size_t packets_ = 0, errors_ = 0, arbitrations_ = 0;
    bool closed_ = false;
};

}  // namespace splitplane
