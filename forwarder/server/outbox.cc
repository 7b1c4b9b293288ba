// SPDX-License-Identifier: Apache-2.0
#include "server/outbox.h"

#include <algorithm>

namespace splitplane {

void Outbox::push(p4::v1::StreamMessageResponse message) {
    queue_.push_back(std::move(message));
    filled_.notify_one();
}

bool Outbox::push_packet(p4::v1::StreamMessageResponse message) {
    return push_packet_within(room_, std::move(message));
}

bool Outbox::push_sample(p4::v1::StreamMessageResponse message) {
    return push_packet_within(room_ / 4, std::move(message));
}

bool Outbox::push_packet_within(size_t room, p4::v1::StreamMessageResponse message) {
    std::lock_guard guard(mutex_);
    if (closed_ || packets_ >= room) {
        return false;
    }
    ++packets_;
    push(std::move(message));
    return true;
}

bool Outbox::push_error(p4::v1::StreamMessageResponse message) {
    std::lock_guard guard(mutex_);
    if (closed_ || errors_ >= kErrors) {
        return false;
    }
    ++errors_;
    push(std::move(message));
    return true;
}

void Outbox::push_arbitration(p4::v1::StreamMessageResponse message) {
    std::lock_guard guard(mutex_);
    if (closed_) {
        return;
    }
    if (arbitrations_ == kArbitrations) {
        queue_.erase(std::find_if(queue_.begin(), queue_.end(), [](const auto& one) { return one.has_arbitration(); }));
        --arbitrations_;
    }
    ++arbitrations_;
    push(std::move(message));
}

std::optional<p4::v1::StreamMessageResponse> Outbox::pop(bool& more) {
    std::unique_lock lock(mutex_);
    filled_.wait(lock, [this] { return closed_ || !queue_.empty(); });
    if (closed_) {
        return std::nullopt;
    }
    auto message = std::move(queue_.front());
    queue_.pop_front();
    packets_ -= message.has_packet();
    errors_ -= message.has_error();
    arbitrations_ -= message.has_arbitration();
    more = !queue_.empty();
    return message;
}

void Outbox::close() {
    std::lock_guard guard(mutex_);
    closed_ = true;
    filled_.notify_all();
}

}  // namespace splitplane
