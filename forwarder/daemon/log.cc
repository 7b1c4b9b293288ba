// SPDX-License-Identifier: Apache-2.0

#include "daemon/log.h"

#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <string>

namespace splitplane {

namespace {

std::atomic<LogLevel> least_level{LogLevel::kInfo};

constexpr const char* kNames[] = {"debug", "info", "warning", "error"};

std::string now() {
    timeval at{};
    gettimeofday(&at, nullptr);
    tm parts{};
    localtime_r(&at.tv_sec, &parts);
    char text[40];
    const size_t length = std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &parts);
    std::string milliseconds = std::to_string(at.tv_usec / 1000);
    return std::string(text, length) + "." + std::string(3 - milliseconds.size(), '0') + milliseconds;
}

}  // namespace

void set_log_level(LogLevel least) { least_level = least; }

void log(LogLevel level, std::string_view text) {
    if (level < least_level) return;
    std::string line = now() + " " + kNames[static_cast<size_t>(level)] + " ";
    for (const char octet : text) line += octet >= ' ' && octet != '\x7f' ? octet : (octet & '\x80') != 0 ? octet : '?';
    line += '\n';
    // One write, so that lines of several threads do not mix. There is nobody to tell when it fails.
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace splitplane
