// SPDX-License-Identifier: Apache-2.0
//
// The native side of bench/fib: one table, or many, looked up and changed.
//
//     lookups ROUTES TABLES 4|6 RUNS READER_CORE WRITER_CORE     prints one JSON object
//
// ROUTES is a file of records: 16 octets address, 1 length, 3 zero, 4 table (from 0, little endian). RUNS of everything
// are made by turns, so that what else the machine does meets all of it alike. A destination is a random address inside
// a random route; all are prepared before, and the same for all.
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <thread>

#include "bench/fib/peers.h"
#include "fib/fib.h"
#include "fib/key.h"
#include "fib/reserved_array.h"

extern "C" {
#include "pipeline/trie_bulk.h"
}

namespace splitplane::bench {
namespace {

constexpr uint32_t kWords = 1u << 24;  // as the daemon has them by default
constexpr size_t kDestinations = 1 << 20;
constexpr uint32_t kNexthops = 255;
constexpr auto kBackground = std::chrono::milliseconds(300);  // of one measurement of look-ups while updates run

double now_s() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// CPU time of a thread: what else runs on its core costs it caches, but does not stop its clock.
double cpu_s(clockid_t clock = CLOCK_THREAD_CPUTIME_ID) {
    timespec time{};
    clock_gettime(clock, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

double per(size_t octets, size_t routes) { return static_cast<double>(octets) / static_cast<double>(routes); }

template <typename... Values>
void say(const char* format, Values... values) {  // progress, for people
    std::fputs("fib: ", stderr);
    std::fprintf(stderr, format, values...);
    std::fputc('\n', stderr);
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

void pin(uint32_t core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    if (pthread_setaffinity_np(pthread_self(), sizeof set, &set) != 0) {
        std::fprintf(stderr, "fib: there is no core %u for this process\n", core);
        std::exit(1);
    }
}

std::vector<Route> read_routes(const char* path) {
    std::ifstream file(path, std::ios::binary);
    std::vector<Route> routes;
    std::mt19937 chance(1);
    uint8_t record[24];
    while (file.read(reinterpret_cast<char*>(record), sizeof record)) {
        Route route{};
        for (int at = 0; at < 8; ++at) {
            route.high = route.high << 8 | record[at];
            route.low = route.low << 8 | record[8 + at];
        }
        route.length = record[16];
        std::memcpy(&route.table, record + 20, 4);
        route.nexthop = 1 + chance() % kNexthops;
        routes.push_back(route);
    }
    std::shuffle(routes.begin(), routes.end(), chance);
    return routes;
}

Destinations make_destinations(const std::vector<Route>& routes, bool ipv6) {
    std::mt19937_64 chance(2);
    Destinations made;
    made.ipv6 = ipv6;
    for (size_t at = 0; at < kDestinations; ++at) {
        const Route& route = routes[chance() % routes.size()];
        Key key = Key{route.high} << 64 | route.low;
        key |= (Key{chance()} << 64 | chance()) & ~mask_of(route.length);
        made.tables.push_back(route.table);
        if (!ipv6) {
            made.ipv4.push_back(static_cast<uint32_t>(high_of(key) >> 32));
            continue;
        }
        made.ipv6_numbers.push_back(high_of(key));
        made.ipv6_numbers.push_back(low_of(key));
        Prefix octets = prefix_of(key, 128);
        made.ipv6_octets.insert(made.ipv6_octets.end(), octets.address.begin(), octets.address.end());
    }
    return made;
}

// One reader: it is in the tables while its number is odd.
class OneReader : public GracePeriods {
  public:
    void enter() { number_.store(number_.load(std::memory_order_relaxed) + 1, std::memory_order_seq_cst); }
    void leave() { number_.store(number_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }
    void synchronize() override {
        std::atomic_thread_fence(std::memory_order_seq_cst);
        uint64_t seen = number_.load();
        while (seen % 2 == 1 && number_.load() == seen) {
            std::this_thread::yield();
        }
    }

  private:
    alignas(64) std::atomic<uint64_t> number_{0};
};

class NoReader : public GracePeriods {
  public:
    void synchronize() override {}
};

class Ours {
  public:
    Ours(const std::vector<Route>& routes, bool ipv6)
        : family_(ipv6 ? Family::kIpv6 : Family::kIpv4), words_(kWords / 2), vrfs_(SP_VRFS) {
        arrays_.words = reinterpret_cast<sp_u32*>(&words_[0]);
        arrays_.word_count = kWords;
        arrays_.vrfs = vrfs_.data();
        fib_ = std::make_unique<Fib>(arrays_, reader_);
        for (const Route& route : routes) {
            set(route, route.nexthop);
        }
        fib_->settle();
    }

    void set(const Route& route, uint32_t nexthop) {
        uint32_t leaf = sp_leaf(SP_ROUTE_NEXTHOP, nexthop);
        if (fib_->set(1 + route.table, family_, prefix(route), leaf) != FibResult::kDone) {
            std::fprintf(stderr, "fib: %u words are too few for these routes\n", kWords);
            std::exit(1);
        }
    }
    void erase(const Route& route) { fib_->erase(1 + route.table, family_, prefix(route)); }

    void burst(const Destinations& destinations, size_t from, uint32_t count, sp_u32* leaves) {
        sp_u64 roots[kBurst];
        auto family = static_cast<size_t>(family_);
        for (uint32_t at = 0; at < count; ++at) {
            roots[at] = sp_load_long(&vrfs_[1 + destinations.tables[from + at]].root[family]);
        }
        if (destinations.ipv6) {
            auto* addresses = reinterpret_cast<const sp_u64(*)[2]>(&destinations.ipv6_numbers[from * 2]);
            sp_trie_lookup6_bulk(&arrays_, roots, addresses, leaves, count);
        } else {
            sp_trie_lookup4_bulk(&arrays_, roots, &destinations.ipv4[from], leaves, count);
        }
    }
    uint32_t one(const Destinations& destinations, size_t at) {
        sp_u64 root = sp_load_long(&vrfs_[1 + destinations.tables[at]].root[static_cast<size_t>(family_)]);
        if (destinations.ipv6) {
            const uint64_t* numbers = &destinations.ipv6_numbers[at * 2];
            return sp_trie_lookup6(&arrays_, root, numbers[0], numbers[1]);
        }
        return sp_trie_lookup4(&arrays_, root, destinations.ipv4[at]);
    }

    Fib& fib() { return *fib_; }
    OneReader& reader() { return reader_; }

  private:
    static Prefix prefix(const Route& route) { return prefix_of(Key{route.high} << 64 | route.low, route.length); }

    Family family_;
    ReservedArray<uint64_t> words_;
    std::vector<sp_vrf> vrfs_;
    sp_arrays arrays_{};
    OneReader reader_;
    std::unique_ptr<Fib> fib_;
};

double time_ours(Ours& ours, const Destinations& destinations) {
    sp_u32 leaves[kBurst];
    double start = cpu_s();
    for (size_t from = 0; from < destinations.size(); from += kBurst) {
        ours.burst(destinations, from, kBurst, leaves);
        asm volatile("" : : "r"(leaves) : "memory");
    }
    return static_cast<double>(destinations.size()) / (cpu_s() - start) / 1e6;
}

// Each look-up begins when the one before has ended, as a packet of the XDP engine does it.
double time_one_by_one(Ours& ours, const Destinations& destinations) {
    double start = cpu_s();
    for (size_t at = 0; at < destinations.size(); ++at) {
        uint32_t leaf = ours.one(destinations, at);
        asm volatile("lfence" : : "r"(leaf) : "memory");
    }
    return (cpu_s() - start) * 1e9 / static_cast<double>(destinations.size());
}

double time_peer(Peer& peer, const Destinations& destinations) {
    std::vector<uint64_t> found(kBurst);
    double start = cpu_s();
    peer.look_up(destinations, found);
    return static_cast<double>(destinations.size()) / (cpu_s() - start) / 1e6;
}

void expect_same(Ours& ours, Peer& peer, const Destinations& destinations, const char* name) {
    std::vector<uint64_t> found(destinations.size());
    peer.look_up(destinations, found);
    for (size_t at = 0; at < destinations.size(); ++at) {
        sp_u32 leaf = 0;
        ours.burst(destinations, at, 1, &leaf);
        if (sp_leaf_slot(leaf) != found[at] || leaf != ours.one(destinations, at)) {
            std::fprintf(stderr, "fib: destination %zu: ours %u, %s %llu\n", at, sp_leaf_slot(leaf), name,
                         static_cast<unsigned long long>(found[at]));
            std::exit(1);
        }
    }
}

// What a VRF without routes takes: its element of every array, and the control plane's.
size_t empty_vrf() {
    NoReader none;
    std::vector<uint64_t> words(64);
    std::vector<sp_vrf> vrfs(SP_VRFS);
    sp_arrays arrays{};
    arrays.words = reinterpret_cast<sp_u32*>(words.data());
    arrays.word_count = static_cast<uint32_t>(words.size() * 2);
    arrays.vrfs = vrfs.data();
    Fib fib(arrays, none);
    FibMemory memory = fib.memory();
    size_t counters = std::thread::hardware_concurrency() * SP_REASONS * sizeof(sp_counter);
    return sizeof(sp_vrf) + SP_PUNT_CLASSES * sizeof(sp_policer) + counters +
           (memory.store + memory.trie_used) / SP_VRFS;
}

struct Updates {
    std::vector<double> erase, insert, replace, all;
};

// The same number of deletions, insertions of what was deleted, and replacements, of random routes.
void time_updates(Ours& ours, const std::vector<Route>& routes, size_t count, size_t from, Updates& updates) {
    auto timed = [&](auto&& change) {
        double start = now_s();
        for (size_t at = 0; at < count; ++at) {
            change(routes[(from + at) % routes.size()]);
        }
        return now_s() - start;
    };
    auto number = static_cast<double>(count);
    double erasing = timed([&](const Route& route) { ours.erase(route); });
    double inserting = timed([&](const Route& route) { ours.set(route, route.nexthop); });
    double replacing = timed([&](const Route& route) { ours.set(route, 1 + route.nexthop % kNexthops); });
    timed([&](const Route& route) { ours.set(route, route.nexthop); });
    updates.erase.push_back(number / erasing);
    updates.insert.push_back(number / inserting);
    updates.replace.push_back(number / replacing);
    updates.all.push_back(3 * number / (erasing + inserting + replacing));
}

// Look-ups on one core, with and without a writer on the other that deletes, inserts and replaces at `rate` a second
// (0: as fast as it can).
struct Disturbed {
    std::vector<double> alone, disturbed, updates_per_s;
    std::vector<double> drop;
};

void time_disturbed(Ours& ours, const std::vector<Route>& routes, const Destinations& destinations,
                    uint32_t reader_core, double rate, Disturbed& out) {
    std::atomic<uint64_t> bursts{0};
    std::atomic<bool> ending{false};
    std::thread reader([&] {
        pin(reader_core);
        sp_u32 leaves[kBurst];
        for (size_t from = 0; !ending.load(std::memory_order_relaxed); from = (from + kBurst) % destinations.size()) {
            ours.reader().enter();
            ours.burst(destinations, from, kBurst, leaves);
            asm volatile("" : : "r"(leaves) : "memory");
            ours.reader().leave();
            bursts.store(bursts.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
        }
    });
    clockid_t clock{};
    pthread_getcpuclockid(reader.native_handle(), &clock);
    auto measure = [&](auto&& meanwhile) {
        uint64_t before = bursts.load();
        double start = cpu_s(clock);
        meanwhile(now_s());
        return static_cast<double>(bursts.load() - before) * kBurst / (cpu_s(clock) - start) / 1e6;
    };
    double length_s = std::chrono::duration<double>(kBackground).count();
    auto idle = [&](double) { std::this_thread::sleep_for(kBackground); };
    size_t done = 0;
    auto write = [&](double start) {
        for (double now = start; now < start + length_s; now = now_s()) {
            if (rate > 0 && static_cast<double>(done) > (now - start) * rate) {
                continue;  // busy, so that both cases have a writer that never sleeps
            }
            for (int at = 0; at < 32; ++at, done += 3) {
                const Route& route = routes[done / 3 % routes.size()];
                ours.erase(route);
                ours.set(route, route.nexthop);
                ours.set(route, 1 + route.nexthop % kNexthops);
            }
        }
    };
    measure(idle);
    double before = measure(idle);
    double between = measure(write);
    double after = measure(idle);
    ending = true;
    reader.join();
    out.alone.push_back((before + after) / 2);
    out.disturbed.push_back(between);
    out.drop.push_back(1 - between / ((before + after) / 2));
    out.updates_per_s.push_back(static_cast<double>(done) / length_s);
}

std::string number(const std::vector<double>& values) {
    return values.empty() ? "null" : std::to_string(median(values));
}

int run(char** arguments) {
    auto core = [&](int at) { return static_cast<uint32_t>(std::strtoul(arguments[at], nullptr, 10)); };
    std::vector<Route> routes = read_routes(arguments[1]);
    uint32_t tables = core(2);
    bool ipv6 = std::strcmp(arguments[3], "6") == 0;
    uint32_t runs = core(4), reader_core = core(5), writer_core = core(6);
    if (routes.empty()) {
        std::fprintf(stderr, "fib: no routes in %s\n", arguments[1]);
        return 1;
    }
    pin(reader_core);
    Destinations destinations = make_destinations(routes, ipv6);
    double start = now_s();
    Ours ours(routes, ipv6);
    double loading = static_cast<double>(routes.size()) / (now_s() - start);
    FibMemory memory = ours.fib().memory();
    say("%zu routes in %u tables: %.2f octets a route", routes.size(), tables, per(memory.trie_used, routes.size()));

    std::string no_fib, no_lpm;
    std::vector<double> ours_mlps, one_ns, fib_mlps, lpm_mlps, fib_ratios, lpm_ratios;
    std::unique_ptr<Peer> fib = make_rte_fib(routes, tables, ipv6, no_fib);
    pin(reader_core);
    // By turns; ours are compared with the turns beside them, as long as there is somebody to compare with.
    auto together = [&](Peer* peer, const char* name, std::vector<double>& mlps, std::vector<double>& ratios) {
        if (peer == nullptr) {
            return;
        }
        expect_same(ours, *peer, destinations, name);
        for (uint32_t at = 0; at < runs; ++at) {
            ours_mlps.push_back(time_ours(ours, destinations));
            mlps.push_back(time_peer(*peer, destinations));
            ratios.push_back(ours_mlps.back() / mlps.back());
        }
    };
    auto alone = [&] {
        for (uint32_t at = 0; at < runs; ++at) {
            one_ns.push_back(time_one_by_one(ours, destinations));
            if (fib_mlps.empty() && lpm_mlps.empty()) {
                ours_mlps.push_back(time_ours(ours, destinations));
            }
        }
    };
    time_ours(ours, destinations);
    say("rte_fib%s%s", fib == nullptr ? " is left out: " : "", no_fib.c_str());
    together(fib.get(), "rte_fib", fib_mlps, fib_ratios);
    fib.reset();
    std::unique_ptr<Peer> lpm = make_rte_lpm(routes, tables, ipv6, no_lpm);
    pin(reader_core);
    say("rte_lpm%s%s", lpm == nullptr ? " is left out: " : "", no_lpm.c_str());
    together(lpm.get(), "rte_lpm", lpm_mlps, lpm_ratios);
    say("updates");
    lpm.reset();
    alone();

    Updates updates;
    Disturbed full, paced;
    pin(writer_core);
    size_t count = std::min<size_t>(routes.size() / 2, 100000);
    for (uint32_t at = 0; at < runs; ++at) {
        time_updates(ours, routes, count, at * count, updates);
        time_disturbed(ours, routes, destinations, reader_core, 0, full);
        time_disturbed(ours, routes, destinations, reader_core, 500e3, paced);
    }
    ours.fib().settle();
    FibMemory later = ours.fib().memory();
    auto per_route = [&](size_t octets) { return per(octets, routes.size()); };
    std::printf("{\"routes\": %zu, \"tables\": %u, \"ours_mlps\": %s, \"ours_one_by_one_ns\": %s, "
                "\"rte_fib_scalar_mlps\": %s, \"rte_lpm_mlps\": %s, \"rte_fib_absent\": \"%s\", \"rte_lpm_absent\": "
                "\"%s\", \"ratio_to_rte_fib\": %s, \"ratio_to_rte_lpm\": %s, \"bytes_per_route\": %.2f, \"bytes_per_route_peak\": %.2f, "
                "\"bytes_per_route_after_updates\": %.2f, \"store_bytes_per_route\": %.2f, \"loads_per_s\": %.0f, "
                "\"updates_per_s\": %s, \"inserts_per_s\": %s, \"deletions_per_s\": %s, \"replacements_per_s\": %s, "
                "\"disturbed_drop\": %s, \"disturbed_updates_per_s\": %s, \"paced_drop\": %s, "
                "\"paced_updates_per_s\": %s, \"empty_vrf_bytes\": %zu}\n",
                routes.size(), tables, number(ours_mlps).c_str(), number(one_ns).c_str(), number(fib_mlps).c_str(),
                number(lpm_mlps).c_str(), no_fib.c_str(), no_lpm.c_str(), number(fib_ratios).c_str(),
                number(lpm_ratios).c_str(), per_route(memory.trie_used),
                per_route(memory.trie_peak), per_route(later.trie_peak), per_route(memory.store), loading,
                number(updates.all).c_str(), number(updates.insert).c_str(), number(updates.erase).c_str(),
                number(updates.replace).c_str(), number(full.drop).c_str(), number(full.updates_per_s).c_str(),
                number(paced.drop).c_str(), number(paced.updates_per_s).c_str(), empty_vrf());
    return 0;
}

}  // namespace
}  // namespace splitplane::bench

int main(int count, char** arguments) {
    if (count != 7) {
        std::fprintf(stderr, "usage: lookups ROUTES TABLES 4|6 RUNS READER_CORE WRITER_CORE\n");
        return 2;
    }
    return splitplane::bench::run(arguments);
}
