// SPDX-License-Identifier: Apache-2.0
#include "server/outbox.h"

#include <algorithm>

namespace splitplane {

void Outbox::push(p4::v1::StreamMessageResponse message) {
    queue_.push_back(std::move(message));
    filled_.notify_one();
}

std::optional<Waiting> Outbox::push_packet(const Waiting& whose, p4::v1::StreamMessageResponse message) {
    std::lock_guard guard(mutex_);
    if (closed_) {
        return whose;
    }
    const auto dropped = packets_.push(whose, std::move(message));
    filled_.notify_one();
    return dropped;
}

bool Outbox::push_digest(uint32_t digest_id, p4::v1::P4Data data, size_t most, std::chrono::nanoseconds wait) {
    std::lock_guard guard(mutex_);
    if (closed_ || lists_ >= kLists) {
        return false;
    }
    const bool first = list_.data().empty();
    *list_.add_data() = std::move(data);
    if (const auto due = Clock::now() + wait; first || due < list_due_) {
        list_.set_digest_id(digest_id);
        list_due_ = due;
        filled_.notify_one();
    }
    if (static_cast<size_t>(list_.data_size()) >= most) {
        finish_list();
    }
    return true;
}

void Outbox::finish_list() {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    list_.set_list_id(++last_list_);
    list_.set_timestamp(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
    p4::v1::StreamMessageResponse message;
    message.mutable_digest()->Swap(&list_);
    ++lists_;
    push(std::move(message));
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
    while (!closed_) {
        const bool filling = !list_.data().empty();
        if (filling && Clock::now() >= list_due_) {
            finish_list();
        }
        if (!queue_.empty() || !packets_.empty()) {
            break;
        }
        if (filling) {
            filled_.wait_until(lock, list_due_);
        } else {
            filled_.wait(lock);
        }
    }
    if (closed_) {
        return std::nullopt;
    }
    p4::v1::StreamMessageResponse message;
    if (queue_.empty()) {
        message = packets_.pop();
    } else {
        message = std::move(queue_.front());
        queue_.pop_front();
    }
    lists_ -= message.has_digest();
    errors_ -= message.has_error();
    arbitrations_ -= message.has_arbitration();
    more = !queue_.empty() || !packets_.empty();
    return message;
}

void Outbox::close() {
    std::lock_guard guard(mutex_);
    closed_ = true;
    filled_.notify_all();
}

}  // namespace splitplane
