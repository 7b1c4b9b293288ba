// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer: what is said on P4Runtime's stream, by a primary and by a backup, and what is punted to it. A packet-out
// is sent as it came or refused under one count; a punt arrives as it was, or is dropped under one count. Arbitration
// is left out: what it decides would outlive the input.
//
//     input: mode | of a punt: reason, class, router, router interface (four octets), frame
//            mode | of a packet-out: router interface (four octets), frame
//            mode | a StreamMessageRequest
#include <grpcpp/grpcpp.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "engine/memory_engine.h"
#include "server/encoding.h"
#include "server/service.h"

namespace {

using namespace splitplane;

enum Mode : uint8_t { kPunt, kPacketOut, kMessage, kModes };
constexpr uint8_t kFromBackup = 0x80;
constexpr size_t kHead = 8;
constexpr uint32_t kInterfaces = 4;  // ids 1 to 4: port 1 and 2, untagged and with a tag; 4 leads to no port

void require(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "broken: %s\n", what);
    std::abort();
}

class Grace : public GracePeriods {
  public:
    void synchronize() override {}
};

// A device with a few router interfaces, a primary and a backup.
struct Device {
    MemoryEngine engine{Capacity{.words = 1u << 14, .members = 1u << 12}, 1};
    Grace grace;
    Tables tables{engine.arrays(), grace};
    Service service{tables, engine, {.device_id = 1, .queued_packet_ins = 2}};
    Arbitration::Stream primary = 0, backup = 0;
    std::shared_ptr<Outbox> to_primary = service.enter(primary), to_backup = service.enter(backup);

    Device() {
        engine.activate({{1, "one"}, {2, "two"}});
        for (uint32_t id = 1; id <= kInterfaces; ++id) {
            const uint64_t port = id == kInterfaces ? 3 : 1 + id % 2;
            RowWrite row{.action = Action::kSetPort, .params = {port, id % 3 * 100, 1500}};
            require(tables.write_row(Op::kInsert, Table::kRouterInterface, {id, 0}, row).ok(), "router interface");
        }
        tables.links().set_speed(1, LinkShares::kLeast);  // of which there is too little for what comes
        engine.arrays().link_modes[1] |= SP_LINK_CONTENDED;
        p4::v1::StreamMessageRequest message;
        for (const auto stream : {primary, backup}) {
            message.mutable_arbitration()->set_device_id(1);
            message.mutable_arbitration()->mutable_election_id()->set_low(stream == primary ? 2 : 1);
            require(service.serve(stream, message, outbox(stream)).ok(), "arbitration");
        }
        while (pop(primary).has_arbitration() && said_) {
        }
        while (pop(backup).has_arbitration() && said_) {
        }
        seen_ = service.statistics();
    }

    Outbox& outbox(Arbitration::Stream stream) { return stream == primary ? *to_primary : *to_backup; }

    // What waits for a stream: a marker goes behind it, so that nothing is waited for.
    p4::v1::StreamMessageResponse pop(Arbitration::Stream stream) {
        bool more = false;
        if (!marked_[stream]) {
            p4::v1::StreamMessageResponse marker;
            marker.mutable_error()->set_canonical_code(kMarker);
            require(outbox(stream).push_error(marker), "room for a marker");
            marked_[stream] = true;
        }
        auto message = outbox(stream).pop(more);
        require(message.has_value(), "an open outbox");
        said_ = message->error().canonical_code() != kMarker;
        if (!said_) marked_[stream] = false;
        return *message;
    }
    bool said() const { return said_; }

    // What is counted now, and what was at the last look: to count takes longer than what is counted.
    ServerStatistics look(ServerStatistics& before) {
        before = seen_;
        seen_ = service.statistics();
        return seen_;
    }

  private:
    static constexpr int kMarker = -1;
    ServerStatistics seen_;
    bool said_ = false;
    std::map<Arbitration::Stream, bool> marked_;
};

uint64_t number_of(const uint8_t* octets) {
    return uint64_t{octets[0]} << 24 | octets[1] << 16 | octets[2] << 8 | octets[3];
}

