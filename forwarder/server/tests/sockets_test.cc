// SPDX-License-Identifier: Apache-2.0
//
// Who connects to a server, and how many may.
#include "server/sockets.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "server/probe.h"
#include "server/tests/device.h"

namespace splitplane::testing {
namespace {

using namespace std::literals;

// Fewer descriptors for this process while it lasts.
class Descriptors {
  public:
    explicit Descriptors(rlim_t most) {
        getrlimit(RLIMIT_NOFILE, &before_);
        const rlimit fewer{most, before_.rlim_max};
        setrlimit(RLIMIT_NOFILE, &fewer);
    }
    ~Descriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

  private:
    rlimit before_{};
};

TEST(Server, LeavesDescriptorsThatConnectionsDoNotTake) {
    Folder folder;
    const std::string path = folder.path() / "p4rt.sock";
    const Descriptors few(700);
    Device device(folder.path());
    EXPECT_TRUE(answers(path, 20s));
    // The first words of HTTP/2: whoever says nothing is disconnected after a while, and then there is room for others.
    const auto hello = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"sv;
    std::vector<Descriptor> many;
    char octet = 0;
    do {
        many.push_back(connected(path));
        send(many.back().get(), hello.data(), hello.size(), MSG_NOSIGNAL);
    } while (recv(many.back().get(), &octet, 1, 0) == 1);  // whose connection is taken hears of that
    EXPECT_LT(many.size(), 250u);
    EXPECT_GE(many.size(), 150u);
    EXPECT_EQ(device.server().statistics().connections_refused, 1u);
}

TEST(Server, UnpacksNothing) {
    Folder folder;
    Device device(folder.path());
    const auto stub = p4v1::P4Runtime::NewStub(device.connect());
    grpc::ClientContext context;
    context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
    p4v1::WriteResponse response;
    const grpc::Status status = stub->Write(&context, p4v1::WriteRequest(), &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED) << status.error_message();
}

TEST(Probe, IsNotAnsweredWhereNobodyTakesConnections) {
    Folder folder;
    const std::string path = folder.path() / "p4rt.sock";
    EXPECT_FALSE(answers(path, 20s));
    const ListeningSockets deaf("unix:" + path);
    EXPECT_FALSE(answers(path, 50ms));
}

TEST(Sockets, OfAnAddressThatSomebodyHasAreRefused) {
    const ListeningSockets first("127.0.0.1:0");
    const std::string taken = "127.0.0.1:" + std::to_string(first.port());
    try {
        const ListeningSockets second(taken);
        FAIL();
    } catch (const ListenError& error) {
        EXPECT_EQ(std::string(error.what()), "cannot listen on " + taken + ": Address already in use");
    }
}

TEST(Sockets, WaitAMomentWhereThereIsNoDescriptor) {
    Folder folder;
    const std::string path = folder.path() / "listening.sock";
    const ListeningSockets listening("unix:" + path);
    const Descriptor client = connected(path);
    const Descriptor last(fcntl(client.get(), F_DUPFD_CLOEXEC, 0));
    const Descriptors none(static_cast<rlim_t>(last.get()));
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_FALSE(accepted(listening.sockets().front().get()));
    EXPECT_GE(std::chrono::steady_clock::now() - begin, 100ms);
}

}  // namespace
}  // namespace splitplane::testing
