// SPDX-License-Identifier: Apache-2.0

#include "engine/xdp/xdp_engine.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/if_packet.h>
#include <linux/membarrier.h>
#include <net/ethernet.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "engine/xdp/offloads.h"

namespace splitplane {
namespace {

// Punts taken at a time, so that a flood of them does not keep link changes waiting.
constexpr int kPuntsAtOnce = 256;
constexpr int kEnoughPunts = -EAGAIN;

constexpr size_t kMacOctets = 12;

std::atomic<uint64_t>& atomic_word(sp_u64& word) { return reinterpret_cast<std::atomic<uint64_t>&>(word); }

}  // namespace

void XdpEngine::FreeRing::operator()(ring_buffer* ring) const { ring_buffer__free(ring); }

XdpEngine::XdpEngine(XdpOptions options)
    : options_(std::move(options)),
      pins_(options_.bpffs, options_.instance),
      object_(XdpObject::forwarding_program(), options_.capacity, pins_.path()),
      links_(pins_.path(), object_.program("forward")),
      packets_(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)),
      stop_(::eventfd(0, EFD_CLOEXEC)) {
    if (!packets_) throw EngineError("cannot open a packet socket: " + error_text(errno) + "; it needs CAP_NET_RAW");
    if (!stop_) throw EngineError("cannot make an eventfd: " + error_text(errno));
    ring_.reset(ring_buffer__new(object_.map("map_punts"), take_punt, this, nullptr));
    if (!ring_) throw EngineError("cannot read the ring of punts: " + error_text(errno));
    synchronize();  // what is not possible is better known now than when a table changes
}

XdpEngine::~XdpEngine() { stop(); }

void XdpEngine::stop() {
    if (!thread_.joinable()) return;
    const uint64_t one = 1;
    if (::write(stop_.get(), &one, sizeof one) == sizeof one) thread_.join();
}

// The kernel answers when every CPU has left whatever it ran inside a read-side critical section of RCU, as an XDP
// program is.
void XdpEngine::synchronize() {
    if (::syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) != 0) {
        // Only on kernels with nohz_full CPUs.
        throw EngineError("the kernel has no global memory barrier (" + error_text(errno) +
                          "); boot without nohz_full");
    }
}

std::string XdpEngine::description() const {
    return "XDP, layout " + std::to_string(SP_LAYOUT) + ", instance " + options_.instance;
}

std::vector<std::string> XdpEngine::remarks() const {
    std::vector<std::string> all;
    if (pins_.mounted()) all.push_back("mounted a bpffs at " + options_.bpffs);
    if (object_.counters_taken_over()) all.push_back("counters go on from those of the last process");
    return all;
}

size_t XdpEngine::detach(const std::string& instance, const std::string& bpffs) { return remove_pins(bpffs, instance); }

// -- ports ------------------------------------------------------------------------------------------------------------
void XdpEngine::activate(const std::vector<Port>& ports) {
    const std::lock_guard guard(mutex_);
    std::map<uint32_t, Attached> earlier = std::exchange(ports_, {});
    for (const Port& port : ports) {
        if (port.number == 0 || port.number >= SP_PORTS) {
            throw EngineError("port " + std::to_string(port.number) + ": numbers are 1 to " +
                              std::to_string(SP_PORTS - 1));
        }
        ports_[port.number].status.port = port;
    }
    active_ = false;
    attach_all();
    for (const auto& [number, attached] : earlier) {
        const bool same_number = ports_.contains(number);
        const bool same_interface =
            std::ranges::any_of(ports_, [&](const auto& entry) { return entry.second.ifindex == attached.ifindex; });
        if (!same_interface) unmap_interface(attached.ifindex);
        if (!same_number) unmap_number(number);
    }
    detach_others();
    const bool any = std::ranges::any_of(ports_, [](const auto& entry) { return entry.second.ifindex != 0; });
    if (!any && !ports_.empty()) {
        const PortStatus& first = ports_.begin()->second.status;
        throw EngineError(first.port.interface + ": " + first.problem);
    }
    active_ = true;
    object_.drop_other_counters();
    if (!thread_.joinable()) thread_ = std::thread(&XdpEngine::run, this);
}

// All ports are known to the new tables before the first packet goes through them.
void XdpEngine::attach_all() {
    generic_ = options_.generic_only;
    for (auto& [number, port] : ports_) {
        const auto state = interfaces_.find(port.status.port.interface);
        if (state) map_port(number, state->ifindex);
    }
    for (auto& entry : ports_) settle(entry.second);
    // A native program cannot send through a driver that has no native XDP.
    const auto is_mode = [](const char* mode) {
        return [mode](const auto& entry) { return entry.second.status.mode == mode; };
    };
    if (std::ranges::any_of(ports_, is_mode("generic")) && std::ranges::any_of(ports_, is_mode("native"))) {
        generic_ = true;
        for (auto& entry : ports_) {
            Attached& port = entry.second;
            if (port.status.mode == "native") attach(port, port.ifindex);
        }
    }
}

// Brings a port in line with its interface.
void XdpEngine::settle(Attached& port) {
    const auto state = interfaces_.find(port.status.port.interface);
    port.status.present = state.has_value();
    port.status.up = state && state->up;
    if (!state) {
        lose(port);
        port.status.problem = "there is no such interface";
    } else if (port.ifindex != state->ifindex) {
        lose(port);
        attach(port, state->ifindex);
    }
}

