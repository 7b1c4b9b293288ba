// SPDX-License-Identifier: Apache-2.0

#include "engine/xdp/xdp_engine.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "engine/xdp/device_losses.h"

namespace splitplane {
namespace {

// Punts taken at a time, so that a flood of them does not keep who stops the engine waiting.
constexpr int kPuntsAtOnce = 256;
constexpr int kEnoughPunts = -EAGAIN;

constexpr size_t kMacOctets = 12;

}  // namespace

void XdpEngine::FreeRing::operator()(ring_buffer* ring) const { ring_buffer__free(ring); }

XdpEngine::XdpEngine(XdpOptions options)
    : options_(std::move(options)),
      pins_(options_.bpffs, options_.instance),
      // Before Linux 6.3 no frame of several buffers can be redirected: without this drivers refuse what brings them.
      object_(XdpObject::forwarding_program(), options_.capacity, pins_.path(), features_.known()),
      carrier_(object_),
      losses_(object_, pins_.path()),
      clock_(object_, pins_.path(), options_.core_shares),
      stop_(::eventfd(0, EFD_CLOEXEC)),
      ports_(object_, features_, pins_.path(), options_.generic_only) {
    if (!stop_) throw EngineError("cannot make an eventfd: " + error_text(errno));
    ring_.reset(ring_buffer__new(object_.map("map_punts"), take_punt, this, nullptr));
    if (!ring_) throw EngineError("cannot read the ring of punts: " + error_text(errno));
}

XdpEngine::~XdpEngine() { stop(); }

void XdpEngine::stop() {
    const uint64_t one = 1;
    if (threads_.empty() || ::write(stop_.get(), &one, sizeof one) != sizeof one) return;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
}

std::string XdpEngine::description() const {
    return "XDP, layout " + std::to_string(SP_LAYOUT) + ", instance " + options_.instance;
}

std::vector<std::string> XdpEngine::remarks() const {
    std::vector<std::string> all;
    if (pins_.mounted()) all.push_back("mounted a bpffs at " + options_.bpffs);
    if (!carrier_.remark().empty()) all.push_back(carrier_.remark());
    if (!losses_.problem().empty()) all.push_back(losses_.problem());
    if (!clock_.problem().empty()) all.push_back(clock_.problem());
    if (object_.counters_taken_over()) all.push_back("counters go on from those of the last process");
    return all;
}

size_t XdpEngine::detach(const std::string& instance, const std::string& bpffs) { return remove_pins(bpffs, instance); }

// -- ports ------------------------------------------------------------------------------------------------------------
void XdpEngine::activate(const std::vector<Port>& ports) {
    const std::lock_guard guard(mutex_);
    open_packet_sockets(ports);  // before transmit() finds a port
    ports_.activate(ports);
    tell_ports();
    carrier_.attach(pins_.path());
    losses_.take_over();
    clock_.take_over();
    object_.drop_other_counters();
    if (!threads_.empty()) return;
    const auto every_ms = static_cast<int>(options_.look_every.count());
    threads_.emplace_back(
        [this] { run({object_.map("map_punts")}, -1, [this] { ring_buffer__consume(ring_.get()); }); });
    threads_.emplace_back([this, every_ms] { run(ports_.descriptors(), every_ms, [this] { settle_changed(); }); });
}

void XdpEngine::open_packet_sockets(const std::vector<Port>& ports) {
    for (const Port& port : ports) {
        if (port.number >= SP_PORTS || packets_[port.number]) continue;
        packets_[port.number] = Descriptor(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        if (!packets_[port.number]) {
            const std::string remedy = errno == EPERM ? "; it needs CAP_NET_RAW" : "";
            throw EngineError("cannot open a packet socket: " + error_text(errno) + remedy);
        }
    }
}

// With the ports' lock held.
void XdpEngine::tell_ports() {
    const std::lock_guard guard(told_mutex_);
    told_ = ports_.statuses();
}

std::vector<PortStatus> XdpEngine::ports() {
    const std::lock_guard guard(told_mutex_);
    return told_;
}

std::vector<PortLosses> XdpEngine::losses() {
    std::vector<PortLosses> all;
    const std::vector<EgressLosses> egress = losses_.read();
    for (const PortStatus& status : ports()) {
        const Port& port = status.port;
        all.push_back({port.number, egress[port.number], read_device_losses(port.interface)});
    }
    return all;
}

// -- packets ----------------------------------------------------------------------------------------------------------
bool XdpEngine::transmit(uint32_t port, uint16_t vlan, std::span<const uint8_t> frame) {
    const uint32_t ifindex = ports_.ifindex_of(port);
    bool sent = false;
    if (ifindex != 0 && frame.size() >= ETH_HLEN) {
        const std::array<uint8_t, 4> tag = {0x81, 0x00, static_cast<uint8_t>(vlan >> 8 & 0xf),
                                            static_cast<uint8_t>(vlan)};
        auto* octets = const_cast<uint8_t*>(frame.data());
        std::array<iovec, 3> parts = {{
            {octets, kMacOctets},
            {const_cast<uint8_t*>(tag.data()), vlan == 0 ? 0 : tag.size()},
            {octets + kMacOctets, frame.size() - kMacOctets},
        }};
        sockaddr_ll address{};
        address.sll_family = AF_PACKET;
        address.sll_ifindex = static_cast<int>(ifindex);
        msghdr message{};
        message.msg_name = &address;
        message.msg_namelen = sizeof address;
        message.msg_iov = parts.data();
        message.msg_iovlen = parts.size();
        sent = ::sendmsg(packets_[port].get(), &message, MSG_DONTWAIT) >= 0;
    }
    if (!sent) ++transmit_failures_;
    return sent;
}

int XdpEngine::take_punt(void* engine, void* record, size_t) {
    auto* self = static_cast<XdpEngine*>(engine);
    static thread_local int taken = 0;
    const auto* punt = static_cast<const sp_punt_record*>(record);
    if (self->sink_) {
        self->sink_({punt->router_interface_id,
                     punt->reason,
                     punt->punt_class,
                     punt->router,
                     punt->interface,
                     {reinterpret_cast<const uint8_t*>(punt + 1), punt->length}});
    }
    return ++taken % kPuntsAtOnce == 0 ? kEnoughPunts : 0;
}

void XdpEngine::settle_changed() {
    const auto now = std::chrono::steady_clock::now();
    const bool look = now - looked_ >= options_.look_every;
    if (look) looked_ = now;
    std::vector<PortStatus> changed;
    {
        const std::lock_guard guard(mutex_);
        changed = ports_.settle_changed(look);
        tell_ports();
    }
    for (const PortStatus& status : changed) {
        if (port_sink_) port_sink_(status);
    }
}

// Until stop() calls `take` whenever one of the descriptors is readable, or none was for so long; -1: for ever.
void XdpEngine::run(std::vector<int> descriptors, int every_ms, const std::function<void()>& take) {
    const Descriptor epoll(::epoll_create1(EPOLL_CLOEXEC));
    descriptors.push_back(stop_.get());
    for (const int descriptor : descriptors) {
        epoll_event event{};
        event.events = EPOLLIN;
        event.data.fd = descriptor;
        ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, descriptor, &event);
    }
    while (true) {
        std::array<epoll_event, 4> events;
        const int count = ::epoll_wait(epoll.get(), events.data(), events.size(), every_ms);
        for (int index = 0; index < count; ++index) {
            if (events[static_cast<size_t>(index)].data.fd == stop_.get()) return;
        }
        if (count >= 0) take();
    }
}

}  // namespace splitplane
