// SPDX-License-Identifier: Apache-2.0
//
// Packet-ins that wait for one controller: those of the most urgent class go first, the routers of a class in turns,
// and the interfaces of a router in turns.
//
//     bfd       router 1: eth0 ▪▪    router 7: eth0 ▪▪▪▪▪  eth1 ▪
//     routing   router 1: eth1 ▪
//     …         of too many, the router gives way that has most of the last class, by its interface that has most
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>

#include "p4/v1/p4runtime.pb.h"

extern "C" {
#include "pipeline/layout.h"
}

namespace splitplane {

// What is known of a packet-in that waits.
struct Waiting {
    uint32_t punt_class;
    uint32_t router;     // slots
    uint32_t interface;
};

class PacketQueue {
  public:
    explicit PacketQueue(size_t room) : room_(room) {}

    // Returns the one that is dropped for it, this or another, where there is no room.
    std::optional<Waiting> push(const Waiting& whose, p4::v1::StreamMessageResponse packet);
    // The next; not of an empty queue.
    p4::v1::StreamMessageResponse pop();
    bool empty() const { return waiting_ == 0; }

  private:
    // By slot, those that have some; the turns go round.
    template <typename T>
    struct Turns {
        std::map<uint32_t, T> of;
        uint32_t last = 0;  // whose turn it was

        auto next() {
            const auto turn = of.upper_bound(last);
            return turn == of.end() ? of.begin() : turn;
        }
    };
    struct Router : Turns<std::deque<p4::v1::StreamMessageResponse>> {
        size_t waiting = 0;
    };
    using Class = Turns<Router>;

    // Takes out what gives way to one more; none where that one is itself to be dropped.
    std::optional<Waiting> make_room(const Waiting& whose);

    const size_t room_;
    std::array<Class, SP_PUNT_CLASSES> classes_;
    size_t waiting_ = 0;
};

}  // namespace splitplane
