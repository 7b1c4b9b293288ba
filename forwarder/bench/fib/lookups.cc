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
constexpr double kPace = 500e3;  // updates a second of the paced writer
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
        : family_(ipv6 ? Family::kIpv6 : Family::kIpv4), words_(kWords / 2), roots_(SP_VRFS), vrfs_(SP_VRFS) {
        arrays_.words = reinterpret_cast<sp_u32*>(&words_[0]);
        arrays_.word_count = kWords;
        arrays_.roots[static_cast<size_t>(family_)] = roots_.data();
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
        for (uint32_t at = 0; at < count; ++at) {
            roots[at] = sp_load_long(&roots_[1 + destinations.tables[from + at]]);
        }
        if (destinations.ipv6) {
            auto* addresses = reinterpret_cast<const sp_u64(*)[2]>(&destinations.ipv6_numbers[from * 2]);
            sp_trie_lookup6_bulk(&arrays_, roots, addresses, leaves, count);
        } else {
            sp_trie_lookup4_bulk(&arrays_, roots, &destinations.ipv4[from], leaves, count);
        }
    }
    uint32_t one(const Destinations& destinations, size_t at) {
        sp_u64 root = sp_load_long(&roots_[1 + destinations.tables[at]]);
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
    std::vector<sp_u64> roots_;
    std::vector<sp_vrf> vrfs_;
    sp_arrays arrays_{};
    OneReader reader_;
    std::unique_ptr<Fib> fib_;
};

// The rate of passes over all destinations, in a cache that one pass before has warmed: without that, each would be
// measured in what the other has left of it.
template <typename Pass>
double rate_of(const Destinations& destinations, Pass pass) {
    constexpr int kPasses = 4;
    pass();
    double start = cpu_s();
    for (int at = 0; at < kPasses; ++at) {
        pass();
    }
    return kPasses * static_cast<double>(destinations.size()) / (cpu_s() - start) / 1e6;
}

