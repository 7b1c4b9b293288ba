// SPDX-License-Identifier: Apache-2.0
//
// What systemd is told of a service of Type=notify (sd_notify(3)); nothing where it is not the one that started us.
#pragma once

#include <chrono>
#include <optional>
#include <string_view>

namespace splitplane {

// Send "READY=1", "STOPPING=1", "WATCHDOG=1" or "STATUS=…", a line each, to the socket that NOTIFY_SOCKET names. What
// has no room there is not sent.
void notify_service(std::string_view state);

// After how long a silence the service manager ends this process; nothing where no watchdog looks
// (sd_watchdog_enabled(3)).
std::optional<std::chrono::microseconds> watchdog_limit();

}  // namespace splitplane
