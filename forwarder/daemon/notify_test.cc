// SPDX-License-Identifier: Apache-2.0

#include "daemon/notify.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

namespace splitplane {
namespace {

using namespace std::literals;

class Notify : public testing::Test {
  protected:
    Notify() : path_(testing::TempDir() + "notify-" + std::to_string(getpid())) {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::strcpy(address.sun_path, path_.c_str());
        unlink(path_.c_str());
        EXPECT_EQ(bind(manager_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
        setenv("NOTIFY_SOCKET", path_.c_str(), 1);
    }
    ~Notify() override {
        close(manager_);
        unlink(path_.c_str());
        for (const char* name : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}) unsetenv(name);
    }

    std::string heard() const {
        char text[200];
        const ssize_t octets = recv(manager_, text, sizeof(text), MSG_DONTWAIT);
        return octets < 0 ? "" : std::string(text, static_cast<size_t>(octets));
    }

    std::string path_;
    int manager_ = socket(AF_UNIX, SOCK_DGRAM, 0);
};

TEST_F(Notify, AStateIsOneMessage) {
    notify_service("READY=1");
    notify_service("WATCHDOG=1\nSTATUS=2 of 2 ports up");
    EXPECT_EQ(heard(), "READY=1");
    EXPECT_EQ(heard(), "WATCHDOG=1\nSTATUS=2 of 2 ports up");
}

TEST_F(Notify, AManagerThatDoesNotReadHoldsNobodyUp) {
    for (int sent = 0; sent < 10'000; ++sent) notify_service("WATCHDOG=1");  // more than its queue takes
    EXPECT_EQ(heard(), "WATCHDOG=1");
}

TEST_F(Notify, TheWatchdogIsThisProcessAlone) {
    EXPECT_EQ(watchdog_limit(), std::nullopt);
    setenv("WATCHDOG_USEC", "30000000", 1);
    EXPECT_EQ(watchdog_limit(), 30s);
    setenv("WATCHDOG_PID", std::to_string(getpid()).c_str(), 1);
    EXPECT_EQ(watchdog_limit(), 30s);
    setenv("WATCHDOG_PID", "1", 1);
    EXPECT_EQ(watchdog_limit(), std::nullopt);
    unsetenv("WATCHDOG_PID");
    for (const char* text : {"", "0", "-1", "soon", "1 s"}) {
        setenv("WATCHDOG_USEC", text, 1);
        EXPECT_EQ(watchdog_limit(), std::nullopt) << text;
    }
}

}  // namespace
}  // namespace splitplane
