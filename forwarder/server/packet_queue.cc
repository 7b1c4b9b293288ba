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
    Router& router = classes_[whose.punt_class].of[whose.router];
    router.of[whose.interface].push_back(std::move(packet));
    ++router.waiting;
    ++waiting_;
    return dropped;
}

std::optional<Waiting> PacketQueue::make_room(const Waiting& whose) {
    const auto last = std::find_if(classes_.rbegin(), classes_.rend(), [](const auto& one) { return !one.of.empty(); });
    if (last == classes_.rend()) {
        return std::nullopt;
    }
    const auto last_class = static_cast<uint32_t>(classes_.rend() - last - 1);
    if (last_class < whose.punt_class) {
        return std::nullopt;
    }
    const auto router = std::max_element(last->of.begin(), last->of.end(), [](const auto& one, const auto& other) {
        return one.second.waiting < other.second.waiting;
    });
    auto& interfaces = router->second.of;
    const auto interface =
        std::max_element(interfaces.begin(), interfaces.end(), [](const auto& one, const auto& other) {
            return one.second.size() < other.second.size();
        });
    // Whoever would have as many as who gives way is itself one too many.
    if (last_class == whose.punt_class && router->first == whose.router) {
        const auto own = interfaces.find(whose.interface);
        if ((own == interfaces.end() ? 0 : own->second.size()) + 1 >= interface->second.size()) {
            return std::nullopt;
        }
    } else if (last_class == whose.punt_class) {
        const auto own = last->of.find(whose.router);
        if ((own == last->of.end() ? 0 : own->second.waiting) + 1 >= router->second.waiting) {
            return std::nullopt;
        }
    }
    const Waiting dropped{last_class, router->first, interface->first};
    interface->second.pop_back();
    if (interface->second.empty()) {
        interfaces.erase(interface);
    }
    if (--router->second.waiting == 0) {
        last->of.erase(router);
    }
    --waiting_;
    return dropped;
}

p4::v1::StreamMessageResponse PacketQueue::pop() {
    Class& first = *std::find_if(classes_.begin(), classes_.end(), [](const auto& one) { return !one.of.empty(); });
    const auto router = first.next();
    const auto interface = router->second.next();
    first.last = router->first;
    router->second.last = interface->first;
    auto packet = std::move(interface->second.front());
    interface->second.pop_front();
    if (interface->second.empty()) {
        router->second.of.erase(interface);
    }
    if (--router->second.waiting == 0) {
        first.of.erase(router);
    }
    --waiting_;
    return packet;
}

}  // namespace splitplane
