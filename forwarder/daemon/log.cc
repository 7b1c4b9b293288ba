// SPDX-License-Identifier: Apache-2.0

#include "daemon/log.h"

// Both as headers, so that a host needs no package of theirs.
#define FMT_HEADER_ONLY
#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <algorithm>
#include <memory>
#include <string>

namespace splitplane {

namespace {

spdlog::level::level_enum spdlog_level(LogLevel level) {
    switch (level) {
        case LogLevel::kDebug: return spdlog::level::debug;
        case LogLevel::kInfo: return spdlog::level::info;
        case LogLevel::kWarning: return spdlog::level::warn;  // written as "warning"
        case LogLevel::kError: break;
    }
    return spdlog::level::err;
}

// Each line is one write of spdlog's sink. It is never taken down: a thread may write until the process ends.
spdlog::logger& logger() {
    static spdlog::logger& one = []() -> spdlog::logger& {
        auto* const made = new spdlog::logger("", std::make_shared<spdlog::sinks::stderr_sink_mt>());
        made->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
        made->set_error_handler([](const std::string&) {});  // there is nobody to tell
        return *made;
    }();
    return one;
}

bool is_control(char octet) { return (octet >= 0 && octet < ' ') || octet == '\x7f'; }

}  // namespace

void set_log_level(LogLevel least) { logger().set_level(spdlog_level(least)); }

void log(LogLevel level, std::string_view text) {
    std::string line(text);
    std::ranges::replace_if(line, is_control, '?');
    logger().log(spdlog_level(level), spdlog::string_view_t(line));
}

}  // namespace splitplane
