// SPDX-License-Identifier: Apache-2.0
//
// Frames that ports lost outside of the pipeline, for controllers to read: an extern entry (P4Runtime 1.4, section 9.9)
// for each port, place and loss of which there were some, of nothing that the pipeline's P4Info has. Place and loss are
// text, in ASCII.
//
//     ExternEntry{0x81, 0x81000003, P4Data: struct{port, "egress", one of kLossNames, frames}}
//     ExternEntry{0x81, 0x81000003, P4Data: struct{port, "device", the device's name for it, frames of all queues}}
#pragma once

#include <functional>

#include "engine/losses.h"
#include "p4/v1/p4runtime.pb.h"

namespace splitplane {

inline constexpr uint32_t kPortLossesId = 0x81000003;  // of kPuntDropsType, too

// Have `add` make an entry for each of a port's losses, and fill it.
void encode_port_losses(const PortLosses& losses, const std::function<p4::v1::ExternEntry&()>& add);

}  // namespace splitplane
