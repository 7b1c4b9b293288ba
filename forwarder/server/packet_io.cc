// SPDX-License-Identifier: Apache-2.0
//
// What comes and goes on streams: arbitration and packets.
#include <algorithm>
#include <chrono>

#include "server/decoding.h"
#include "server/encoding.h"
#include "server/samples.h"
#include "server/service.h"

extern "C" {
#include "pipeline/packet_out.h"
}

namespace splitplane {

namespace {

constexpr size_t kLeastFrame = 14, kLongestFrame = 65536;

// Of a list of digests, whatever the controller allows; and as long as a moment that can be reckoned with.
constexpr size_t kMostListed = 1000;
constexpr std::chrono::hours kLongestWait{1};
constexpr uint64_t kTimestampMask = (uint64_t{1} << kSampleTimestampBits) - 1;

// The engine's clock, CLOCK_MONOTONIC.
uint64_t monotonic_ns() {
    const std::chrono::nanoseconds since = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<uint64_t>(since.count());
}

p4::v1::StreamMessageResponse stream_error(const Result& result) {
    p4::v1::StreamMessageResponse response;
    auto& error = *response.mutable_error();
    error.set_canonical_code(static_cast<int>(result.code));
    error.set_message(result.text);
    return response;
}

}  // namespace

std::shared_ptr<Outbox> Service::enter(Arbitration::Stream& id) {
    auto outbox = std::make_shared<Outbox>(options_.queued_packet_ins);
    std::lock_guard guard(arbitration_mutex_);
    id = ++last_stream_;
    outboxes_[id] = outbox;
    return outbox;
}

grpc::Status Service::serve(Arbitration::Stream id, const p4::v1::StreamMessageRequest& message, Outbox& outbox) {
    p4::v1::StreamMessageResponse response;
    switch (message.update_case()) {
        case p4::v1::StreamMessageRequest::kArbitration:
            return arbitrate(id, message.arbitration());
        case p4::v1::StreamMessageRequest::kPacket: {
            Result result = send_packet(id, message.packet());
            if (result.ok()) {
                return {};
            }
            count([](auto& statistics) { ++statistics.packet_outs_refused; });
            response = stream_error(result);
            *response.mutable_error()->mutable_packet_out()->mutable_packet_out()->mutable_metadata() =
                message.packet().metadata();
            break;
        }
        case p4::v1::StreamMessageRequest::kDigestAck: {
            Result result = check_digest(schema_, message.digest_ack().digest_id());
            if (result.ok()) {
                return {};  // nothing waits for it
            }
            response = stream_error(result);
            *response.mutable_error()->mutable_digest_list_ack()->mutable_digest_list_ack() = message.digest_ack();
            break;
        }
        default:
            response = stream_error({Code::kInvalidArgument, "no such message"});
            response.mutable_error()->mutable_other();
            break;
    }
    if (!outbox.push_error(std::move(response))) {
        count([](auto& statistics) { ++statistics.stream_errors_dropped; });
    }
    return {};
}

// -- arbitration -----------------------------------------------------------------------------------------------------
// With the tables' lock: whatever the primary before has begun to write is finished first.
grpc::Status Service::arbitrate(Arbitration::Stream id, const p4::v1::MasterArbitrationUpdate& message) {
    auto lock = tables_.lock();
    std::lock_guard guard(arbitration_mutex_);
    auto before = arbitration_.primary();
    auto highest = arbitration_.highest();
    std::vector<Arbitration::Notice> notices;
    Result result = arbitration_.update(id, message, notices);
    if (!result.ok()) {
        return {static_cast<grpc::StatusCode>(result.code), result.text};
    }
    if (arbitration_.highest() != highest) {
        tables_.set_election(*arbitration_.highest());
        tables_.commit();
    }
    if (arbitration_.primary() != before) {
        log(arbitration_.primary() ? "a controller is primary, election id " + text_of(*arbitration_.highest())
                                   : "the primary controller has stepped back");
    }
    tell(notices);
    return {};
}

void Service::leave(Arbitration::Stream id) {
    auto lock = tables_.lock();
    std::lock_guard guard(arbitration_mutex_);
    bool was_primary = arbitration_.primary() == id;
    outboxes_.erase(id);
    std::vector<Arbitration::Notice> notices;
    arbitration_.leave(id, notices);
    if (was_primary) {
        log("the primary controller has gone");
    }
    tell(notices);
}

void Service::tell(const std::vector<Arbitration::Notice>& notices) {
    for (const auto& notice : notices) {
        auto outbox = outboxes_.find(notice.stream);
        if (outbox != outboxes_.end()) {
            p4::v1::StreamMessageResponse response;
            *response.mutable_arbitration() = notice.update;
            outbox->second->push_arbitration(std::move(response));
        }
    }
}

// -- packets ---------------------------------------------------------------------------------------------------------
void Service::punt(const Punt& punt) {
    std::shared_ptr<Outbox> outbox;
    {
        std::lock_guard guard(arbitration_mutex_);
        if (auto primary = arbitration_.primary()) {
            outbox = outboxes_.at(*primary);
        }
    }
    if (punt.reason == SP_SAMPLE) {
        if (tables_.counts_routes()) {
            if (const auto packet = routed_packet(punt.router, punt.frame)) {
                tables_.count_routed(*packet);
            }
            if (!tables_.samples()) {
                return;  // nobody wants to see it
            }
        }
        bool queued = outbox && push_sample(punt, *outbox);
        count([&](auto& statistics) { ++(queued ? statistics.samples : statistics.samples_dropped); });
        return;
    }
    const Waiting whose{punt.punt_class, punt.router, punt.interface};
    if (!outbox) {
        count([](auto& statistics) { ++statistics.packet_ins_no_primary; });
        count_dropped(whose);
        return;
    }
    p4::v1::StreamMessageResponse response;
    auto& packet = *response.mutable_packet();
    packet.set_payload(punt.frame.data(), punt.frame.size());
    auto* interface = packet.add_metadata();
    interface->set_metadata_id(kPacketInInterface);
    encode_value(punt.router_interface_id, *interface->mutable_value());
    auto* reason = packet.add_metadata();
    reason->set_metadata_id(kPacketInReason);
    encode_value(punt.reason, *reason->mutable_value());
    const auto dropped = outbox->push_packet(whose, std::move(response));
    count([&](auto& statistics) { ++(dropped ? statistics.packet_ins_queue_full : statistics.packet_ins); });
    if (dropped) {
        count_dropped(*dropped);
    }
}

void Service::count_dropped(const Waiting& packet) {
    tables_.count_punt_drop(packet.interface, SP_PLACE_OUTBOX, packet.punt_class);
}

bool Service::push_sample(const Punt& sample, Outbox& outbox) {
    const auto digest = tables_.samples();
    p4::v1::P4Data data;
    if (!digest || !encode_sample(sample.router_interface_id, sample.frame, sample_time(), data)) {
        return false;
    }
    const auto wanted = static_cast<size_t>(digest->max_list_size);
    const size_t most = wanted == 0 ? kMostListed : std::min(wanted, kMostListed);
    const auto wait = std::min<std::chrono::nanoseconds>(std::chrono::nanoseconds(digest->max_timeout_ns), kLongestWait);
    return outbox.push_digest(schema_.sample_digest_id(), std::move(data), wait.count() == 0 ? 1 : most, wait);
}

// In microseconds, and never the same twice.
uint64_t Service::sample_time() {
    const uint64_t now = monotonic_ns() / 1000;
    uint64_t last = last_sample_time_;
    uint64_t next = 0;
    do {
        next = std::max(now, last + 1);
    } while (!last_sample_time_.compare_exchange_weak(last, next));
    return next & kTimestampMask;
}

// Without the tables' lock: BFD does not wait for a million routes.
Result Service::send_packet(Arbitration::Stream id, const p4::v1::PacketOut& packet) {
    {
        std::lock_guard guard(arbitration_mutex_);
        if (arbitration_.primary() != id) {
            return {Code::kPermissionDenied, "packet-out: not the primary controller"};
        }
    }
    static const FieldSchema field{kPacketOutInterface, kInterfaceIdBits, "router_interface_id"};
    if (packet.metadata_size() != 1 || packet.metadata(0).metadata_id() != field.id) {
        return {Code::kInvalidArgument, "packet-out: its metadata is router_interface_id and nothing else"};
    }
    uint64_t interface_id = 0;
    Result result = decode_value(field, packet.metadata(0).value(), interface_id);
    if (!result.ok()) {
        return {Code::kInvalidArgument, "packet-out: " + result.text};
    }
    const std::string& frame = packet.payload();
    if (frame.size() < kLeastFrame || frame.size() > kLongestFrame) {
        return {Code::kInvalidArgument, "packet-out: " + std::to_string(frame.size()) + " octets are no frame"};
    }
    const auto way = tables_.way_out(static_cast<uint32_t>(interface_id));
    if (!way) {
        return {Code::kNotFound, "packet-out: no router interface " + std::to_string(interface_id)};
    }
    const std::span octets(reinterpret_cast<const uint8_t*>(frame.data()), frame.size());
    if (!sp_lets_out(&engine_.arrays(), way->port, way->vlan, octets.data(), static_cast<sp_u32>(octets.size()),
                     monotonic_ns())) {
        count([](auto& statistics) { ++statistics.packet_outs_over_share; });
        return {};
    }
    bool sent = engine_.transmit(way->port, way->vlan, octets);
    count([&](auto& statistics) { ++(sent ? statistics.packet_outs : statistics.packet_outs_no_port); });
    return {};
}

}  // namespace splitplane
