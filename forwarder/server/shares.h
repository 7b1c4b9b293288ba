// SPDX-License-Identifier: Apache-2.0
//
// Shares of routers and slices, and what routers have had, as extern entries (P4Runtime 1.4, section 9.9) of nothing that
// the pipeline's P4Info has. The first two are written by INSERT, MODIFY and DELETE, whose key is the first number; the
// last can only be read. Guarantee and ceiling are millionths of a core, and of a link; 0: none. slice_id 0: no slice.
//
//     ExternEntry{0x82, 0x82000001, P4Data: struct{slice_id, weight, guarantee, ceiling}}
//     ExternEntry{0x82, 0x82000002, P4Data: struct{vrf_id, slice_id, weight, guarantee, ceiling}}
//     ExternEntry{0x82, 0x82000003, P4Data: struct{vrf_id, core_ns, over_share_packets_core, over_share_packets_link}}
#pragma once

#include "p4/v1/p4runtime.pb.h"
#include "tables/tables.h"

namespace splitplane {

inline constexpr uint32_t kSharesType = 0x82;
inline constexpr uint32_t kSliceShareId = 0x82000001, kRouterShareId = 0x82000002, kShareUseId = 0x82000003;

// The caller has the tables' lock, and commits.
Result write_share(Tables& tables, Op op, const p4::v1::ExternEntry& entry);

// Of Table::kRouterShare or Table::kSliceShare.
void encode_share(Table table, Key key, const Row& row, p4::v1::ExternEntry& entry);
void encode_share_use(uint32_t vrf_id, const ShareUse& use, p4::v1::ExternEntry& entry);

}  // namespace splitplane