void XdpEngine::attach(Attached& port, uint32_t ifindex) {
    const std::string& name = port.status.port.interface;
    port.status.problem.clear();
    try {
        if (!map_port(port.status.port.number, ifindex))
            throw EngineError("its ifindex finds no room in the port table");
        const Attachment attachment = links_.attach(ifindex, generic_);
        port.ifindex = ifindex;
        port.status.mode = attachment.generic ? "generic" : "native";
        ifindexes_[port.status.port.number] = ifindex;
        port.status.problem = attachment.problem;
        const std::string offload = settle_offloads(name, attachment.generic);
        if (!offload.empty()) port.status.problem = offload;
        if (active_ && attachment.generic && !generic_) {
            port.status.problem =
                "its driver has no native XDP and other ports are native: it gets no packets; restart";
        }
    } catch (const EngineError& error) {
        unmap_port(port.status.port.number, ifindex);
        port.status.problem = error.what();
        const size_t at = port.status.problem.find("NAME");
        if (at != std::string::npos) port.status.problem.replace(at, 4, name);
    }
}

void XdpEngine::lose(Attached& port) {
    if (port.ifindex == 0) return;
    unmap_port(port.status.port.number, port.ifindex);
    links_.detach(port.ifindex);
    port.ifindex = 0;
    port.status.mode.clear();
}

// False where there is no free entry near enough; the kernel gives indexes one after the other, so there is.
bool XdpEngine::map_port(uint32_t number, uint32_t ifindex) {
    const uint64_t entry = uint64_t{ifindex} << 32 | number;
    sp_u64* free = nullptr;
    for (uint32_t probe = 0; probe < SP_PORT_PROBES; ++probe) {
        sp_u64& slot = object_.fixed().port_of_ifindex[(ifindex + probe) % SP_PORT_SLOTS];
        if (slot >> 32 == ifindex) {
            free = &slot;
            break;
        }
        if (slot == 0 && free == nullptr) free = &slot;
    }
    if (free == nullptr) return false;
    atomic_word(*free).store(entry);
    return bpf_map_update_elem(object_.map("map_ports"), &number, &ifindex, BPF_ANY) == 0;
}

void XdpEngine::unmap_port(uint32_t number, uint32_t ifindex) {
    unmap_interface(ifindex);
    unmap_number(number);
}

void XdpEngine::unmap_interface(uint32_t ifindex) {
    for (uint32_t probe = 0; probe < SP_PORT_PROBES; ++probe) {
        sp_u64& slot = object_.fixed().port_of_ifindex[(ifindex + probe) % SP_PORT_SLOTS];
        if (ifindex != 0 && slot >> 32 == ifindex) atomic_word(slot).store(0);
    }
}

void XdpEngine::unmap_number(uint32_t number) {
    ifindexes_[number] = 0;
    bpf_map_delete_elem(object_.map("map_ports"), &number);
}

void XdpEngine::detach_others() {
    for (const uint32_t ifindex : links_.attached()) {
        const bool ours =
            std::ranges::any_of(ports_, [&](const auto& entry) { return entry.second.ifindex == ifindex; });
        if (!ours) links_.detach(ifindex);
    }
}

std::vector<PortStatus> XdpEngine::ports() {
    const std::lock_guard guard(mutex_);
    std::vector<PortStatus> all;
    for (const auto& entry : ports_) all.push_back(entry.second.status);
    return all;
}

// -- packets ----------------------------------------------------------------------------------------------------------
bool XdpEngine::transmit(uint32_t port, uint16_t vlan, std::span<const uint8_t> frame) {
    const uint32_t ifindex = port < SP_PORTS ? ifindexes_[port].load() : 0;
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
        sent = ::sendmsg(packets_.get(), &message, MSG_DONTWAIT) >= 0;
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
    std::vector<PortStatus> changed;
    {
        const std::lock_guard guard(mutex_);
        interfaces_.read_changes();
        for (auto& entry : ports_) {
            Attached& port = entry.second;
            const PortStatus before = port.status;
            settle(port);
            const PortStatus& now = port.status;
            if (now.up != before.up || now.present != before.present || now.mode != before.mode ||
                now.problem != before.problem) {
                changed.push_back(now);
            }
        }
    }
    for (const PortStatus& status : changed) {
        if (port_sink_) port_sink_(status);
    }
}

void XdpEngine::run() {
    const Descriptor epoll(::epoll_create1(EPOLL_CLOEXEC));
    for (const int descriptor : {stop_.get(), interfaces_.descriptor(), object_.map("map_punts")}) {
        epoll_event event{};
        event.events = EPOLLIN;
        event.data.fd = descriptor;
        ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, descriptor, &event);
    }
    while (true) {
        std::array<epoll_event, 3> events;
        const int count = ::epoll_wait(epoll.get(), events.data(), events.size(), -1);
        for (int index = 0; index < count; ++index) {
            const int descriptor = events[static_cast<size_t>(index)].data.fd;
            if (descriptor == stop_.get()) return;
            if (descriptor == interfaces_.descriptor()) {
                settle_changed();
            } else {
                ring_buffer__consume(ring_.get());
            }
        }
    }
}

}  // namespace splitplane
