// SPDX-License-Identifier: Apache-2.0

#include "tests/engine/wires.h"

#include <gtest/gtest.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "engine/xdp/xdp_engine.h"

namespace splitplane::test {

std::string bpffs() { return "/tmp/bpf"; }

std::string enclose() {
    if (::geteuid() != 0) return "network namespaces and XDP need root";
    if (::unshare(CLONE_NEWNET | CLONE_NEWNS) != 0) return "unshare: " + error_text(errno);
    // A /tmp that only this process sees, gone with it.
    if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return "mount: " + error_text(errno);
    if (::mount("tmpfs", "/tmp", "tmpfs", 0, nullptr) != 0) return "tmpfs: " + error_text(errno);
    // The kernel's own multicast would be noise.
    shell("ip link set lo up && echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6");
    return {};
}

void shell(const std::string& command) { ASSERT_EQ(std::system(command.c_str()), 0) << command; }

Wire::Wire(const std::string& near, uint32_t index) : near_(near), far_("far-" + near) {
    const std::string numbered = index == 0 ? "" : " index " + std::to_string(index);
    // Without NAPI at the far end the kernel drops what is redirected to it.
    shell("ip link add dev " + near_ + numbered + " type veth peer name " + far_ + " && ethtool -K " + far_ +
          " tx off gro on > /dev/null && ip link set dev " + far_ + " up && ip link set dev " + near_ + " up");
    socket_ = Descriptor(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL)));
    sockaddr_ll address{};
    address.sll_family = AF_PACKET;
    address.sll_protocol = htons(ETH_P_ALL);
    address.sll_ifindex = static_cast<int>(::if_nametoindex(far_.c_str()));
    EXPECT_EQ(::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    const int on = 1, room = 8 << 20;
    // A queue discipline comes some time after the carrier does, and drops without a word until then.
    ::setsockopt(socket_.get(), SOL_PACKET, PACKET_QDISC_BYPASS, &on, sizeof on);
    ::setsockopt(socket_.get(), SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on);
    ::setsockopt(socket_.get(), SOL_PACKET, PACKET_AUXDATA, &on, sizeof on);
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
}

Wire::~Wire() {
    [[maybe_unused]] const int status = std::system(("ip link del dev " + near_ + " 2> /dev/null").c_str());
}

// A ring that is full is emptied by somebody who has to have his turn first.
void Wire::send(const Octets& frame) const {
    const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    ssize_t sent = ::send(socket_.get(), frame.data(), frame.size(), 0);
    while (sent < 0 && errno == ENOBUFS && std::chrono::steady_clock::now() < patience) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        sent = ::send(socket_.get(), frame.data(), frame.size(), 0);
    }
    ASSERT_EQ(sent, static_cast<ssize_t>(frame.size())) << std::strerror(errno);
}

std::optional<Octets> Wire::receive(std::chrono::milliseconds wait) const {
    pollfd waiting{socket_.get(), POLLIN, 0};
    if (::poll(&waiting, 1, static_cast<int>(wait.count())) != 1) return std::nullopt;
    Octets frame(16384);
    iovec part{frame.data(), frame.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(tpacket_auxdata))> beside;
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = beside.data();
    message.msg_controllen = beside.size();
    const ssize_t length = ::recvmsg(socket_.get(), &message, 0);
    if (length < 0) return std::nullopt;
    frame.resize(static_cast<size_t>(length));
    // The kernel takes a tag out of the frame before a packet socket sees it.
    const cmsghdr* header = CMSG_FIRSTHDR(&message);
    if (header == nullptr) return frame;
    tpacket_auxdata facts;
    std::memcpy(&facts, CMSG_DATA(header), sizeof facts);
    if ((facts.tp_status & TP_STATUS_VLAN_VALID) != 0) {
        Octets tag;
        put(tag, 0x8100, 2);
        put(tag, facts.tp_vlan_tci, 2);
        frame.insert(frame.begin() + 12, tag.begin(), tag.end());
    }
    return frame;
}

void OnTwoWires::SetUpTestSuite() { problem_ = enclose(); }

void OnTwoWires::SetUp() {
    if (!problem_.empty()) FAIL() << problem_;
    lan.emplace("lan");
    up.emplace("up");
}

void OnTwoWires::TearDown() {
    up.reset();
    lan.reset();
    if (problem_.empty()) XdpEngine::detach("test", bpffs());
}

}  // namespace splitplane::test
