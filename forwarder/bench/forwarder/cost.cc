// SPDX-License-Identifier: Apache-2.0
//
// forwarder_cost: nanoseconds per packet of the programs in cost.bpf.c, by BPF_PROG_TEST_RUN on one core.
//
//     forwarder_cost ROUTES IFINDEX ROUNDS CPU VRFS...
//
// ROUTES is a file of prefixes, each a line "address length nexthop" of decimal numbers. They are dealt out to the VRFs
// one by one, and are all in the main table behind the interface IFINDEX already. Prints one line of JSON.

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <linux/bpf.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <random>

#include "engine/xdp/object.h"
#include "fib/fib.h"

extern "C" {
#include "bench/forwarder/arrival.h"
}

namespace splitplane {
namespace {

alignas(8) constexpr uint8_t kPrograms[] = {
#include "bench/forwarder/cost.inc"
};
constexpr std::array kNames = {"next_arrival", "redirect_only", "kernel_lookup", "whole_pipeline"};

constexpr uint32_t kSource = 0x0a000002;  // 10.0.0.2
constexpr uint32_t kVlansOfPort = 2048;   // of one port, so that 4096 routers need two
constexpr uint32_t kOut = 3;              // the port that everything leaves by
constexpr uint32_t kNexthops = 64;        // in all, or four of each router
constexpr uint32_t kInterfaces = 16;      // that packets leave by, in all, or one of each router

struct Route {
    uint32_t address;
    uint32_t length;
    uint32_t nexthop;
};

struct NoReaders : GracePeriods {
    void synchronize() override {}
};

[[noreturn]] void give_up(const std::string& why) {
    std::cerr << "forwarder_cost: " << why << '\n';
    std::exit(1);
}

std::vector<Route> read_routes(const char* path) {
    std::ifstream file(path);
    std::vector<Route> routes;
    for (Route route{}; file >> route.address >> route.length >> route.nexthop;) routes.push_back(route);
    if (routes.empty()) give_up(std::string("no routes in ") + path);
    return routes;
}

std::array<uint8_t, BENCH_FRAME_OCTETS> frame_to(uint32_t destination) {
    std::array<uint8_t, BENCH_FRAME_OCTETS> frame{};
    const std::array<uint8_t, 26> head = {
        2, 0, 0, 0, 0, 0xaa, 2, 0, 0, 0, 0, 0x99, 0x81, 0, 0, 1, 8, 0, 0x45, 0, 0, BENCH_FRAME_OCTETS - 18, 0, 0, 0, 0};
    std::copy(head.begin(), head.end(), frame.begin());
    frame[26] = BENCH_TTL;
    frame[27] = 17;
    const uint32_t source = htonl(kSource), wire = htonl(destination);
    std::copy_n(reinterpret_cast<const uint8_t*>(&source), 4, &frame[30]);
    std::copy_n(reinterpret_cast<const uint8_t*>(&wire), 4, &frame[34]);
    uint32_t sum = 0;
    for (size_t at = 18; at < 38; at += 2) sum += static_cast<uint32_t>(frame[at] << 8 | frame[at + 1]);
    while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
    frame[28] = static_cast<uint8_t>(~sum >> 8);
    frame[29] = static_cast<uint8_t>(~sum);
    return frame;
}

uint32_t port_of(uint32_t router) { return 1 + router / kVlansOfPort; }
uint32_t vlan_of(uint32_t router) { return 1 + router % kVlansOfPort; }

// Routers side by side with equal shares of the routes, each with interfaces and nexthops of its own.
class Tables {
  public:
    Tables(const std::vector<Route>& routes, uint32_t routers)
        : object_(kPrograms, Capacity{}), fib_(object_.arrays(), grace_), routers_(routers) {
        const uint32_t interfaces = std::max(1u, kInterfaces / routers), nexthops = std::max(4u, kNexthops / routers);
        for (uint32_t router = 0; router < routers; ++router) write_router(router, interfaces, nexthops);
        for (size_t index = 0; index < routes.size(); ++index) {
            const Route& route = routes[index];
            const auto router = static_cast<uint32_t>(index % routers);
            Prefix prefix;
            const uint32_t wire = htonl(route.address);
            std::copy_n(reinterpret_cast<const uint8_t*>(&wire), 4, prefix.address.begin());
            prefix.length = static_cast<uint8_t>(route.length);
            const uint32_t leaf = sp_leaf(SP_ROUTE_NEXTHOP, router * nexthops + route.nexthop % nexthops);
            if (fib_.set(router + 1, Family::kIpv4, prefix, leaf) != FibResult::kDone) give_up("the tries are full");
        }
        fib_.settle();
        prepare(routes);
    }

    void attach(uint32_t ifindex) {
        for (uint32_t port = 1; port <= kOut; ++port) {
            if (bpf_map_update_elem(object_.map("map_ports"), &port, &ifindex, BPF_ANY) != 0) give_up("devmap");
        }
        const uint32_t zero = 0;
        const std::array<uint64_t, 2> state = {0, ifindex};
        bpf_map_update_elem(object_.map("bench_state"), &zero, state.data(), BPF_ANY);
    }

    // Nanoseconds for each of ARRIVALS packets.
    double run(const char* program) {
        const auto frame = frame_to(0);
        bpf_test_run_opts options{};
        options.sz = sizeof options;
        options.data_in = frame.data();
        options.data_size_in = frame.size();
        options.repeat = ARRIVALS;
        if (bpf_prog_test_run_opts(object_.program(program), &options) != 0) give_up(error_text(errno));
        if (options.retval != XDP_REDIRECT) give_up(std::string(program) + " does not redirect its packet");
        return options.duration;
    }

