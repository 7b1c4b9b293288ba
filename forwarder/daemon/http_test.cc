// SPDX-License-Identifier: Apache-2.0

#include "daemon/http.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <thread>

#include "daemon/json.h"
#include "daemon/metrics.h"
#include "server/sockets.h"

namespace splitplane {
namespace {

class Http : public testing::Test {
  protected:
    Http() : path_(testing::TempDir() + "http-" + std::to_string(getpid()) + ".sock") {
        server_ = std::make_unique<HttpServer>(std::vector<std::string>{"unix:" + path_}, [](std::string_view path) {
            if (path == "/throw") throw std::runtime_error("it broke");
            if (path == "/long") return HttpResponse{200, "text/plain", std::string(3'000'000, 'x')};
            if (path == "/known") return HttpResponse{200, "text/plain", "hello\n"};
            return HttpResponse{404, "text/plain", "there is no such page\n"};
        });
    }

    int connection() const {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::strcpy(address.sun_path, path_.c_str());
        const int descriptor = socket(AF_UNIX, SOCK_STREAM, 0);
        EXPECT_EQ(connect(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
        return descriptor;
    }

    static std::string rest(int descriptor) {
        std::string text;
        char part[4096];
        for (ssize_t octets; (octets = recv(descriptor, part, sizeof(part), 0)) > 0;) {
            text.append(part, static_cast<size_t>(octets));
        }
        close(descriptor);
        return text;
    }

    std::string asked(const std::string& request) const {
        const int descriptor = connection();
        EXPECT_EQ(send(descriptor, request.data(), request.size(), MSG_NOSIGNAL), static_cast<ssize_t>(request.size()));
        return rest(descriptor);
    }

    std::string path_;
    std::unique_ptr<HttpServer> server_;
};

TEST_F(Http, AnswersAndOnlyItsOwnerMayAsk) {
    EXPECT_EQ(http_get(path_, "/known"), "hello\n");
    EXPECT_EQ(http_get(path_, "/long").size(), 3'000'000u);
    struct stat found{};
    ASSERT_EQ(stat(path_.c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 0777, 0600u);
}

TEST_F(Http, ErrorsHaveTheirStatus) {
    EXPECT_TRUE(asked("GET /nowhere HTTP/1.0\r\n\r\n").starts_with("HTTP/1.0 404 Not Found\r\n"));
    EXPECT_TRUE(asked("GET /throw HTTP/1.1\r\nHost: x\r\n\r\n").ends_with("\r\n\r\nit broke\n"));
    EXPECT_TRUE(asked("POST /known HTTP/1.0\r\n\r\n").starts_with("HTTP/1.0 405 "));
    EXPECT_TRUE(asked("rubbish\r\n\r\n").starts_with("HTTP/1.0 400 "));
    EXPECT_TRUE(asked(std::string(9000, 'x')).starts_with("HTTP/1.0 400 "));
    EXPECT_TRUE(asked("HEAD /known?x=1 HTTP/1.0\r\n\r\n").ends_with("\r\n\r\n"));
    EXPECT_THROW(http_get(path_, "/nowhere"), HttpError);
}

TEST_F(Http, ManyIdleConnectionsAreRefusedAndCounted) {
    std::vector<int> idle;
    while (server_->refused() == 0) {
        idle.push_back(connection());
        ASSERT_LT(idle.size(), 500u);
    }
    for (const int descriptor : idle) close(descriptor);
    std::string answer;
    for (int tries = 0; tries < 100 && !answer.starts_with("HTTP/1.0 200"); ++tries) {
        answer = asked("GET /known HTTP/1.0\r\n\r\n");  // the others are being noticed as closed
    }
    EXPECT_TRUE(answer.ends_with("hello\n"));
}

TEST_F(Http, TheSocketOfALivingServerIsNotTaken) {
    try {
        HttpServer({"unix:" + path_}, [](std::string_view) { return HttpResponse{}; });
        FAIL();
    } catch (const ListenError& error) {
        EXPECT_EQ(std::string(error.what()), "cannot listen on unix:" + path_ + ": another process does");
    }
}

TEST_F(Http, NobodyThereIsSaid) {
    server_.reset();
    EXPECT_FALSE(std::filesystem::exists(path_));
    EXPECT_THROW(http_get(path_, "/known"), HttpError);
}

TEST_F(Http, HalfOfAnAnswerIsNone) {
    server_.reset();
    const ListeningSockets listening("unix:" + path_);
    std::thread serving([&] {
        pollfd waiting{listening.sockets().front().get(), POLLIN, 0};
        poll(&waiting, 1, -1);
        const Descriptor client = accepted(waiting.fd);
        waiting = {client.get(), POLLIN, 0};
        poll(&waiting, 1, -1);
        char request[100];
        recv(client.get(), request, sizeof(request), 0);
        const std::string half = "HTTP/1.0 200 OK\r\nContent-Length: 100\r\nConnection: close\r\n\r\n{\"ports\": [";
        send(client.get(), half.data(), half.size(), MSG_NOSIGNAL);
    });
    EXPECT_THROW(http_get(path_, "/known"), HttpError);
    serving.join();
}

TEST(OpenMetrics, FamiliesSamplesAndTheEnd) {
    OpenMetrics metrics;
    metrics.family("punts", OpenMetrics::Type::kCounter, "Packets punted.");
    metrics.sample(3, {{"router", "7"}, {"reason", "a\"b\\c\nd"}});
    metrics.family("ports", OpenMetrics::Type::kGauge, "Ports.");
    metrics.sample(2);
    EXPECT_EQ(std::move(metrics).text(),
              "# TYPE vr_forwarder_punts counter\n# HELP vr_forwarder_punts Packets punted.\n"
              "vr_forwarder_punts_total{router=\"7\",reason=\"a\\\"b\\\\c d\"} 3\n"
              "# TYPE vr_forwarder_ports gauge\n# HELP vr_forwarder_ports Ports.\nvr_forwarder_ports 2\n# EOF\n");
}

TEST(Json, NestedAndEscaped) {
    const Json json{
        {"a", "x\"\\\n"}, {"list", Json::array({"y"})}, {"empty", Json::object()}, {"b", true}, {"n", UINT64_MAX}};
    EXPECT_EQ(json_text(json, 2),
              "{\n  \"a\": \"x\\\"\\\\\\n\",\n"
              "  \"list\": [\n    \"y\"\n  ],\n  \"empty\": {},\n  \"b\": true,\n"
              "  \"n\": 18446744073709551615\n}");
}

TEST(Json, WhatIsNotUtf8IsReplaced) { EXPECT_EQ(json_text("eth\xff", -1), "\"eth\uFFFD\""); }

}  // namespace
}  // namespace splitplane
