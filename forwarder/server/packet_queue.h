// SPDX-License-Identifier: Apache-2.0
//
// Packet-ins that wait for one controller: those of the most urgent class go first, the routers of a class in turns.
//
//     bfd       router 1 ▪▪   router 7 ▪▪▪▪▪
//     routing   router 1 ▪
//     …                                        of too many, the router gives way that has most of the last class
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>

#include "p4/v1/p4runtime.pb.h"

extern "C" {
#include "pipeline/layout.h"
}

namespace splitplane {

class PacketQueue {
  public:
    explicit PacketQueue(size_t room) : room_(room) {}

    // False where one is dropped for it, this or another: what is queued are as many as before.
    bool push(uint32_t punt_class, uint32_t router, p4::v1::StreamMessageResponse packet);
    // The next; not of an empty queue.
    p4::v1::StreamMessageResponse pop();
    bool empty() const { return waiting_ == 0; }

  private:
    struct Class {
        std::map<uint32_t, std::deque<p4::v1::StreamMessageResponse>> routers;  // of those that have some
        uint32_t last = 0;                                                     // whose turn it was
    };

    // Whether there is room for one more of a router, now that one has been dropped or because nothing had to be.
    bool make_room(uint32_t punt_class, uint32_t router);

    const size_t room_;
    std::array<Class, SP_PUNT_CLASSES> classes_;
    size_t waiting_ = 0;
};

}  // namespace splitplane
