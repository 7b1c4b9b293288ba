// SPDX-License-Identifier: Apache-2.0
//
// What systemd is told of a service of Type=notify (sd_notify(3)); nothing where it is not the one that started us.
#pragma once

#include <string_view>

namespace splitplane {

// Send "READY=1", "STOPPING=1" or "STATUS=…" to the socket that NOTIFY_SOCKET names.
void notify_service(std::string_view state);

}  // namespace splitplane
