// SPDX-License-Identifier: Apache-2.0
#include "server/punt_drops.h"

#include "server/encoding.h"

namespace splitplane {

void encode_punt_drops(const PuntDrops& drops, p4::v1::ExternEntry& entry) {
    p4::v1::P4Data data;
    for (const uint64_t member : {uint64_t{drops.router_interface_id}, uint64_t{drops.place},
                                  uint64_t{drops.punt_class}, drops.packets}) {
        encode_value(member, *data.mutable_struct_()->add_members()->mutable_bitstring());
    }
    entry.set_extern_type_id(kPuntDropsType);
    entry.set_extern_id(kPuntDropsId);
    entry.mutable_entry()->PackFrom(data);
}

}  // namespace splitplane