    // Packets that left, by the tables' own counters.
    uint64_t sent() {
        uint64_t total = 0;
        const sp_arrays& tables = object_.arrays();
        for (size_t slot = 0; slot < size_t{tables.cpus} * SP_INTERFACES; ++slot) total += tables.tx[slot].packets;
        return total;
    }
    double bytes_per_route() const {
        return static_cast<double>(fib_.memory().trie_used) / static_cast<double>(fib_.size(Family::kIpv4));
    }

  private:
    void write_router(uint32_t router, uint32_t interfaces, uint32_t nexthops) {
        sp_arrays& tables = object_.arrays();
        const uint32_t vrf = router + 1, ingress = 1 + router, egress = 1 + routers_ + router * interfaces;
        tables.vrfs[vrf].id = vrf;
        tables.macs[ingress] = BENCH_OWN_MAC;
        tables.interfaces[ingress].id = ingress;
        tables.classifier[sp_classifier_index(port_of(router), vlan_of(router))] =
            sp_classifier(SP_CLASSIFIER_INGRESS, vrf, ingress, ingress);
        for (uint32_t number = 0; number < interfaces; ++number) {
            tables.egresses[egress + number] = {sp_port(kOut, vlan_of(router), 1500), SP_PRESENT | BENCH_OWN_MAC};
            tables.interfaces[egress + number].id = egress + number;
        }
        for (uint32_t number = 0; number < nexthops; ++number) {
            tables.nexthops[router * nexthops + number] =
                sp_nexthop(SP_NEXTHOP_FORWARD, egress + number % interfaces, 0x020000010000 + number);
        }
    }

    // A random address of a random route, each time.
    void prepare(const std::vector<Route>& routes) {
        const size_t octets = size_t{ARRIVALS} * sizeof(arrival);
        void* memory = ::mmap(nullptr, octets, PROT_READ | PROT_WRITE, MAP_SHARED, object_.map("bench_arrivals"), 0);
        if (memory == MAP_FAILED) give_up("cannot map the arrivals");
        auto* arrivals = static_cast<arrival*>(memory);
        std::mt19937 random(1);
        for (uint32_t number = 0; number < ARRIVALS; ++number) {
            const size_t index = random() % routes.size();
            const auto router = static_cast<uint32_t>(index % routers_);
            const uint32_t host = routes[index].length == 32 ? 0 : random() & ~0u >> routes[index].length;
            const auto frame = frame_to(routes[index].address | host);
            arrival& each = arrivals[number];
            std::copy_n(&frame[34], 4, reinterpret_cast<uint8_t*>(&each.dst));
            std::copy_n(&frame[28], 2, reinterpret_cast<uint8_t*>(&each.checksum));
            each.tag = static_cast<uint16_t>(port_of(router) << ARRIVAL_VLAN_BITS | vlan_of(router));
        }
        ::munmap(memory, octets);
    }

    NoReaders grace_;
    XdpObject object_;
    Fib fib_;
    uint32_t routers_;
};

double median(std::vector<double> values) {
    std::ranges::sort(values);
    return values[(values.size() - 1) / 2];
}

void print(const char* name, const std::vector<double>& values, const char* behind) {
    std::printf("\"%s\": %.1f%s", name, median(values), behind);
}

int measure(const std::vector<Route>& routes, uint32_t ifindex, int rounds, const std::vector<uint32_t>& vrfs) {
    std::printf("{\"vrfs\": {");
    std::map<std::string, std::vector<double>> others;
    for (size_t each = 0; each < vrfs.size(); ++each) {
        Tables tables(routes, vrfs[each]);
        tables.attach(ifindex);
        std::map<std::string, std::vector<double>> spent;
        for (int round = -1; round < rounds; ++round) {
            for (const char* name : kNames) {
                const uint64_t before = tables.sent();
                const double ns = tables.run(name);
                if (name == kNames.back() && tables.sent() - before != ARRIVALS) give_up("packets were not forwarded");
                if (round < 0) continue;  // caches are cold
                spent[name].push_back(ns);
                others[name].push_back(ns);
            }
        }
        std::printf("%s\"%u\": {", each == 0 ? "" : ", ", vrfs[each]);
        print("ns_per_packet", spent["whole_pipeline"], ", ");
        print("redirect_only_ns", spent["redirect_only"], ", ");
        print("bpf_fib_lookup_ns", spent["kernel_lookup"], ", ");
        std::printf("\"bytes_per_route\": %.1f}", tables.bytes_per_route());
    }
    std::printf("}, ");
    print("redirect_only_ns", others["redirect_only"], ", ");
    print("bpf_fib_lookup_ns", others["kernel_lookup"], ", ");
    print("next_arrival_ns", others["next_arrival"], "}\n");
    return 0;
}

}  // namespace
}  // namespace splitplane

int main(int count, char** words) {
    if (count < 6) {
        std::cerr << "usage: forwarder_cost ROUTES IFINDEX ROUNDS CPU VRFS...\n";
        return 2;
    }
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(static_cast<unsigned>(std::atoi(words[4])), &cpus);
    if (sched_setaffinity(0, sizeof cpus, &cpus) != 0) splitplane::give_up(std::string("no CPU ") + words[4]);
    // What else had the core between two runs would leave its own in the caches.
    const sched_param first{1};
    if (sched_setscheduler(0, SCHED_FIFO, &first) != 0) splitplane::give_up("no real-time priority; run it as root");
    std::vector<uint32_t> vrfs;
    for (int at = 5; at < count; ++at) vrfs.push_back(static_cast<uint32_t>(std::atoi(words[at])));
    try {
        return splitplane::measure(splitplane::read_routes(words[1]), static_cast<uint32_t>(std::atoi(words[2])),
                                   std::atoi(words[3]), vrfs);
    } catch (const splitplane::EngineError& error) {
        splitplane::give_up(error.what());
    }
}
