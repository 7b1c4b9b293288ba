// SPDX-License-Identifier: Apache-2.0
#include "server/device_features.h"

#include "server/punt_drops.h"

namespace splitplane {

void encode_features(const std::vector<std::string>& names, p4::v1::ExternEntry& entry) {
    p4::v1::P4Data data;
    for (const std::string& name : names) {
        data.mutable_struct_()->add_members()->set_bitstring(name);
    }
    entry.set_extern_type_id(kPuntDropsType);
    entry.set_extern_id(kFeaturesId);
    entry.mutable_entry()->PackFrom(data);
}

}  // namespace splitplane
