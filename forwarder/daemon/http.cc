// SPDX-License-Identifier: Apache-2.0

#include "daemon/http.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <list>
#include <utility>

#include "server/sockets.h"

namespace splitplane {

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostConnections = 32;
constexpr size_t kMostRequestOctets = 8192;
constexpr auto kTimeForOne = std::chrono::seconds(5);

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
            const auto& own = listening_.emplace_back(address).sockets();
            for (const Descriptor& socket : own) listeners_.push_back(socket.get());
        }
    }

    void stop() {
        const uint64_t one = 1;
        [[maybe_unused]] const ssize_t written = write(stop_.get(), &one, sizeof(one));
    }

    void run() {
        std::vector<pollfd> waiting;
        while (true) {
            waiting.assign(1, {stop_.get(), POLLIN, 0});
            for (const int listener : listeners_) waiting.push_back({listener, POLLIN, 0});
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
                if (waiting[1 + each].revents != 0) take(listeners_[each]);
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
        Descriptor descriptor = accepted(listener);
        if (!descriptor) return;
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
    std::list<ListeningSockets> listening_;
    std::vector<int> listeners_;  // their sockets
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
    if (answer.find("\r\nContent-Length: " + std::to_string(body.size()) + "\r\n") > head) {
        throw HttpError("vr-forwarder at " + socket_path + " ended in the middle of its answer");
    }
    if (!answer.starts_with("HTTP/1.0 200 ")) {
        throw HttpError("vr-forwarder at " + socket_path + ": " + body.substr(0, body.find('\n')));
    }
    return body;
}

}  // namespace splitplane
