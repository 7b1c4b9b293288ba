// SPDX-License-Identifier: Apache-2.0
#include "server/server.h"

#include <grpcpp/grpcpp.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "server/service.h"

namespace splitplane {

namespace {

constexpr int kKeepaliveMs = 10'000;         // a controller that vanished without a word is noticed
constexpr int kKeepaliveTimeoutMs = 10'000;
constexpr int kLeastPingMs = 1'000;          // what clients may do
constexpr size_t kThreads = 96;              // streams and reads have one each; Write has its own
constexpr auto kStopPatience = std::chrono::milliseconds(200);

}  // namespace

class P4RuntimeServer::Impl {
  public:
    Impl(Tables& tables, Engine& engine, ServerOptions options)
        : service(tables, engine, options), options_(std::move(options)), gate_(std::make_shared<Gate>(&service)) {
        engine.set_punt_sink([gate = gate_](const Punt& punt) {
            std::lock_guard guard(gate->mutex);
            if (gate->service != nullptr) {
                gate->service->punt(punt);
            }
        });
    }
    ~Impl() {
        stop();
        std::lock_guard guard(gate_->mutex);
        gate_->service = nullptr;
    }

    std::vector<int> start(const std::vector<Listener>& listeners);
    void stop();

    Service service;

  private:
    // The engine, and with it its thread, lives longer than the server.
    struct Gate {
        explicit Gate(Service* open) : service(open) {}
        std::mutex mutex;
        Service* service;
    };

    ServerOptions options_;
    std::shared_ptr<Gate> gate_;
    std::unique_ptr<grpc::Server> server_;
};

std::vector<int> P4RuntimeServer::Impl::start(const std::vector<Listener>& listeners) {
    grpc::ServerBuilder builder;
    std::vector<int> ports(listeners.size());
    for (size_t position = 0; position < listeners.size(); ++position) {
        builder.AddListeningPort(listeners[position].address, listeners[position].credentials, &ports[position]);
    }
    grpc::ResourceQuota quota("p4runtime");
    quota.SetMaxThreads(static_cast<int>(kThreads + options_.max_streams + options_.max_reads));
    builder.SetResourceQuota(quota);
    builder.SetMaxReceiveMessageSize(options_.max_request_octets);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kLeastPingMs);
    builder.RegisterService(&service);
    server_ = builder.BuildAndStart();
    for (size_t position = 0; position < listeners.size(); ++position) {
        bool unix_socket = listeners[position].address.starts_with("unix:");
        if (ports[position] == 0 || !server_) {
            std::string all;
            for (const auto& listener : listeners) {
                all += (all.empty() ? "" : ", ") + listener.address;
            }
            server_.reset();
            throw ServerError("cannot listen on " + (listeners.size() == 1 ? all : "one of " + all) +
                              "; is another program there, or is the address wrong?");
        }
        ports[position] = unix_socket ? 0 : ports[position];
        if (unix_socket && chmod(listeners[position].address.c_str() + 5, 0600) != 0) {
            server_.reset();
            throw ServerError("cannot keep others away from " + listeners[position].address + ": " +
                              std::strerror(errno));
        }
    }
    return ports;
}

void P4RuntimeServer::Impl::stop() {
    if (server_) {
        server_->Shutdown(std::chrono::system_clock::now() + kStopPatience);
        server_->Wait();
        server_.reset();
    }
}

P4RuntimeServer::P4RuntimeServer(Tables& tables, Engine& engine, ServerOptions options)
    : impl_(std::make_unique<Impl>(tables, engine, std::move(options))) {}

P4RuntimeServer::~P4RuntimeServer() = default;

std::vector<int> P4RuntimeServer::start(const std::vector<Listener>& listeners) {
    return impl_->start(listeners);
}

void P4RuntimeServer::stop() {
    impl_->stop();
}

ServerStatistics P4RuntimeServer::statistics() const {
    return impl_->service.statistics();
}

}  // namespace splitplane
