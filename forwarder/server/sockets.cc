// SPDX-License-Identifier: Apache-2.0
#include "server/sockets.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <set>
#include <thread>

namespace splitplane {

namespace {

constexpr int kWaiting = 128;  // connections that nobody has taken yet
constexpr timeval kPatience{10, 0};  // with whom takes no connections
constexpr auto kRest = std::chrono::milliseconds(100);

std::optional<sockaddr_un> unix_address(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof(address.sun_path)) return std::nullopt;
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    return address;
}

[[noreturn]] void fail(const std::string& address, const std::string& why) {
    throw ListenError("cannot listen on " + address + ": " + why);
}

// A socket of a process that is gone is in the way; one that is served is somebody's.
void remove_stale(const std::string& path) {
    struct stat found{};
    if (lstat(path.c_str(), &found) != 0) return;
    if (!S_ISSOCK(found.st_mode)) fail("unix:" + path, "it exists and is no socket");
    // One that is slow has a full queue of connections.
    if (connected(path) || errno == EAGAIN) fail("unix:" + path, "another process does");
    unlink(path.c_str());
}

Descriptor listen_unix(const std::string& path) {
    const std::optional<sockaddr_un> address = unix_address(path);
    if (!address) fail("unix:" + path, "the path is too long for a Unix socket");
    remove_stale(path);
    Descriptor descriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (bind(descriptor.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) != 0 ||
        chmod(path.c_str(), 0600) != 0 || listen(descriptor.get(), kWaiting) != 0) {
        fail("unix:" + path, error_text(errno));
    }
    return descriptor;
}

int port_of(int descriptor) {
    sockaddr_storage bound{};
    socklen_t length = sizeof(bound);
    getsockname(descriptor, reinterpret_cast<sockaddr*>(&bound), &length);
    return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(bound).sin_port);
}

// The error, 0 for none.
int listen_at(const addrinfo& one, std::vector<Descriptor>& all) {
    Descriptor descriptor(socket(one.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!descriptor) return errno;
    const int yes = 1;
    setsockopt(descriptor.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (bind(descriptor.get(), one.ai_addr, one.ai_addrlen) != 0) return errno;
    if (listen(descriptor.get(), kWaiting) != 0) return errno;
    all.push_back(std::move(descriptor));
    return 0;
}

// A name may have addresses that this machine does not have, as ::1 without IPv6, and the same one twice.
std::vector<Descriptor> listen_tcp(const std::string& address) {
    const size_t colon = address.rfind(':');
    std::string host = address.substr(0, colon);
    if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
    addrinfo* found = nullptr;
    const int problem = getaddrinfo(host.c_str(), address.substr(colon + 1).c_str(), &hints, &found);
    if (problem != 0) fail(address, gai_strerror(problem));
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
    std::vector<Descriptor> all;
    std::set<std::string> tried;
    int error = 0;
    for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
        if (!tried.emplace(reinterpret_cast<const char*>(one->ai_addr), one->ai_addrlen).second) continue;
        error = listen_at(*one, all);
        if (error != 0 && error != EADDRNOTAVAIL && error != EAFNOSUPPORT) fail(address, error_text(error));
    }
    if (all.empty()) fail(address, error_text(error));
    return all;
}

}  // namespace

ListeningSockets::ListeningSockets(const std::string& address) {
    if (address.starts_with("unix:")) {
        sockets_.push_back(listen_unix(address.substr(5)));
        path_ = address.substr(5);
    } else {
        sockets_ = listen_tcp(address);
        port_ = port_of(sockets_.front().get());
    }
}

ListeningSockets::~ListeningSockets() {
    if (!path_.empty()) unlink(path_.c_str());
}

Descriptor accepted(int socket) {
    Descriptor descriptor(accept4(socket, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!descriptor && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
        std::this_thread::sleep_for(kRest);
    }
    return descriptor;
}

Descriptor connected(const std::string& path) {
    const std::optional<sockaddr_un> address = unix_address(path);
    if (!address) {
        errno = ENAMETOOLONG;
        return {};
    }
    Descriptor descriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    setsockopt(descriptor.get(), SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof(kPatience));
    const bool done =
        connect(descriptor.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) == 0;
    return done ? std::move(descriptor) : Descriptor();
}

}  // namespace splitplane
