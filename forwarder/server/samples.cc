// SPDX-License-Identifier: Apache-2.0
#include "server/samples.h"

#include <algorithm>

#include "server/encoding.h"

namespace splitplane {

namespace {

constexpr size_t kEtherType = 12, kIp = 14;
constexpr uint16_t kIpv4 = 0x0800, kIpv6 = 0x86dd;

// Where an IP header has its destination, and its length, to which so many octets are added.
struct Version {
    uint8_t number;
    Family family;
    size_t at, octets;
    size_t length_at;
    uint32_t length_more;
};

const Version* version_of(std::span<const uint8_t> head) {
    static constexpr Version kVersion4{4, Family::kIpv4, kIp + 16, 4, kIp + 2, kIp};
    static constexpr Version kVersion6{6, Family::kIpv6, kIp + 24, 16, kIp + 4, kIp + 40};
    if (head.size() < kIp) {
        return nullptr;
    }
    const auto ether_type = static_cast<uint16_t>(head[kEtherType] << 8 | head[kEtherType + 1]);
    const Version* version = ether_type == kIpv4 ? &kVersion4 : ether_type == kIpv6 ? &kVersion6 : nullptr;
    return version != nullptr && head.size() >= version->at + version->octets ? version : nullptr;
}

// The shortest bytestring of the number that these octets are.
std::string shortest(std::span<const uint8_t> octets) {
    while (octets.size() > 1 && octets.front() == 0) {
        octets = octets.subspan(1);
    }
    return {octets.begin(), octets.end()};
}

Result refuse(Code code, const std::string& why) {
    return {code, "digest sample: " + why};
}

Result decode(const p4::v1::DigestEntry::Config& config, SampleDigest& digest) {
    if (config.max_timeout_ns() < 0 || config.max_list_size() < 0 || config.ack_timeout_ns() < 0) {
        return refuse(Code::kInvalidArgument, "a number of its configuration is negative");
    }
    // What waits for an acknowledgement would have to be kept to leave out what is like it: no sample is like another.
    if (config.ack_timeout_ns() != 0) {
        return refuse(Code::kUnimplemented, "ack_timeout_ns is 0: samples are not repeated");
    }
    digest = {config.max_timeout_ns(), config.max_list_size()};
    return {};
}

}  // namespace

Result check_digest(const Schema& schema, uint32_t digest_id) {
    if (digest_id == schema.sample_digest_id()) {
        return {};
    }
    return {Code::kNotFound, "no digest " + std::to_string(digest_id)};
}

Result write_samples(Tables& tables, const Schema& schema, Op op, const p4::v1::DigestEntry& entry) {
    SampleDigest digest;
    Result result = check_digest(schema, entry.digest_id());
    if (result.ok() && op != Op::kErase) {
        result = decode(entry.config(), digest);
    }
    return result.ok() ? tables.write_samples(op, digest) : result;
}

void encode_samples(const Schema& schema, const SampleDigest& digest, p4::v1::DigestEntry& entry) {
    entry.set_digest_id(schema.sample_digest_id());
    entry.mutable_config()->set_max_timeout_ns(digest.max_timeout_ns);
    entry.mutable_config()->set_max_list_size(digest.max_list_size);
}

std::optional<RoutedPacket> routed_packet(uint32_t vrf, std::span<const uint8_t> head) {
    const Version* version = version_of(head);
    if (version == nullptr) {
        return std::nullopt;
    }
    RoutedPacket packet{vrf, version->family, {}, version->length_more};
    packet.octets += static_cast<uint32_t>(head[version->length_at] << 8 | head[version->length_at + 1]);
    std::ranges::copy(head.subspan(version->at, version->octets), packet.destination.address.begin());
    packet.destination.length = static_cast<uint8_t>(version->octets * 8);
    return packet;
}

bool encode_sample(uint32_t router_interface_id, std::span<const uint8_t> head, uint64_t timestamp,
                   p4::v1::P4Data& data) {
    const Version* version = version_of(head);
    if (version == nullptr) {
        return false;
    }
    auto& members = *data.mutable_struct_();
    encode_value(router_interface_id, *members.add_members()->mutable_bitstring());
    encode_value(version->number, *members.add_members()->mutable_bitstring());
    members.add_members()->set_bitstring(shortest(head.subspan(version->at, version->octets)));
    encode_value(timestamp, *members.add_members()->mutable_bitstring());
    return true;
}

}  // namespace splitplane
