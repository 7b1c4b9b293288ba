// SPDX-License-Identifier: Apache-2.0
#include "server/arbitration.h"

#include <algorithm>
#include <utility>

namespace splitplane {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kAhead = std::chrono::hours(24);  // clocks of hosts may differ so much
// A clock that shows less is wrong (a host that has none, before it has asked for the time), and nothing is known of
// now: then ids up to the year 2100 have to pass, because those of a controller whose clock is right do.
constexpr milliseconds kRightSince{1'767'225'600'000};  // 2026
constexpr milliseconds kLastWithoutClock{4'102'444'800'000};

}  // namespace

std::string text_of(const ElectionId& election_id) {
    return std::to_string(election_id.high) + "." + std::to_string(election_id.low);
}

Arbitration::Arbitration(uint64_t device_id, size_t max_streams, std::optional<ElectionId> highest, Clock clock)
    : device_id_(device_id), max_streams_(max_streams), clock_(std::move(clock)) {
    if (highest && locks_out(*highest).empty()) {
        highest_ = highest;
    }
}

std::string Arbitration::locks_out(const ElectionId& election_id) const {
    const auto now = std::chrono::duration_cast<milliseconds>(clock_().time_since_epoch());
    const milliseconds last = now < kRightSince ? kLastWithoutClock : now + kAhead;
    // What is in force already locks nobody out any more, also where the clock was set back since.
    const uint64_t known = highest_ ? highest_->high : 0;
    if (election_id.high <= std::max(static_cast<uint64_t>(last.count()), known)) {
        return {};
    }
    return "election id " + text_of(election_id) + " would lock others out: its upper half is a time in milliseconds "
           "since 1970, and may be a day ahead of this host's clock, which shows " + std::to_string(now.count()) +
           "; use a smaller one, or set the clocks";
}

Result Arbitration::check(Stream stream, bool known, const p4::v1::MasterArbitrationUpdate& message,
                          const Controller& election_id) const {
    if (message.device_id() != device_id_) {
        return {known ? Code::kFailedPrecondition : Code::kNotFound,
                "no device " + std::to_string(message.device_id()) + " here, only " + std::to_string(device_id_)};
    }
    const auto& role = message.role();
    if (!default_role(role.name(), role.id()) || role.has_config()) {
        return {known ? Code::kFailedPrecondition : Code::kInvalidArgument,
                "role " + (role.name().empty() ? std::to_string(role.id()) : role.name()) +
                    ": there is only the default role, without a configuration"};
    }
    bool used = election_id && std::any_of(controllers_.begin(), controllers_.end(), [&](const auto& one) {
                    return one.first != stream && one.second == election_id;
                });
    if (used) {
        return {Code::kInvalidArgument, "election id " + text_of(*election_id) + " is another controller's"};
    }
    if (std::string problem = election_id ? locks_out(*election_id) : std::string(); !problem.empty()) {
        return {Code::kInvalidArgument, problem};
    }
    if (!known && controllers_.size() >= max_streams_) {
        return {Code::kResourceExhausted, "there are " + std::to_string(max_streams_) + " controllers already"};
    }
    return {};
}

Result Arbitration::update(Stream stream, const p4::v1::MasterArbitrationUpdate& message,
                           std::vector<Notice>& notices) {
    Controller election_id;
    if (message.has_election_id()) {
        election_id = {message.election_id().high(), message.election_id().low()};
    }
    Result result = check(stream, controllers_.contains(stream), message, election_id);
    if (!result.ok()) {
        return result;
    }
    controllers_[stream] = election_id;
    bool was_primary = primary_ == stream;
    if (election_id && (!highest_ || *election_id >= *highest_)) {
        highest_ = election_id;
        primary_ = stream;
        tell_all(notices);
    } else if (was_primary) {
        primary_.reset();
        tell_all(notices);
    } else {
        notices.push_back(notice(stream));
    }
    return {};
}

void Arbitration::leave(Stream stream, std::vector<Notice>& notices) {
    controllers_.erase(stream);
    if (primary_ == stream) {
        primary_.reset();
        tell_all(notices);
    }
}

bool Arbitration::is_primary(const p4::v1::Uint128& election_id) const {
    if (!primary_) {
        return false;
    }
    return controllers_.at(*primary_) == ElectionId{election_id.high(), election_id.low()};
}

// The new primary is told last.
void Arbitration::tell_all(std::vector<Notice>& notices) const {
    for (const auto& [stream, election_id] : controllers_) {
        if (stream != primary_) {
            notices.push_back(notice(stream));
        }
    }
    if (primary_) {
        notices.push_back(notice(*primary_));
    }
}

Arbitration::Notice Arbitration::notice(Stream stream) const {
    Notice notice{stream, {}};
    notice.update.set_device_id(device_id_);
    if (highest_) {
        notice.update.mutable_election_id()->set_high(highest_->high);
        notice.update.mutable_election_id()->set_low(highest_->low);
    }
    auto& status = *notice.update.mutable_status();
    if (primary_ == stream) {
        status.set_code(static_cast<int>(Code::kOk));
    } else if (primary_) {
        status.set_code(static_cast<int>(Code::kAlreadyExists));
        status.set_message("another controller is primary");
    } else {
        status.set_code(static_cast<int>(Code::kNotFound));
        status.set_message("no controller is primary");
    }
    return notice;
}

}  // namespace splitplane
