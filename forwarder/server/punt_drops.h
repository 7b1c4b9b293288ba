// SPDX-License-Identifier: Apache-2.0
//
// Punts that were lost on their way to the controller, for controllers to read: an extern entry (P4Runtime 1.4,
// section 9.9) for each router interface, place and class that lost some, of nothing that the pipeline's P4Info has.
//
//     ExternEntry{0x81, 0x81000001, P4Data: struct{router interface, sp_punt_place, sp_punt_class, packets}}
#pragma once

#include "p4/v1/p4runtime.pb.h"

extern "C" {
#include "pipeline/layout.h"
}

namespace splitplane {

inline constexpr uint32_t kPuntDropsType = 0x81;  // of what architectures have of their own, the first
inline constexpr uint32_t kPuntDropsId = 0x81000001;

struct PuntDrops {
    uint32_t router_interface_id;
    uint32_t place;  // sp_punt_place
    uint32_t punt_class;
    uint64_t packets;
};

void encode_punt_drops(const PuntDrops& drops, p4::v1::ExternEntry& entry);

}  // namespace splitplane
