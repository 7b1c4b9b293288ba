// SPDX-License-Identifier: Apache-2.0
//
// What this device does beyond what the pipeline's P4Info says, for controllers to read: one extern entry (P4Runtime
// 1.4, section 9.9) with the names of capabilities, as docs/planes.md has them.
//
//     ExternEntry{0x81, 0x81000002, P4Data: struct{"resilient_hash", "local_failover", "hash_by_router", "shares",
//                                                  "sampled_route_counters"}}
#pragma once

#include <string>
#include <vector>

#include "p4/v1/p4runtime.pb.h"

namespace splitplane {

inline constexpr uint32_t kFeaturesId = 0x81000002;  // of kPuntDropsType, too

void encode_features(const std::vector<std::string>& names, p4::v1::ExternEntry& entry);

}  // namespace splitplane
