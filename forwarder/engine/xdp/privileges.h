// SPDX-License-Identifier: Apache-2.0
//
// What the kernel asks of a thread that loads and attaches XDP programs.

#pragma once

#include <string>

namespace splitplane {

// Whether this thread has it: CAP_SYS_ADMIN, or all of CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON.
bool privileged();

// What to do where the kernel says that something is not permitted.
std::string permission_remedy();

}  // namespace splitplane
