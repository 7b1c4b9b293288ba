// SPDX-License-Identifier: Apache-2.0

#include "daemon/notify.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace splitplane {

namespace {

// The whole number above zero that a variable of the environment is.
std::optional<int64_t> number_in(const char* name) {
    const char* text = std::getenv(name);
    if (text == nullptr) return std::nullopt;
    int64_t number = 0;
    const char* end = text + std::strlen(text);
    const auto [stopped, problem] = std::from_chars(text, end, number);
    if (problem != std::errc() || stopped != end || number <= 0) return std::nullopt;
    return number;
}

}  // namespace

void notify_service(std::string_view state) {
    const char* path = std::getenv("NOTIFY_SOCKET");
    sockaddr_un address{};
    if (path == nullptr || (path[0] != '/' && path[0] != '@') || std::strlen(path) >= sizeof(address.sun_path)) return;
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, path);
    if (path[0] == '@') address.sun_path[0] = '\0';  // an abstract one
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + std::strlen(path));
    const int descriptor = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (descriptor < 0) return;
    [[maybe_unused]] const ssize_t sent = sendto(descriptor, state.data(), state.size(), MSG_NOSIGNAL,
                                                 reinterpret_cast<sockaddr*>(&address), length);
    close(descriptor);
}

std::optional<std::chrono::microseconds> watchdog_limit() {
    const std::optional<int64_t> limit = number_in("WATCHDOG_USEC");
    if (!limit || (std::getenv("WATCHDOG_PID") != nullptr && number_in("WATCHDOG_PID") != getpid())) return std::nullopt;
    return std::chrono::microseconds(*limit);
}

}  // namespace splitplane