double time_ours(Ours& ours, const Destinations& destinations) {
    sp_u32 leaves[kBurst];
    return rate_of(destinations, [&] {
        for (size_t from = 0; from < destinations.size(); from += kBurst) {
            ours.burst(destinations, from, kBurst, leaves);
            asm volatile("" : : "r"(leaves) : "memory");
        }
    });
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
    return rate_of(destinations, [&] { peer.look_up(destinations, found); });
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
    return sizeof(sp_vrf) + SP_FAMILIES * sizeof(sp_u64) + SP_CLASS_SLOTS * sizeof(sp_policer) + counters +
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

// Everything that is measured, in the order of the output.
class Result {
  public:
    void number(const char* name, double value) { field(name, std::to_string(value)); }
    void count(const char* name, size_t value) { field(name, std::to_string(value)); }
    void text(const char* name, const std::string& value) { field(name, '"' + value + '"'); }
    void middle(const char* name, const std::vector<double>& values) {
        field(name, values.empty() ? "null" : std::to_string(median(values)));
    }
    void print() const { std::printf("{%s}\n", fields_.c_str()); }

  private:
    void field(const char* name, const std::string& value) {
        fields_ += (fields_.empty() ? "\"" : ", \"") + std::string(name) + "\": " + value;
    }
    std::string fields_;
};

struct Options {
    const char* routes;
    uint32_t tables;
    bool ipv6;
    uint32_t runs, reader_core, writer_core;
};

// Ours and a library by turns. False: the library, or the memory that it takes, is not to be had.
using MakePeer = decltype(make_rte_fib)*;
bool compare(Ours& ours, const std::vector<Route>& routes, const Destinations& destinations, const Options& options,
             const std::string& name, MakePeer make, std::vector<double>& ours_mlps, Result& result) {
    std::string why;
    std::unique_ptr<Peer> peer = make(routes, options.tables, options.ipv6, why);
    pin(options.reader_core);
    say("%s%s%s", name.c_str(), peer == nullptr ? " is left out: " : "", why.c_str());
    std::vector<double> mlps, ratios;
    if (peer != nullptr) {
        expect_same(ours, *peer, destinations, name.c_str());
        for (uint32_t at = 0; at < options.runs; ++at) {
            ours_mlps.push_back(time_ours(ours, destinations));
            mlps.push_back(time_peer(*peer, destinations));
            ratios.push_back(ours_mlps.back() / mlps.back());
        }
    }
    result.middle((name == "rte_fib" ? "rte_fib_scalar_mlps" : name + "_mlps").c_str(), mlps);
    result.middle(("ratio_to_" + name).c_str(), ratios);
    result.text((name + "_absent").c_str(), why);
    return peer != nullptr;
}

void change(Ours& ours, const std::vector<Route>& routes, const Destinations& destinations, const Options& options,
            Result& result) {
    Updates updates;
    Disturbed full, paced;
    pin(options.writer_core);
    size_t count = std::min<size_t>(routes.size() / 2, 100000);
    for (uint32_t at = 0; at < options.runs; ++at) {
        time_updates(ours, routes, count, at * count, updates);
        time_disturbed(ours, routes, destinations, options.reader_core, 0, full);
        time_disturbed(ours, routes, destinations, options.reader_core, kPace, paced);
    }
    result.middle("updates_per_s", updates.all);
    result.middle("inserts_per_s", updates.insert);
    result.middle("deletions_per_s", updates.erase);
    result.middle("replacements_per_s", updates.replace);
    result.middle("disturbed_drop", full.drop);
    result.middle("disturbed_updates_per_s", full.updates_per_s);
    result.middle("paced_drop", paced.drop);
    result.middle("paced_updates_per_s", paced.updates_per_s);
}

int run(const Options& options) {
    std::vector<Route> routes = read_routes(options.routes);
    if (routes.empty()) {
        std::fprintf(stderr, "fib: no routes in %s\n", options.routes);
        return 1;
    }
    pin(options.reader_core);
    Destinations destinations = make_destinations(routes, options.ipv6);
    Result result;
    result.count("routes", routes.size());
    result.count("tables", options.tables);
    double start = now_s();
    Ours ours(routes, options.ipv6);
    result.number("loads_per_s", static_cast<double>(routes.size()) / (now_s() - start));
    FibMemory memory = ours.fib().memory();
    result.number("bytes_per_route", per(memory.trie_used, routes.size()));
    result.number("bytes_per_route_peak", per(memory.trie_peak, routes.size()));
    result.number("store_bytes_per_route", per(memory.store, routes.size()));
    result.count("empty_vrf_bytes", empty_vrf());
    say("%zu routes in %u tables: %.2f octets a route", routes.size(), options.tables,
        per(memory.trie_used, routes.size()));

    std::vector<double> ours_mlps, one_ns;
    time_ours(ours, destinations);
    bool compared = compare(ours, routes, destinations, options, "rte_fib", make_rte_fib, ours_mlps, result);
    std::vector<double> beside_lpm;
    compare(ours, routes, destinations, options, "rte_lpm", make_rte_lpm, beside_lpm, result);
    for (uint32_t at = 0; at < options.runs; ++at) {
        one_ns.push_back(time_one_by_one(ours, destinations));
        if (!compared) {
            ours_mlps.push_back(time_ours(ours, destinations));
        }
    }
    result.middle("ours_mlps", ours_mlps);
    result.middle("ours_one_by_one_ns", one_ns);
    say("updates");
    change(ours, routes, destinations, options, result);
    ours.fib().settle();
    result.number("bytes_per_route_after_updates", per(ours.fib().memory().trie_peak, routes.size()));
    result.print();
    return 0;
}

}  // namespace
}  // namespace splitplane::bench

int main(int count, char** arguments) {
    if (count != 7) {
        std::fprintf(stderr, "usage: lookups ROUTES TABLES 4|6 RUNS READER_CORE WRITER_CORE\n");
        return 2;
    }
    auto number = [&](int at) { return static_cast<uint32_t>(std::strtoul(arguments[at], nullptr, 10)); };
    bool ipv6 = std::strcmp(arguments[3], "6") == 0;
    return splitplane::bench::run({arguments[1], number(2), ipv6, number(4), number(5), number(6)});
}
