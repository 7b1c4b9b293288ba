// SPDX-License-Identifier: Apache-2.0
//
// A small HTTP/1.0 server for statistics: GET, one answer, closed. And the client that the subcommands use.
//
// One thread serves all connections with poll(2). At most kMostConnections are open, each for at most a few seconds
// and for a request of at most a few kilobytes; more are refused with 503, so that nobody keeps the others waiting.
#pragma once

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace splitplane {

struct HttpResponse {
    int status = 200;
    std::string type = "text/plain; charset=utf-8";
    std::string body;
};

// Answers a path ("/metrics"). Called from the server's thread; may throw, which is answered with 500.
using HttpAnswer = std::function<HttpResponse(std::string_view path)>;

// What answers a whole request, whatever it is: 400 where it is no HTTP, 405 where it is no GET. Never throws.
std::string http_response(std::string_view request, const HttpAnswer& answer);

// What a server did not answer, in one line.
class HttpError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

class HttpServer {
  public:
    // Listen at addresses ("HOST:PORT", "unix:PATH") and begin to answer. ListenError where one cannot be had.
    HttpServer(const std::vector<std::string>& addresses, HttpAnswer answer);
    ~HttpServer();

    // Connections that were refused because too many were open.
    uint64_t refused() const;

  private:
    class Loop;
    std::unique_ptr<Loop> loop_;
    std::thread thread_;
};

// Ask a server at a Unix socket. HttpError where nobody answers there, or with another status than 200.
std::string http_get(const std::string& socket_path, const std::string& path);

}  // namespace splitplane
