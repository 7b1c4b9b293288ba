// SPDX-License-Identifier: Apache-2.0
#include "server/packet_queue.h"

#include <algorithm>

namespace splitplane {

std::optional<Waiting> PacketQueue::push(const Waiting& whose, p4::v1::StreamMessageResponse packet) {
    std::optional<Waiting> dropped;
    if (waiting_ >= room_) {
        dropped = make_room(whose);
        if (!dropped) {
            return whose;
        }
    }
    classes_[whose.punt_class].routers[whose.router].push_back({whose.interface, std::move(packet)});
    ++waiting_;
    return dropped;
}

std::optional<Waiting> PacketQueue::make_room(const Waiting& whose) {
    const auto last =
        std::find_if(classes_.rbegin(), classes_.rend(), [](const auto& one) { return !one.routers.empty(); });
    if (last == classes_.rend()) {
        return std::nullopt;
    }
    const auto last_class = static_cast<uint32_t>(classes_.rend() - last - 1);
    if (last_class < whose.punt_class) {
        return std::nullopt;
    }
    auto& routers = last->routers;
    const auto most = std::max_element(routers.begin(), routers.end(), [](const auto& one, const auto& other) {
        return one.second.size() < other.second.size();
    });
    const auto own = routers.find(whose.router);
    const size_t had = own == routers.end() ? 0 : own->second.size();
    if (last_class == whose.punt_class && had + 1 >= most->second.size()) {
        return std::nullopt;
    }
    const Waiting dropped{last_class, most->first, most->second.back().interface};
    most->second.pop_back();
    if (most->second.empty()) {
        routers.erase(most);
    }
    --waiting_;
    return dropped;
}

p4::v1::StreamMessageResponse PacketQueue::pop() {
    auto& first = *std::find_if(classes_.begin(), classes_.end(), [](const auto& one) { return !one.routers.empty(); });
    auto turn = first.routers.upper_bound(first.last);
    if (turn == first.routers.end()) {
        turn = first.routers.begin();
    }
    first.last = turn->first;
    auto packet = std::move(turn->second.front().message);
    turn->second.pop_front();
    if (turn->second.empty()) {
        first.routers.erase(turn);
    }
    --waiting_;
    return packet;
}

}  // namespace splitplane
