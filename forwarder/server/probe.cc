// SPDX-License-Identifier: Apache-2.0
//
//     preface │ SETTINGS │ HEADERS of stream 1 │ DATA: an empty message        RFC 9113, and gRPC over HTTP/2
#include "server/probe.h"

#include <poll.h>
#include <sys/socket.h>

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "server/sockets.h"

namespace splitplane {

namespace {

using namespace std::literals;
using Clock = std::chrono::steady_clock;

constexpr size_t kFrameHead = 9;
enum FrameType : uint8_t { kData = 0, kHeaders = 1, kSettings = 4 };
constexpr uint8_t kEndStream = 1, kEndHeaders = 4;

std::string frame(FrameType type, uint8_t flags, uint32_t stream, std::string_view payload) {
    std::string octets;
    for (const size_t part : {payload.size() >> 16, payload.size() >> 8, payload.size()}) {
        octets += static_cast<char>(part);
    }
    octets += static_cast<char>(type);
    octets += static_cast<char>(flags);
    for (const uint32_t part : {stream >> 24, stream >> 16, stream >> 8, stream}) octets += static_cast<char>(part);
    return octets.append(payload);
}

// A field that is spelled out and not to be remembered (RFC 7541, section 6.2.2).
std::string field(std::string_view name, std::string_view value) {
    std::string octets(1, '\0');
    for (const std::string_view text : {name, value}) octets.append(1, static_cast<char>(text.size())).append(text);
    return octets;
}

std::string request() {
    const std::string fields = field(":method", "POST") + field(":scheme", "http") +
                               field(":path", "/p4.v1.P4Runtime/Capabilities") + field(":authority", "localhost") +
                               field("te", "trailers") + field("content-type", "application/grpc");
    return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(kSettings, 0, 0, "") + frame(kHeaders, kEndHeaders, 1, fields) +
           frame(kData, kEndStream, 1, "\0\0\0\0\0"sv);
}

// Whether there are headers of stream 1 among whole frames, which are taken off.
bool answered(std::string& octets) {
    const auto at = [&](size_t place) { return static_cast<uint8_t>(octets[place]); };
    while (octets.size() >= kFrameHead) {
        const size_t length = size_t{at(0)} << 16 | size_t{at(1)} << 8 | at(2);
        if (at(3) == kHeaders && at(8) == 1) return true;
        if (octets.size() < kFrameHead + length) return false;
        octets.erase(0, kFrameHead + length);
    }
    return false;
}

}  // namespace

bool answers(const std::string& socket_path, std::chrono::milliseconds within) {
    const Clock::time_point end = Clock::now() + within;
    const Descriptor connection = connected(socket_path);
    const std::string asked = request();
    if (!connection || send(connection.get(), asked.data(), asked.size(), MSG_NOSIGNAL) < 0) return false;
    std::string heard;
    for (;;) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
        pollfd waiting{connection.get(), POLLIN, 0};
        if (left <= 0 || poll(&waiting, 1, static_cast<int>(left)) <= 0) return false;
        char part[1024];
        const ssize_t octets = recv(connection.get(), part, sizeof(part), 0);
        if (octets <= 0) return false;
        if (answered(heard.append(part, static_cast<size_t>(octets)))) return true;
    }
}

}  // namespace splitplane
