// SPDX-License-Identifier: Apache-2.0

#include "daemon/notify.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>

namespace splitplane {

void notify_service(std::string_view state) {
    const char* path = std::getenv("NOTIFY_SOCKET");
    sockaddr_un address{};
    if (path == nullptr || (path[0] != '/' && path[0] != '@') || std::strlen(path) >= sizeof(address.sun_path)) return;
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, path);
    if (path[0] == '@') address.sun_path[0] = '\0';  // an abstract one
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + std::strlen(path));
    const int descriptor = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (descriptor < 0) return;
    [[maybe_unused]] const ssize_t sent = sendto(descriptor, state.data(), state.size(), MSG_NOSIGNAL,
                                                 reinterpret_cast<sockaddr*>(&address), length);
    close(descriptor);
}

}  // namespace splitplane
