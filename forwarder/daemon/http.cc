// SPDX-License-Identifier: Apache-2.0

#include "daemon/http.h"

#include <netdb.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <list>
#include <utility>

#include "engine/descriptor.h"

namespace splitplane {

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostConnections = 32;
constexpr size_t kMostRequestOctets = 8192;
constexpr auto kTimeForOne = std::chrono::seconds(5);

sockaddr_un unix_address(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof(address.sun_path)) throw HttpError(path + " is too long for a Unix socket");
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    return address;
}

Descriptor connected(const std::string& path) {
    const sockaddr_un address = unix_address(path);
    Descriptor descriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const bool done = connect(descriptor.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
    return done ? std::move(descriptor) : Descriptor();
}

// A socket of a process that is gone is in the way; one that is served is somebody's.
void remove_stale(const std::string& path) {
    struct stat found{};
    if (lstat(path.c_str(), &found) != 0) return;
    if (!S_ISSOCK(found.st_mode)) throw HttpError("cannot listen on unix:" + path + ": it exists and is no socket");
    if (connected(path).get() >= 0) throw HttpError("cannot listen on unix:" + path + ": another process does");
    unlink(path.c_str());
}

Descriptor listen_unix(const std::string& path) {
    remove_stale(path);
    const sockaddr_un address = unix_address(path);
    Descriptor descriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (bind(descriptor.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
        chmod(path.c_str(), 0600) != 0 || listen(descriptor.get(), kMostConnections) != 0) {
        throw HttpError("cannot listen on unix:" + path + ": " + std::strerror(errno));
    }
    return descriptor;
}

Descriptor listen_tcp(const std::string& address) {
    const size_t colon = address.rfind(':');
    std::string host = address.substr(0, colon);
    if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
    addrinfo* found = nullptr;
    const int problem = getaddrinfo(host.c_str(), address.substr(colon + 1).c_str(), &hints, &found);
    if (problem != 0) throw HttpError("cannot listen on " + address + ": " + gai_strerror(problem));
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
    Descriptor descriptor(socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int yes = 1;
    setsockopt(descriptor.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (bind(descriptor.get(), found->ai_addr, found->ai_addrlen) != 0 ||
        listen(descriptor.get(), kMostConnections) != 0) {
        throw HttpError("cannot listen on " + address + ": " + std::strerror(errno));
    }
    return descriptor;
}

const char* phrase(int status) {
    switch (status) {
        case 200: return "OK";
        case 400: return "Bad Request";
        case 404: return "Not Found";
        case 405: return "Method Not Allowed";
        case 503: return "Service Unavailable";
        default: return "Internal Server Error";
    }
}

std::string encoded(const HttpResponse& response, bool with_body) {
    return "HTTP/1.0 " + std::to_string(response.status) + " " + phrase(response.status) +
           "\r\nContent-Type: " + response.type + "\r\nContent-Length: " + std::to_string(response.body.size()) +
           "\r\nConnection: close\r\n\r\n" + (with_body ? response.body : std::string());
}

HttpResponse plain(int status, const std::string& text) { return {status, "text/plain; charset=utf-8", text + "\n"}; }

}  // namespace

std::string http_response(std::string_view request, const HttpAnswer& answer) {
    const std::string_view line = request.substr(0, request.find_first_of("\r\n"));
    const size_t first = line.find(' '), second = line.find(' ', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) {
        return encoded(plain(400, "not HTTP"), true);
    }
    const std::string_view method = line.substr(0, first);
    std::string_view path = line.substr(first + 1, second - first - 1);
    path = path.substr(0, path.find('?'));
    if (method != "GET" && method != "HEAD") return encoded(plain(405, "only GET is served"), true);
    try {
        return encoded(answer(path), method == "GET");
    } catch (const std::exception& error) {
        return encoded(plain(500, error.what()), true);
    }
}

class HttpServer::Loop {
  public:
    Loop(const std::vector<std::string>& addresses, HttpAnswer answer)
        : answer_(std::move(answer)), stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
        for (const std::string& address : addresses) {
            if (address.starts_with("unix:")) {
                listeners_.push_back(listen_unix(address.substr(5)));
                paths_.push_back(address.substr(5));
            } else {
                listeners_.push_back(listen_tcp(address));
            }
        }
    }

    ~Loop() {
        for (const std::string& path : paths_) unlink(path.c_str());
    }

    void stop() {
        const uint64_t one = 1;
        [[maybe_unused]] const ssize_t written = write(stop_.get(), &one, sizeof(one));
    }

    void run() {
        std::vector<pollfd> waiting;
        while (true) {
            waiting.assign(1, {stop_.get(), POLLIN, 0});
            for (const Descriptor& listener : listeners_) waiting.push_back({listener.get(), POLLIN, 0});
            for (const Connection& one : connections_) {
                waiting.push_back({one.descriptor.get(), static_cast<short>(one.output.empty() ? POLLIN : POLLOUT), 0});
            }
            if (poll(waiting.data(), waiting.size(), connections_.empty() ? -1 : 200) < 0 && errno != EINTR) return;
            if (waiting[0].revents != 0) return;
            size_t at = 1 + listeners_.size();
            for (auto one = connections_.begin(); one != connections_.end();) {
                const bool over = (waiting[at++].revents != 0 && !go_on(*one)) || Clock::now() > one->deadline;
                one = over ? connections_.erase(one) : std::next(one);
            }
            for (size_t each = 0; each < listeners_.size(); ++each) {
                if (waiting[1 + each].revents != 0) take(listeners_[each].get());
            }
        }
    }

    std::atomic<uint64_t> refused{0};

  private:
    struct Connection {
        Descriptor descriptor;
        Clock::time_point deadline;
        std::string input;
        std::string output;
    };

    void take(int listener) {
        Descriptor descriptor(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (descriptor.get() < 0) return;
        if (connections_.size() < kMostConnections) {
            connections_.push_back({std::move(descriptor), Clock::now() + kTimeForOne, "", ""});
            return;
        }
        ++refused;
        const std::string sorry = encoded(plain(503, "too many connections"), true);
        [[maybe_unused]] const ssize_t sent = send(descriptor.get(), sorry.data(), sorry.size(), MSG_NOSIGNAL);
    }

    // Read or write what there is; false when the connection is done with.
    bool go_on(Connection& one) {
        if (!one.output.empty()) {
            const ssize_t sent = send(one.descriptor.get(), one.output.data(), one.output.size(), MSG_NOSIGNAL);
            if (sent > 0) one.output.erase(0, static_cast<size_t>(sent));
            return sent > 0 ? !one.output.empty() : errno == EAGAIN;
        }
        char part[2048];
        const ssize_t octets = recv(one.descriptor.get(), part, sizeof(part), 0);
        if (octets <= 0) return octets < 0 && errno == EAGAIN;
        one.input.append(part, static_cast<size_t>(octets));
        const bool complete =
            one.input.find("\r\n\r\n") != std::string::npos || one.input.find("\n\n") != std::string::npos;
        if (complete) {
            one.output = http_response(one.input, answer_);
        } else if (one.input.size() > kMostRequestOctets) {
            one.output = encoded(plain(400, "the request is too long"), true);
        }
        return true;
    }

    HttpAnswer answer_;
    Descriptor stop_;
    std::vector<Descriptor> listeners_;
    std::vector<std::string> paths_;
    std::list<Connection> connections_;
};

HttpServer::HttpServer(const std::vector<std::string>& addresses, HttpAnswer answer)
    : loop_(std::make_unique<Loop>(addresses, std::move(answer))), thread_([this] { loop_->run(); }) {}

HttpServer::~HttpServer() {
    loop_->stop();
    thread_.join();
}

uint64_t HttpServer::refused() const { return loop_->refused; }

std::string http_get(const std::string& socket_path, const std::string& path) {
    const Descriptor descriptor = connected(socket_path);
    if (descriptor.get() < 0) {
        throw HttpError("no vr-forwarder answers at " + socket_path + " (" + std::strerror(errno) +
                        "); is it running, and with this --state?");
    }
    const timeval limit{10, 0};
    setsockopt(descriptor.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    const std::string request = "GET " + path + " HTTP/1.0\r\n\r\n";
    std::string answer;
    if (send(descriptor.get(), request.data(), request.size(), MSG_NOSIGNAL) > 0) {
        char part[16384];
        for (ssize_t octets; (octets = recv(descriptor.get(), part, sizeof(part), 0)) > 0;) {
            answer.append(part, static_cast<size_t>(octets));
        }
    }
    const size_t head = answer.find("\r\n\r\n");
    if (head == std::string::npos) throw HttpError("vr-forwarder at " + socket_path + " did not answer");
    const std::string body = answer.substr(head + 4);
    if (!answer.starts_with("HTTP/1.0 200 ")) {
        throw HttpError("vr-forwarder at " + socket_path + ": " + body.substr(0, body.find('\n')));
    }
    return body;
}

}  // namespace splitplane
