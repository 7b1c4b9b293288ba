// SPDX-License-Identifier: Apache-2.0
#include "server/packet_queue.h"

#include <algorithm>

namespace splitplane {

bool PacketQueue::push(uint32_t punt_class, uint32_t router, p4::v1::StreamMessageResponse packet) {
    const bool full = waiting_ >= room_;
    if (full && !make_room(punt_class, router)) {
        return false;
    }
    classes_[punt_class].routers[router].push_back(std::move(packet));
    ++waiting_;
    return !full;
}

bool PacketQueue::make_room(uint32_t punt_class, uint32_t router) {
    const auto last =
        std::find_if(classes_.rbegin(), classes_.rend(), [](const auto& one) { return !one.routers.empty(); });
    if (last == classes_.rend()) {
        return false;
    }
    const auto last_class = static_cast<uint32_t>(classes_.rend() - last - 1);
    if (last_class < punt_class) {
        return false;
    }
    auto& routers = last->routers;
    const auto most = std::max_element(routers.begin(), routers.end(), [](const auto& one, const auto& other) {
        return one.second.size() < other.second.size();
    });
    const auto own = routers.find(router);
    const size_t had = own == routers.end() ? 0 : own->second.size();
    if (last_class == punt_class && had + 1 >= most->second.size()) {
        return false;
    }
    most->second.pop_back();
    if (most->second.empty()) {
        routers.erase(most);
    }
    --waiting_;
    return true;
}

p4::v1::StreamMessageResponse PacketQueue::pop() {
    auto& first = *std::find_if(classes_.begin(), classes_.end(), [](const auto& one) { return !one.routers.empty(); });
    auto turn = first.routers.upper_bound(first.last);
    if (turn == first.routers.end()) {
        turn = first.routers.begin();
    }
    first.last = turn->first;
    auto packet = std::move(turn->second.front());
    turn->second.pop_front();
    if (turn->second.empty()) {
        first.routers.erase(turn);
    }
    --waiting_;
    return packet;
}

}  // namespace splitplane
