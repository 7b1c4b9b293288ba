// SPDX-License-Identifier: Apache-2.0
#include "server/server.h"

#include <grpcpp/grpcpp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <list>
#include <thread>

#include "server/service.h"
#include "server/sockets.h"

namespace splitplane {

namespace {

constexpr int kKeepaliveMs = 10'000;         // a controller that vanished without a word is noticed
constexpr int kKeepaliveTimeoutMs = 10'000;
constexpr int kHandshakeMs = 5'000;           // for TLS, and for the first words of HTTP/2
constexpr int kLeastPingMs = 1'000;          // what clients may do
constexpr size_t kThreads = 96;              // streams and reads have one each; Write has its own
constexpr auto kStopPatience = std::chrono::milliseconds(200);

// Descriptors are numbered by the lowest that is free: one with such a number is one of as many. Ports, statistics and
// the journal have room behind those of connections, and this host's controller behind those of other hosts.
constexpr int kMostDescriptors = 4096;
constexpr int kApart = 256;

int most_descriptors() {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    return static_cast<int>(std::min<rlim_t>(limit.rlim_cur, kMostDescriptors));
}

// Takes the connections in gRPC's place, which takes none any more once it has found no descriptor for one, and has no
// bound of its own: connections beyond are closed, and counted.
class Doors {
  public:
    using Acceptor = grpc::experimental::ExternalConnectionAcceptor;

    explicit Doors(std::atomic<uint64_t>& refused) : refused_(refused) {}
    void open(const Listener& listener, grpc::ServerBuilder& builder) {
        using Type = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
        const bool local = listener.address.starts_with("unix:");
        auto acceptor = builder.experimental().AddExternalConnectionAcceptor(Type::FROM_FD, listener.credentials);
        const int most = most_descriptors() - (local ? 1 : 2) * kApart;
        doors_.emplace_back(listener.address, std::move(acceptor), most, local);
    }
    int port(size_t which) const { return std::next(doors_.begin(), static_cast<ptrdiff_t>(which))->sockets.port(); }
    void start() {
        if (!stop_) throw ServerError("cannot make an eventfd: " + error_text(errno));
        thread_ = std::thread([this] { run(); });
    }
    ~Doors() {
        const uint64_t one = 1;
        if (thread_.joinable() && write(stop_.get(), &one, sizeof(one)) == sizeof(one)) thread_.join();
    }

  private:
    struct Door {
        Door(const std::string& address, std::unique_ptr<Acceptor> taker, int bound, bool is_local)
            : sockets(address), acceptor(std::move(taker)), most(bound), local(is_local) {}
        ListeningSockets sockets;
        std::unique_ptr<Acceptor> acceptor;
        int most;
        bool local;
    };

    void run() {
        std::vector<pollfd> waiting{{stop_.get(), POLLIN, 0}};
        std::vector<Door*> whose{nullptr};
        for (Door& door : doors_) {
            for (const Descriptor& socket : door.sockets.sockets()) {
                waiting.push_back({socket.get(), POLLIN, 0});
                whose.push_back(&door);
            }
        }
        while (poll(waiting.data(), waiting.size(), -1) >= 0 || errno == EINTR) {
            if (waiting[0].revents != 0) return;
            for (size_t each = 1; each < waiting.size(); ++each) {
                if (waiting[each].revents != 0) take(waiting[each].fd, *whose[each]);
            }
        }
    }

    void take(int listener, Door& door) {
        Descriptor connection = accepted(listener);
        if (!connection) return;
        if (connection.get() >= door.most) {
            ++refused_;
            return;
        }
        const int yes = 1;
        if (!door.local) setsockopt(connection.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
        Acceptor::NewConnectionParameters taken;
        taken.listener_fd = listener;
        taken.fd = connection.release();
        door.acceptor->HandleNewConnection(&taken);
    }

    Descriptor stop_{eventfd(0, EFD_CLOEXEC)};
    std::list<Door> doors_;
    std::atomic<uint64_t>& refused_;
    std::thread thread_;
};

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
    ServerStatistics statistics() const {
        ServerStatistics found = service.statistics();
        found.connections_refused = connections_refused_;
        return found;
    }

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
    std::atomic<uint64_t> connections_refused_{0};
    std::unique_ptr<Doors> doors_;
};

std::vector<int> P4RuntimeServer::Impl::start(const std::vector<Listener>& listeners) {
    grpc::ServerBuilder builder;
    auto doors = std::make_unique<Doors>(connections_refused_);
    for (const Listener& listener : listeners) doors->open(listener, builder);
    grpc::ResourceQuota quota("p4runtime");
    quota.SetMaxThreads(static_cast<int>(kThreads + options_.max_streams + options_.max_reads));
    builder.SetResourceQuota(quota);
    builder.SetMaxReceiveMessageSize(options_.max_request_octets);
    // What is compressed is unpacked, to a thousand times as much, before its size is looked at.
    for (const auto algorithm : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP})
        builder.SetCompressionAlgorithmSupportStatus(algorithm, false);
    builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kLeastPingMs);
    builder.RegisterService(&service);
    server_ = builder.BuildAndStart();
    if (!server_) throw ServerError("cannot start gRPC's server; its log says why");
    doors->start();
    doors_ = std::move(doors);
    std::vector<int> ports;
    for (size_t position = 0; position < listeners.size(); ++position) ports.push_back(doors_->port(position));
    return ports;
}

void P4RuntimeServer::Impl::stop() {
    doors_.reset();
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
    return impl_->statistics();
}

}  // namespace splitplane
