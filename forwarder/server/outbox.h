// SPDX-License-Identifier: Apache-2.0
//
// What waits to be sent on one stream, bounded by kind. Packet-ins come after the rest, which is little.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>

#include "p4/v1/p4runtime.pb.h"
#include "server/packet_queue.h"

namespace splitplane {

class Outbox {
  public:
    explicit Outbox(size_t packet_ins) : packets_(packet_ins) {}

    // Returns the one that is dropped where too many wait (PacketQueue).
    std::optional<Waiting> push_packet(const Waiting& whose, p4::v1::StreamMessageResponse message);
    // Joins a list of digests, which is sent when it is as long as it may be, or the first of it has waited long enough
    // (P4Runtime 1.4, section 9.8). False, and not sent, where too many lists wait.
    bool push_digest(uint32_t digest_id, p4::v1::P4Data data, size_t most, std::chrono::nanoseconds wait);
    bool push_error(p4::v1::StreamMessageResponse message);
    // Always queued: of many that wait, the oldest goes, because only the last is true.
    void push_arbitration(p4::v1::StreamMessageResponse message);

    // The next message, waiting for it; none once closed. `more` tells whether another one waits.
    std::optional<p4::v1::StreamMessageResponse> pop(bool& more);
    void close();

  private:
    using Clock = std::chrono::steady_clock;
    static constexpr size_t kErrors = 64, kArbitrations = 64, kLists = 64;

    void push(p4::v1::StreamMessageResponse message);
    void finish_list();

    std::mutex mutex_;
    std::condition_variable filled_;
    std::deque<p4::v1::StreamMessageResponse> queue_;
    PacketQueue packets_;
    p4::v1::DigestList list_;  // that is being filled
    Clock::time_point list_due_;
    uint64_t last_list_ = 0;
    size_t lists_ = 0, errors_ = 0, arbitrations_ = 0;
    bool closed_ = false;
};

}  // namespace splitplane
