// SPDX-License-Identifier: Apache-2.0
#include "server/samples.h"

namespace splitplane {

namespace {

constexpr auto kCpuPort = static_cast<uint32_t>(p4::v1::SDN_PORT_CPU);
const std::string kCpuPortOctets = "\xff\xff\xff\xfd";

Result refuse_session(Code code, const std::string& why) {
    return {code, "clone session " + std::to_string(kSampleSession) + ": " + why};
}

Result check_session(uint32_t id) {
    if (id == kSampleSession) {
        return {};
    }
    return {Code::kUnimplemented, "clone session " + std::to_string(id) + ": the only one is " +
                                      std::to_string(kSampleSession) + ", samples of what is routed"};
}

bool to_controller(const p4::v1::Replica& replica) {
    return replica.port_kind_case() == p4::v1::Replica::kPort ? replica.port() == kCpuPortOctets
                                                              : replica.egress_port() == kCpuPort;
}

Result decode_session(const p4::v1::CloneSessionEntry& entry, SampleSession& session) {
    if (entry.replicas_size() != 1 || !to_controller(entry.replicas(0)) ||
        entry.replicas(0).backup_replicas_size() != 0) {
        return refuse_session(Code::kUnimplemented, "its only replica is the CPU port, 0xfffffffd, without backups");
    }
    if (entry.class_of_service() != 0) {
        return refuse_session(Code::kUnimplemented, "there is no class of service but 0");
    }
    int32_t octets = entry.packet_length_bytes();
    if (octets < static_cast<int32_t>(SP_SAMPLE_LEAST) || octets > static_cast<int32_t>(SP_SAMPLE_MOST)) {
        return refuse_session(Code::kInvalidArgument, "packet_length_bytes is from " +
                                                          std::to_string(SP_SAMPLE_LEAST) + " to " +
                                                          std::to_string(SP_SAMPLE_MOST));
    }
    session = {static_cast<uint32_t>(octets), entry.replicas(0).instance()};
    return {};
}

}  // namespace

Result write_samples(Tables& tables, Op op, const p4::v1::PacketReplicationEngineEntry& entry) {
    if (!entry.has_clone_session_entry()) {
        return {Code::kUnimplemented, "the pipeline has no multicast groups"};
    }
    SampleSession session;
    Result result = check_session(entry.clone_session_entry().session_id());
    if (result.ok() && op != Op::kErase) {
        result = decode_session(entry.clone_session_entry(), session);
    }
    return result.ok() ? tables.write_samples(op, session) : result;
}

Result wants_samples(const p4::v1::PacketReplicationEngineEntry& wanted, bool& wants) {
    // None of anything else can be written, so there is none; clients that clear a device ask first.
    wants = !wanted.has_multicast_group_entry();
    uint32_t id = wanted.clone_session_entry().session_id();
    return id == 0 ? Result() : check_session(id);
}

void encode_samples(const SampleSession& session, p4::v1::PacketReplicationEngineEntry& entry) {
    auto& clone = *entry.mutable_clone_session_entry();
    clone.set_session_id(kSampleSession);
    auto& replica = *clone.add_replicas();
    replica.set_port(kCpuPortOctets);
    replica.set_instance(session.instance);
    clone.set_packet_length_bytes(static_cast<int32_t>(session.octets));
}

}  // namespace splitplane
