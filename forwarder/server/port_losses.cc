// SPDX-License-Identifier: Apache-2.0
#include "server/port_losses.h"

#include <map>

#include "server/encoding.h"
#include "server/punt_drops.h"

namespace splitplane {

namespace {

void encode_loss(uint32_t port, const char* place, const std::string& loss, uint64_t frames,
                 p4::v1::ExternEntry& entry) {
    p4::v1::P4Data data;
    auto& members = *data.mutable_struct_();
    encode_value(port, *members.add_members()->mutable_bitstring());
    members.add_members()->set_bitstring(place);
    members.add_members()->set_bitstring(loss);
    encode_value(frames, *members.add_members()->mutable_bitstring());
    entry.set_extern_type_id(kPuntDropsType);
    entry.set_extern_id(kPortLossesId);
    entry.mutable_entry()->PackFrom(data);
}

}  // namespace

void encode_port_losses(const PortLosses& losses, const std::function<p4::v1::ExternEntry&()>& add) {
    for (size_t loss = 0; loss < kLossNames.size(); ++loss) {
        if (kLossNames[loss] != nullptr && losses.egress[loss] != 0) {
            encode_loss(losses.port, "egress", kLossNames[loss], losses.egress[loss], add());
        }
    }
    std::map<std::string, uint64_t> of_queues;
    for (const DeviceLoss& loss : losses.device) {
        of_queues[loss.counter] += loss.frames;
    }
    for (const auto& [counter, frames] : of_queues) {
        if (frames != 0) {
            encode_loss(losses.port, "device", counter, frames, add());
        }
    }
}

}  // namespace splitplane
