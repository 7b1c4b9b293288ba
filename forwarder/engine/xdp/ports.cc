// SPDX-License-Identifier: Apache-2.0

#include "engine/xdp/ports.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/rtnetlink.h>

#include <algorithm>
#include <utility>

#include "engine/netdev/netlink.h"
#include "engine/netdev/offloads.h"
#include "engine/netdev/virtual_function.h"
#include "engine/xdp/promiscuity.h"

namespace splitplane {
namespace {

constexpr const char* kBond = "bond";

std::atomic<uint64_t>& atomic_word(sp_u64& word) { return reinterpret_cast<std::atomic<uint64_t>&>(word); }

void set_mtu(uint32_t ifindex, uint32_t mtu) {
    NetlinkRequest request(RTM_NEWLINK, 0);
    ifinfomsg body{};
    body.ifi_index = static_cast<int>(ifindex);
    request.body(body).attribute(IFLA_MTU, mtu);
    ask_netlink(NETLINK_ROUTE, request);
}

// One line of several.
std::string joined(const std::vector<std::string>& lines) {
    std::string all;
    for (const std::string& line : lines) {
        if (!line.empty()) all += (all.empty() ? "" : "; ") + line;
    }
    return all;
}

}  // namespace

XdpPorts::XdpPorts(XdpObject& object, XdpFeatures& features, const std::string& pins, bool generic_only)
    : object_(object),
      features_(features),
      notes_(pins),
      links_(pins, object.program("forward")),
      generic_only_(generic_only) {
    for (const char* kind : {kPromiscuousNote, kRefusedNote}) {
        for (const uint32_t ifindex : notes_.all(kind)) {
            if (!interfaces_.all().find(ifindex)) notes_.drop(kind, ifindex);
        }
    }
}

std::vector<int> XdpPorts::descriptors() const {
    std::vector<int> all{interfaces_.descriptor()};
    if (features_.known()) all.push_back(features_.descriptor());
    return all;
}

std::vector<PortStatus> XdpPorts::statuses() const {
    std::vector<PortStatus> all;
    for (const auto& entry : ports_) all.push_back(entry.second.status);
    return all;
}

void XdpPorts::activate(const std::vector<Port>& ports) {
    interfaces_.read_changes();  // since this was made the tables were filled, of many routes
    std::map<uint32_t, Attached> wanted;
    for (const Port& port : ports) {
        if (port.number == 0 || port.number >= SP_PORTS) {
            throw EngineError("port " + std::to_string(port.number) + ": numbers are 1 to " +
                              std::to_string(SP_PORTS - 1));
        }
        wanted[port.number].status.port = port;
    }
    ports_ = std::move(wanted);
    settle_all(true);
    detach_others();
    const bool any = std::ranges::any_of(ports_, [](const auto& entry) { return entry.second.ifindex != 0; });
    if (!any && !ports_.empty()) {
        const PortStatus& first = ports_.begin()->second.status;
        throw EngineError(first.port.interface + ": " + first.problem);
    }
}

std::vector<PortStatus> XdpPorts::settle_changed(bool look) {
    interfaces_.read_changes();
    for (auto& [number, port] : ports_) {
        if (look && port.ifindex != 0 && !links_.holds(port.ifindex)) port.changes.clear();
    }
    const bool others = features_.known() && features_.forget_changes();
    const std::vector<PortStatus> before = statuses();
    settle_all(others);
    std::vector<PortStatus> changed;
    for (const PortStatus& was : before) {
        const PortStatus& now = ports_[was.port.number].status;
        if (now.up != was.up || now.present != was.present || now.mode != was.mode || now.problem != was.problem ||
            now.speed != was.speed) {
            changed.push_back(now);
        }
    }
    return changed;
}

// -- from interfaces to ports -----------------------------------------------------------------------------------------
// `all`: not only ports of whose interfaces something was heard. Elsewhere thousands may come and go.
void XdpPorts::settle_all(bool all) {
    for (auto& entry : ports_) {
        Attached& port = entry.second;
        std::vector<uint64_t> changes;
        if (const auto state = interfaces_.all().find(port.status.port.interface)) {
            for (const InterfaceState& device : devices_of(*state)) changes.push_back(device.change);
        }
        port.changed = all || changes != port.changes;
        port.changes = std::move(changes);
        if (port.changed && !find_interface(port)) lose(port);
    }
    map_ports(true);  // before the first packet goes through these tables
    if (attach_all()) all = true;
    map_ports(false);
    for (auto& entry : ports_) {
        if (all || entry.second.changed) review(entry.second);
    }
}

// Whether a port has an interface that the program can be attached to; where that is another one than before, the old
// one is let go.
bool XdpPorts::find_interface(Attached& port) {
    const auto state = interfaces_.all().find(port.status.port.interface);
    port.status.present = state.has_value();
    port.status.up = state && state->up;
    note_link(port.status, state ? state->ifindex : 0);
    port.status.speed = state ? speed_of(port.status.port, *state) : port.status.port.speed;
    port.failure.clear();
    if (!state) {
        port.failure = "there is no such interface";
        return false;
    }
    const auto master = interfaces_.all().find(state->master);
    if (master && master->kind == kBond) {
        port.failure = "it is a member of " + master->name + "; let " + master->name + " be the port";
        return false;
    }
    if (port.ifindex != 0 && (port.ifindex != state->ifindex || !links_.holds(port.ifindex))) lose(port);
    // Some drivers (virtio_net) take an MTU beyond one buffer while a native program is attached, and drop what they
    // then receive; a program of that size they refuse.
    if (port.ifindex != 0 && !port.generic && state->mtu > std::max(port.mtu, kOneBufferMtu) &&
        !receives_frags(facts_of(*state))) {
        // virtio_net of Linux 6.1 refuses at such an MTU to let go of a program as well: it would run on unseen.
        set_mtu(port.ifindex, port.mtu);
        links_.detach(port.ifindex);
        set_mtu(port.ifindex, state->mtu);
        port.ifindex = 0;
    }
    if (port.ifindex == 0 && port.refusal.empty()) recall_refusal(port, state->ifindex);
    if (!port.refusal.empty() && port.conditions != conditions(*state)) {
        port.refusal.clear();
        notes_.drop(kRefusedNote, state->ifindex);
    }
    return true;
}

// A link that is lost is noted in the kernel at once (carrier.bpf.c), and rtnetlink tells of it up to a second later: "up"
// in a message from before is no reason to send there again. So the kernel is asked what holds now, before the note is
// taken back, and once more after that, for what is lost in between.
void XdpPorts::note_link(const PortStatus& status, uint32_t ifindex) {
    sp_arrays& arrays = object_.arrays();
    const uint32_t number = status.port.number;
    if (!status.up) {
        set_port_down(arrays, number, true);
    } else if (is_port_down(arrays, number) && is_link_up(ifindex).value_or(true)) {
        set_port_down(arrays, number, false);
        if (!is_link_up(ifindex).value_or(true)) set_port_down(arrays, number, true);
    }
}

// What an earlier process was refused.
void XdpPorts::recall_refusal(Attached& port, uint32_t ifindex) {
    const auto note = notes_.find(kRefusedNote, ifindex);
    const size_t end = note ? note->find('\n') : std::string::npos;
    if (end == std::string::npos) return;
    port.conditions = note->substr(0, end);
    port.refusal = note->substr(end + 1);
}

void XdpPorts::refuse(Attached& port, const std::string& why) {
    const auto state = interfaces_.all().find(port.status.port.interface);
    links_.detach(state->ifindex);
    port.ifindex = 0;
    port.refusal = why;
}

bool XdpPorts::any_refuses() const {
    return std::ranges::any_of(ports_, [](const auto& entry) { return !entry.second.refusal.empty(); });
}

// Returns whether any was attached.
bool XdpPorts::attach_all() {
    bool any = false;
    do {
        generic_ = generic_only_ || any_refuses();
        for (auto& entry : ports_) {
            Attached& port = entry.second;
            const bool as_wanted = port.ifindex != 0 && port.generic == generic_;
            if (!port.failure.empty() || as_wanted) continue;
            attach(port);
            any = true;
        }
    } while (generic_ != (generic_only_ || any_refuses()));
    return any;
}

void XdpPorts::attach(Attached& port) {
    const std::string& name = port.status.port.interface;
    const auto state = interfaces_.all().find(name);
    port.ifindex = 0;
    port.attach_failed = false;
    try {
        if (!mapped_.contains(state->ifindex)) throw EngineError("its ifindex finds no room in the port table");
        // Drivers refuse native XDP for some offloads, and XDP that is attached for others.
        for (const InterfaceState& device : devices_of(*state)) settle_offloads(device.name, generic_);
        if (!generic_) {
            attach_native(port, *state);
            return;
        }
        links_.attach(state->ifindex, true);
        port.ifindex = state->ifindex;
        port.mtu = state->mtu;
        port.generic = true;
        // Under these conditions it is not tried again. Not those from before: an attach may change them.
        if (!port.refusal.empty()) {
            port.conditions = conditions(*state);
            notes_.put(kRefusedNote, state->ifindex, port.conditions + "\n" + port.refusal);
        }
    } catch (const EngineError& error) {
        port.failure = error.what();
        port.attach_failed = true;
        const size_t at = port.failure.find("NAME");
        if (at != std::string::npos) port.failure.replace(at, 4, name);
    }
}

// Attached, or refused.
void XdpPorts::attach_native(Attached& port, const InterfaceState& state) {
    std::string hindrance;
    for (const InterfaceState& device : devices_of(state)) {
        const std::string of_device = native_hindrance(facts_of(device));
        if (hindrance.empty() && !of_device.empty()) {
            hindrance = (device.ifindex == state.ifindex ? "" : device.name + ": ") + of_device;
        }
    }
    if (!hindrance.empty()) return refuse(port, hindrance);
    const Attachment attached = links_.attach(state.ifindex, false);
    if (attached.error != 0) return refuse(port, native_refusal(facts_of(state), attached.error, attached.words));
    const std::string shortfall = native_shortfall(facts_of(state));
    if (!shortfall.empty()) return refuse(port, shortfall);
    notes_.drop(kRefusedNote, state.ifindex);
    port.ifindex = state.ifindex;
    port.mtu = state.mtu;
    port.generic = false;
}

void XdpPorts::lose(Attached& port) {
    port.refusal.clear();
    port.attach_failed = false;
    if (port.ifindex == 0) return;
    links_.detach(port.ifindex);
    take_promiscuity_back(notes_, port.ifindex);
    notes_.drop(kRefusedNote, port.ifindex);
    port.ifindex = 0;
}

void XdpPorts::detach_others() {
    for (const uint32_t ifindex : links_.attached()) {
        const bool ours =
            std::ranges::any_of(ports_, [&](const auto& entry) { return entry.second.ifindex == ifindex; });
        if (ours) continue;
        links_.detach(ifindex);
        take_promiscuity_back(notes_, ifindex);
        notes_.drop(kRefusedNote, ifindex);
    }
}

// -- the tables -------------------------------------------------------------------------------------------------------
// All ports that have an interface, or those that are attached. Frames of a bond come in by its members (native XDP
// runs in their drivers) and leave by itself. Members that stand by are ports too: what is there when the active one fails
// must not wait for a process that may be away. By a port that is tried once more nothing leaves before it is attached.
void XdpPorts::map_ports(bool all) {
    std::map<uint32_t, uint64_t> wanted;
    std::map<uint32_t, uint32_t> leave;
    for (const auto& [number, port] : ports_) {
        const auto state = interfaces_.all().find(port.status.port.interface);
        if (!state || !(port.ifindex != 0 || (all && port.failure.empty()))) continue;
        if (port.ifindex != 0 || !port.attach_failed) leave[number] = state->ifindex;
        const uint64_t bond = state->kind == kBond ? SP_PORT_OF_BOND : 0;
        for (const InterfaceState& device : devices_of(*state)) {
            wanted[device.ifindex] = uint64_t{device.ifindex} << 32 | bond | number;
        }
    }
    for (const auto& [ifindex, entry] : wanted) {
        sp_u64* free = nullptr;
        for (uint32_t probe = 0; probe < SP_PORT_PROBES; ++probe) {
            sp_u64& slot = object_.fixed().port_of_ifindex[(ifindex + probe) % SP_PORT_SLOTS];
            if (slot >> 32 == ifindex || (slot == 0 && free == nullptr)) free = &slot;
            if (slot >> 32 == ifindex) break;
        }
        // The kernel gives indexes one after the other, so there is.
        if (free == nullptr) continue;
        atomic_word(*free).store(entry);
        mapped_[ifindex] = entry;
    }
    std::erase_if(mapped_, [&](const auto& entry) {
        if (wanted.contains(entry.first)) return false;
        for (uint32_t probe = 0; probe < SP_PORT_PROBES; ++probe) {
            sp_u64& slot = object_.fixed().port_of_ifindex[(entry.first + probe) % SP_PORT_SLOTS];
            if (slot >> 32 == entry.first) atomic_word(slot).store(0);
        }
        return true;
    });
    for (uint32_t number = 1; number < SP_PORTS; ++number) {
        const auto found = leave.find(number);
        const uint32_t ifindex = found == leave.end() ? 0 : found->second;
        const bool same = ifindexes_[number].exchange(ifindex) == ifindex;
        // The kernel forgets whom the devmap had where that was gone meanwhile, also where the number is the same.
        if (same && (ifindex == 0 || !ports_.at(number).changed)) continue;
        if (ifindex == 0) {
            bpf_map_delete_elem(object_.map("map_ports"), &number);
        } else {
            bpf_map_update_elem(object_.map("map_ports"), &number, &ifindex, BPF_ANY);
        }
    }
}

// -- what is wrong ----------------------------------------------------------------------------------------------------
// An interface and, of a bond, its members.
std::vector<InterfaceState> XdpPorts::devices_of(const InterfaceState& state) const {
    std::vector<InterfaceState> all{state};
    if (state.kind == kBond) {
        const std::vector<InterfaceState> members = interfaces_.all().members(state.ifindex);
        all.insert(all.end(), members.begin(), members.end());
    }
    return all;
}

// As it was declared, or as the device says where that is hardware: veth and TAP devices tell speeds that they do not
// have. A bond tells those of its members.
uint64_t XdpPorts::speed_of(const Port& port, const InterfaceState& state) const {
    if (port.speed != 0) return port.speed;
    const std::vector<InterfaceState> devices = devices_of(state);
    const bool hardware = std::ranges::any_of(devices, [](const InterfaceState& each) { return !each.bus.empty(); });
    return hardware ? Ethtool(state.name).speed() : 0;
}

DeviceFacts XdpPorts::facts_of(const InterfaceState& state) const {
    const Ethtool ethtool(state.name);
    DeviceFacts facts;
    facts.name = state.name;
    facts.driver = ethtool.driver();
    facts.mtu = state.mtu;
    facts.channels = ethtool.channels();
    facts.xdp_features = features_.of(state.ifindex);
    const auto offloads = ethtool.offloads();
    for (const char* name : {"rx-lro", "rx-gro-hw"}) {
        const auto found = offloads.find(name);
        facts.joins_packets |= found != offloads.end() && found->second.on;
    }
    facts.virtual_functions = virtual_functions(facts.driver.bus);
    return facts;
}

std::string XdpPorts::conditions(const InterfaceState& state) const {
    std::string all;
    for (const InterfaceState& device : devices_of(state)) {
        all += (all.empty() ? "" : ", ") + device.name + " " + conditions_of(facts_of(device));
    }
    return all;
}

void XdpPorts::review(Attached& port) {
    const auto state = interfaces_.all().find(port.status.port.interface);
    port.status.mode = port.ifindex == 0 ? "" : port.generic ? "generic" : "native";
    port.status.problem = port.failure;
    if (port.ifindex != 0) port.status.problem = problem_of(port, *state);
}

std::string XdpPorts::problem_of(const Attached& port, const InterfaceState& state) const {
    std::vector<std::string> lines{keep_promiscuous(notes_, state)};
    if (!port.refusal.empty()) {
        lines.push_back(port.refusal);
    } else if (port.generic && !generic_only_) {
        const auto refuses = [](const auto& entry) { return !entry.second.refusal.empty(); };
        const auto first = std::ranges::find_if(ports_, refuses);
        lines.push_back("generic because " + first->second.status.port.interface + " is");
    }
    for (const InterfaceState& device : devices_of(state)) {
        for (std::string& line : settle_offloads(device.name, port.generic)) lines.push_back(std::move(line));
        const DeviceFacts facts = facts_of(device);
        lines.push_back(virtual_function_problem(facts.driver.bus));
        if (port.generic) continue;
        lines.push_back(transmit_problem(facts, static_cast<uint32_t>(libbpf_num_possible_cpus())));
        if (device.ifindex == state.ifindex) lines.push_back(frags_problem(facts));
    }
    return joined(lines);
}

std::string XdpPorts::frags_problem(const DeviceFacts& facts) const {
    if (!lacks_transmit_frags(facts)) return "";
    for (const auto& entry : ports_) {
        const auto other = interfaces_.all().find(entry.second.status.port.interface);
        if (!other || other->name == facts.name || !receives_frags(facts_of(*other))) continue;
        return "frames in several buffers, as " + other->name + " may receive them, are lost on the way out of it; " +
               "run: ip link set dev " + other->name + " mtu " + std::to_string(kOneBufferMtu);
    }
    return "";
}

}  // namespace splitplane
