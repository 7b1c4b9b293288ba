// SPDX-License-Identifier: Apache-2.0
//
// Samples as P4Runtime knows them: a clone session whose only replica is the port to the controller (P4Runtime 1.4,
// section 9.5). There is one, because the pipeline has one place that clones.
#pragma once

#include "p4/v1/p4runtime.pb.h"
#include "tables/tables.h"

namespace splitplane {

inline constexpr uint32_t kSampleSession = 1;

Result write_samples(Tables& tables, Op op, const p4::v1::PacketReplicationEngineEntry& entry);
// Whether a read wants samples; kUnimplemented where it wants what there cannot be.
Result wants_samples(const p4::v1::PacketReplicationEngineEntry& wanted, bool& wants);
void encode_samples(const SampleSession& session, p4::v1::PacketReplicationEngineEntry& entry);

}  // namespace splitplane
