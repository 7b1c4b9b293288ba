// SPDX-License-Identifier: Apache-2.0

#include "daemon/log.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <regex>
#include <string>
#include <thread>
#include <vector>

namespace splitplane {
namespace {

using namespace std::literals;

// Standard error is a socket that keeps writes apart.
class Log : public testing::Test {
  protected:
    Log() : before_(dup(STDERR_FILENO)) {
        EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends_), 0);
        EXPECT_EQ(dup2(ends_[1], STDERR_FILENO), STDERR_FILENO);
    }
    ~Log() override {
        dup2(before_, STDERR_FILENO);
        for (const int each : {before_, ends_[0], ends_[1]}) close(each);
        set_log_level(LogLevel::kInfo);
    }

    // What one write has written; nothing where there was none.
    std::string written() {
        char text[1024];
        const ssize_t octets = recv(ends_[0], text, sizeof(text), MSG_DONTWAIT);
        return octets < 0 ? "" : std::string(text, static_cast<size_t>(octets));
    }

    // Without its time, which is "2025-01-31T12:00:00.123 ".
    std::string after_time() {
        const std::string line = written();
        static const std::regex time(R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3} )");
        EXPECT_TRUE(std::regex_match(line.substr(0, 24), time)) << line;
        return line.substr(std::min<size_t>(line.size(), 24));
    }

    int before_;
    int ends_[2];
};

TEST_F(Log, ALineIsTimeLevelAndText) {
    log(LogLevel::kInfo, "port 1 (p1): native, up");
    log(LogLevel::kWarning, "port 3: eth3 is gone");
    log(LogLevel::kError, "");
    EXPECT_EQ(after_time(), "info port 1 (p1): native, up\n");
    EXPECT_EQ(after_time(), "warning port 3: eth3 is gone\n");
    EXPECT_EQ(after_time(), "error \n");
    EXPECT_EQ(written(), "");
}

TEST_F(Log, BelowTheLevelNothingIsWritten) {
    log(LogLevel::kDebug, "a");
    set_log_level(LogLevel::kError);
    log(LogLevel::kWarning, "b");
    set_log_level(LogLevel::kDebug);
    log(LogLevel::kDebug, "c");
    EXPECT_EQ(after_time(), "debug c\n");
    EXPECT_EQ(written(), "");
}

TEST_F(Log, NamesFromOutsideStayOneLine) {
    log(LogLevel::kInfo, "a\n2025 error b\x1b[31m\0\x7f {} {0} %v é\xff"sv);
    EXPECT_EQ(after_time(), "info a?2025 error b?[31m?? {} {0} %v é\xff\n");
}

TEST_F(Log, LinesOfThreadsDoNotMix) {
    const std::string text(200, 'x');
    std::vector<std::jthread> threads;
    for (int each = 0; each < 4; ++each) {
        threads.emplace_back([&] {
            for (int line = 0; line < 20; ++line) log(LogLevel::kInfo, text);
        });
    }
    threads.clear();
    for (int line = 0; line < 80; ++line) EXPECT_EQ(after_time(), "info " + text + "\n");
    EXPECT_EQ(written(), "");
}

TEST_F(Log, ThatNobodyReadsIsNoError) {
    signal(SIGPIPE, SIG_IGN);
    shutdown(ends_[0], SHUT_RDWR);
    log(LogLevel::kInfo, "a");
    EXPECT_EQ(written(), "");
}

}  // namespace
}  // namespace splitplane
