// SPDX-License-Identifier: Apache-2.0
//
// rte_fib and rte_lpm, without huge pages and devices.
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_fib.h>
#include <rte_fib6.h>
#include <rte_lpm.h>
#include <rte_lpm6.h>
#include <sched.h>

#include <algorithm>
#include <fstream>

#include "bench/fib/peers.h"

namespace splitplane::bench {

namespace {

// Of a DIR24-8 table with next hops of 4 octets, of 2 octets, and of rte_lpm, each with room for its rules.
constexpr size_t kMiB = 1 << 20;
constexpr size_t kTbl24Entries = 1 << 24;
// Of 256 entries, for IPv6; rte_fib6 reserves one for every stride of every route.
constexpr uint32_t kTbl8s6 = 1 << 20;

size_t available_mib() {
    std::ifstream file("/proc/meminfo");
    std::string name, unit;
    size_t kib = 0;
    while (file >> name >> kib >> unit) {
        if (name == "MemAvailable:") {
            return kib / 1024;
        }
    }
    return 0;
}

// IPv6 addresses as the library takes them: octets up to DPDK 24.07, rte_ipv6_addr since.
struct Addresses {
    const uint8_t* octets;
    template <typename T>
    operator T*() const {
        return reinterpret_cast<T*>(const_cast<uint8_t*>(octets));
    }
};

// Memory is taken once and for all, when the first library asks; pages come when they are touched.
bool start(size_t mib, std::string& why) {
    static bool started = false;
    if (mib + 2048 > available_mib()) {
        why = "takes " + std::to_string(mib) + " MiB, " + std::to_string(available_mib()) + " are available";
        return false;
    }
    if (started) {
        return true;
    }
    std::string memory = std::to_string(mib + 1024), core = std::to_string(sched_getcpu());
    const char* arguments[] = {"fib",          "--no-huge", "--no-pci", "--no-shconf",  "--no-telemetry", "-l",
                               core.c_str(),   "-m",        memory.c_str(), "--log-level", "4"};
    std::vector<char*> writable;
    for (const char* argument : arguments) {
        writable.push_back(const_cast<char*>(argument));
    }
    if (rte_eal_init(static_cast<int>(writable.size()), writable.data()) < 0) {
        why = std::string("DPDK does not start: ") + rte_strerror(rte_errno);
        return false;
    }
    return started = true;
}

void octets_of(const Route& route, uint8_t* octets) {
    for (int at = 0; at < 8; ++at) {
        octets[at] = static_cast<uint8_t>(route.high >> (56 - 8 * at));
        octets[8 + at] = static_cast<uint8_t>(route.low >> (56 - 8 * at));
    }
}
uint32_t ipv4_of(const Route& route) { return static_cast<uint32_t>(route.high >> 32); }

// Call look(from, count, table) for bursts of one table, or packet by packet.
template <typename Look>
void in_bursts(const Destinations& destinations, bool one_table, size_t kept, Look look) {
    size_t step = one_table ? kBurst : 1;
    for (size_t from = 0; from < destinations.size(); from += step) {
        look(from, static_cast<unsigned>(std::min(step, destinations.size() - from)),
             kept == destinations.size() ? from : 0);
    }
}

class RteFib : public Peer {
  public:
    explicit RteFib(uint32_t tables) : fibs_(tables) {}
    ~RteFib() override {
        for (rte_fib* fib : fibs_) {
            rte_fib_free(fib);
        }
    }
    void look_up(const Destinations& destinations, std::vector<uint64_t>& found) override {
        in_bursts(destinations, fibs_.size() == 1, found.size(), [&](size_t from, unsigned count, size_t to) {
            rte_fib_lookup_bulk(fibs_[destinations.tables[from]], const_cast<uint32_t*>(&destinations.ipv4[from]),
                                &found[to], static_cast<int>(count));
        });
    }
    std::vector<rte_fib*> fibs_;
};

class RteFib6 : public Peer {
  public:
    ~RteFib6() override { rte_fib6_free(fib_); }
    void look_up(const Destinations& destinations, std::vector<uint64_t>& found) override {
        in_bursts(destinations, true, found.size(), [&](size_t from, unsigned count, size_t to) {
            Addresses addresses{&destinations.ipv6_octets[from * 16]};
            rte_fib6_lookup_bulk(fib_, addresses, &found[to], static_cast<int>(count));
        });
    }
    rte_fib6* fib_ = nullptr;
};

class RteLpm : public Peer {
  public:
    explicit RteLpm(uint32_t tables) : lpms_(tables) {}
    ~RteLpm() override {
        for (rte_lpm* lpm : lpms_) {
            rte_lpm_free(lpm);
        }
    }
    void look_up(const Destinations& destinations, std::vector<uint64_t>& found) override {
        bool all = found.size() == destinations.size();
        in_bursts(destinations, lpms_.size() == 1, found.size(), [&](size_t from, unsigned count, size_t to) {
            uint32_t hops[kBurst];
            rte_lpm_lookup_bulk(lpms_[destinations.tables[from]], &destinations.ipv4[from], hops, count);
            for (unsigned at = 0; all && at < count; ++at) {
                found[to + at] = hops[at] & RTE_LPM_LOOKUP_SUCCESS ? hops[at] & 0xffffff : 0;
            }
            found[to] = all ? found[to] : hops[0];
        });
    }
    std::vector<rte_lpm*> lpms_;
};

class RteLpm6 : public Peer {
  public:
    ~RteLpm6() override { rte_lpm6_free(lpm_); }
    void look_up(const Destinations& destinations, std::vector<uint64_t>& found) override {
        in_bursts(destinations, true, found.size(), [&](size_t from, unsigned count, size_t to) {
            int32_t hops[kBurst];
            Addresses addresses{&destinations.ipv6_octets[from * 16]};
            rte_lpm6_lookup_bulk_func(lpm_, addresses, hops, count);
            for (unsigned at = 0; at < count; ++at) {
                found[to + at] = hops[at] < 0 ? 0 : static_cast<uint64_t>(hops[at]);
            }
        });
    }
    rte_lpm6* lpm_ = nullptr;
};

std::unique_ptr<Peer> refused(const char* what, int error, std::string& why) {
    why = std::string(what) + ": " + rte_strerror(error);
    return nullptr;
}

std::unique_ptr<Peer> make_fib6(const std::vector<Route>& routes, std::string& why) {
    auto made = std::make_unique<RteFib6>();
    rte_fib6_conf conf{};
    conf.type = RTE_FIB6_TRIE;
    conf.max_routes = static_cast<int>(routes.size() * 2);
    conf.trie.nh_sz = RTE_FIB6_TRIE_4B;
    conf.trie.num_tbl8 = kTbl8s6;
    made->fib_ = rte_fib6_create("fib6", -1, &conf);
    if (made->fib_ == nullptr || rte_fib6_select_lookup(made->fib_, RTE_FIB6_LOOKUP_TRIE_SCALAR) != 0) {
        return refused("rte_fib6_create", rte_errno, why);
    }
    for (const Route& route : routes) {
        uint8_t octets[16];
        octets_of(route, octets);
        int error = rte_fib6_add(made->fib_, Addresses{octets}, static_cast<uint8_t>(route.length), route.nexthop);
        if (error != 0) {
            return refused("rte_fib6_add", -error, why);
        }
    }
    return made;
}

}  // namespace

std::unique_ptr<Peer> make_rte_fib(const std::vector<Route>& routes, uint32_t tables, bool ipv6, std::string& why) {
    // Many tables get the smaller next hops, which is to their advantage.
    bool small = tables > 1;
    size_t rules_mib = routes.size() * 2 * 160 / kMiB;
    size_t table_mib = kTbl24Entries * (small ? 2 : 4) / kMiB + 16;
    size_t mib = tables * table_mib + rules_mib + (ipv6 ? kTbl8s6 * 1024ull / kMiB + 512 : 0);
    if (!start(mib, why)) {
        return nullptr;
    }
    if (ipv6) {
        return make_fib6(routes, why);
    }
    auto made = std::make_unique<RteFib>(tables);
    for (uint32_t table = 0; table < tables; ++table) {
        rte_fib_conf conf{};
        conf.type = RTE_FIB_DIR24_8;
        conf.max_routes = static_cast<int>(routes.size() / tables * 3 + 1024);
        conf.dir24_8.nh_sz = small ? RTE_FIB_DIR24_8_2B : RTE_FIB_DIR24_8_4B;
        conf.dir24_8.num_tbl8 = 1024;
        made->fibs_[table] = rte_fib_create(("fib" + std::to_string(table)).c_str(), -1, &conf);
        if (made->fibs_[table] == nullptr ||
            rte_fib_select_lookup(made->fibs_[table], RTE_FIB_LOOKUP_DIR24_8_SCALAR_MACRO) != 0) {
            return refused("rte_fib_create", rte_errno, why);
        }
    }
    for (const Route& route : routes) {
        auto length = static_cast<uint8_t>(route.length);
        int error = rte_fib_add(made->fibs_[route.table], ipv4_of(route), length, route.nexthop);
        if (error != 0) {
            return refused("rte_fib_add", -error, why);
        }
    }
    return made;
}

std::unique_ptr<Peer> make_rte_lpm(const std::vector<Route>& routes, uint32_t tables, bool ipv6, std::string& why) {
    size_t mib = tables * 80 + routes.size() * 64 / kMiB + (ipv6 ? kTbl8s6 * 1024ull / kMiB + 512 : 0);
    if (!start(mib, why)) {
        return nullptr;
    }
    if (ipv6) {
        auto made = std::make_unique<RteLpm6>();
        rte_lpm6_config config{};
        config.max_rules = static_cast<uint32_t>(routes.size());
        config.number_tbl8s = kTbl8s6;
        made->lpm_ = rte_lpm6_create("lpm6", -1, &config);
        if (made->lpm_ == nullptr) {
            return refused("rte_lpm6_create", rte_errno, why);
        }
        for (const Route& route : routes) {
            uint8_t octets[16];
            octets_of(route, octets);
            int error = rte_lpm6_add(made->lpm_, Addresses{octets}, static_cast<uint8_t>(route.length), route.nexthop);
            if (error != 0) {
                return refused("rte_lpm6_add", -error, why);
            }
        }
        return made;
    }
    auto made = std::make_unique<RteLpm>(tables);
    for (uint32_t table = 0; table < tables; ++table) {
        rte_lpm_config config{};
        config.max_rules = static_cast<uint32_t>(routes.size() / tables * 2 + 1024);
        config.number_tbl8s = 1024;
        made->lpms_[table] = rte_lpm_create(("lpm" + std::to_string(table)).c_str(), -1, &config);
        if (made->lpms_[table] == nullptr) {
            return refused("rte_lpm_create", rte_errno, why);
        }
    }
    for (const Route& route : routes) {
        auto length = static_cast<uint8_t>(route.length);
        int error = rte_lpm_add(made->lpms_[route.table], ipv4_of(route), length, route.nexthop);
        if (error != 0) {
            return refused("rte_lpm_add", -error, why);
        }
    }
    return made;
}

}  // namespace splitplane::bench
