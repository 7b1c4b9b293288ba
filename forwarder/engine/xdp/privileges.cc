// SPDX-License-Identifier: Apache-2.0
#include "engine/xdp/privileges.h"

#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace splitplane {

bool privileged() {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct sets[2]{};
    if (::syscall(SYS_capget, &header, sets) != 0) return false;
    const auto has = [&](unsigned capability) { return (sets[capability / 32].effective >> capability % 32 & 1) != 0; };
    return has(CAP_SYS_ADMIN) || (has(CAP_BPF) && has(CAP_NET_ADMIN) && has(CAP_PERFMON));
}

std::string permission_remedy() {
    return privileged() ? "something forbids it (a user namespace, lockdown, a security module)"
                        : "it needs root, or CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON";
}

}  // namespace splitplane