void check_punt(Device& device, const uint8_t* octets, size_t size) {
    if (size < kHead) return;
    const Punt punt{static_cast<uint32_t>(number_of(octets + 3)), static_cast<uint8_t>(octets[0] % (SP_SAMPLE + 1)),
                    static_cast<uint8_t>(octets[1] % SP_PUNT_CLASSES), octets[2], octets[6],
                    {octets + kHead, size - kHead}};
    device.service.punt(punt);
    ServerStatistics before;
    const auto after = device.look(before);
    if (punt.reason == SP_SAMPLE) {
        return require(after.samples_dropped == before.samples_dropped + 1, "a sample that nobody asked for");
    }
    require(after.packet_ins == before.packet_ins + 1, "a punt is queued");
    // Errors come first, and so does the marker.
    device.pop(device.primary);
    bool more = false;
    const auto message = device.to_primary->pop(more);
    require(message && message->has_packet() && !more, "a packet-in");
    const auto& packet = message->packet();
    require(packet.payload().size() == punt.frame.size() &&
                std::equal(punt.frame.begin(), punt.frame.end(), packet.payload().begin(),
                           [](uint8_t one, char other) { return one == static_cast<uint8_t>(other); }),
            "frame of a packet-in");
    std::string interface, reason;
    encode_value(punt.router_interface_id, interface);
    encode_value(punt.reason, reason);
    require(packet.metadata_size() == 2 && packet.metadata(0).value() == interface, "interface of a packet-in");
    require(packet.metadata(1).value() == reason, "reason of a packet-in");
    p4::v1::StreamMessageResponse again;
    require(again.ParseFromString(message->SerializeAsString()) && again.has_packet(), "octets of a packet-in");
}

void check_message(Device& device, Arbitration::Stream stream, const p4::v1::StreamMessageRequest& message) {
    if (message.has_arbitration()) return;
    require(device.service.serve(stream, message, device.outbox(stream)).ok(), "only arbitration ends a stream");
    ServerStatistics before;
    const auto after = device.look(before);
    const uint64_t sent = after.packet_outs - before.packet_outs,
                   refused = after.packet_outs_refused - before.packet_outs_refused,
                   no_port = after.packet_outs_no_port - before.packet_outs_no_port,
                   over = after.packet_outs_over_share - before.packet_outs_over_share;
    require(sent + refused + no_port + over == message.has_packet(), "a packet-out comes to one end");
    const auto frames = device.engine.sent();
    require(frames.size() == sent, "what counts as sent is sent");
    require(sent == 0 || stream == device.primary, "only the primary sends");
    if (sent != 0) {
        const auto& [port, vlan, frame] = frames[0];
        const std::string& payload = message.packet().payload();
        require(frame.size() >= 14 && std::string(frame.begin(), frame.end()) == payload, "a packet-out as it came");
        require((port == 1 || port == 2) && vlan <= 200, "where a packet-out leaves");
    }
    const auto answer = device.pop(stream);
    const bool wrong = refused != 0 || (!message.has_packet() && device.said());
    require(device.said() == wrong && (!wrong || answer.has_error()), "what is refused is told");
    if (device.said()) device.pop(stream);
    require(!device.said(), "and told once");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* octets, size_t size) {
    static Device device;
    if (size < 6) return 0;
    const auto stream = octets[0] & kFromBackup ? device.backup : device.primary;
    p4::v1::StreamMessageRequest message;
    switch ((octets[0] & ~kFromBackup) % kModes) {
        case kPunt: check_punt(device, octets + 1, size - 1); break;
        case kPacketOut: {
            auto* packet = message.mutable_packet();
            packet->set_payload(octets + 5, size - 5);
            packet->add_metadata()->set_metadata_id(kPacketOutInterface);
            encode_value(number_of(octets + 1) % (2 * kInterfaces), *packet->mutable_metadata(0)->mutable_value());
            check_message(device, stream, message);
            break;
        }
        default:
            if (message.ParseFromArray(octets + 1, static_cast<int>(size - 1))) check_message(device, stream, message);
    }
    return 0;
}
