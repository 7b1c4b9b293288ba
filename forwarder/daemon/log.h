// SPDX-License-Identifier: Apache-2.0
//
// Lines for the operator on standard error: "2025-01-31T12:00:00.123 warning port 3: eth3 is gone".
#pragma once

#include <string_view>

#include "daemon/config.h"

namespace splitplane {

// What is below this level is not written from now on.
void set_log_level(LogLevel least);

// Write one line; any thread. What is not printable becomes '?': names come from outside.
void log(LogLevel level, std::string_view text);

}  // namespace splitplane
