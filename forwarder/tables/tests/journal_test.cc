// SPDX-License-Identifier: Apache-2.0
//
// What a process finds that comes after one which died: everything up to the last request, whatever happened.
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <random>

#include "tables/tests/fixture.h"

namespace splitplane::testing {
namespace {

// Random requests over few keys, so that entries come, change, go and come again.
class Traffic {
  public:
    explicit Traffic(uint32_t seed) : random_(seed) {}

    void request(Tables& tables) {
        auto lock = tables.lock();
        for (uint32_t updates = below(6); updates > 0; --updates) {
            update(tables);
        }
        tables.commit();
    }

  private:
    uint32_t below(uint32_t bound) { return std::uniform_int_distribution<uint32_t>(0, bound - 1)(random_); }
    Op op() { return static_cast<Op>(1 + below(3)); }
    Notes notes() { return below(4) == 0 ? Notes{"note " + std::to_string(below(9)), below(3)} : Notes{}; }

    void update(Tables& tables) {
        uint32_t kind = below(40);
        if (kind < 24) {
            route(tables);
        } else if (kind < 36) {
            row(tables);
        } else if (kind < 38) {
            profile(tables);
        } else if (kind == 38) {
            tables.set_election({0, below(100)});
            tables.write_samples(op(), {below(3), static_cast<int32_t>(below(2))});
        } else if (below(30) == 0) {
            tables.clear();
        } else {
            tables.set_pipeline("pipeline " + std::to_string(below(3)));
        }
    }

    void route(Tables& tables) {
        bool ipv6 = below(3) == 0;
        auto kind = static_cast<sp_route_kind>(1 + below(7));
        bool has_id = kind == SP_ROUTE_NEXTHOP || kind == SP_ROUTE_GROUP;
        auto length = static_cast<uint8_t>(below(33));
        Prefix prefix = ipv6 ? prefix6(uint64_t{below(4)} << 60, length) : prefix4(below(8) << 28, length % 9);
        tables.write_route(op(), below(4), ipv6 ? Family::kIpv6 : Family::kIpv4, prefix,
                           {kind, has_id ? 100 + below(6) : 0}, notes());
    }

    void row(Tables& tables) {
        RowWrite row;
        row.extras.notes = notes();
        Key key{1 + below(4), 0};
        auto table = static_cast<Table>(below(kTables));
        row.params = {below(6), below(6), below(2)};
        switch (table) {
            case Table::kInterfaceClassifier:
                row.action = Action::kSetRouterInterface;
                key.second = below(3);
                break;
            case Table::kL3Admit:
                row.action = Action::kAdmit;
                key.second = 1 + below(7);
                break;
            case Table::kRouterInterface:
                row.action = Action::kSetPort;
                break;
            case Table::kRouterInterfaceEgress:
                row.action = Action::kRewrite;
                row.count = below(2) == 0 ? std::optional(Count{below(100), 1}) : std::nullopt;
                break;
            case Table::kFallbackLink:
                row.action = Action::kSendToFallback;
                break;
            case Table::kNexthop:
                row.action = Action::kSetNeighbor;
                key.first += 99;
                break;
            case Table::kNexthopGroup:
                key.first += 99;
                group(row);
                break;
            case Table::kReason:
                row.action = Action::kCountReason;
                key.second = 1 + below(8);
                break;
            case Table::kPolicer:
                row.action = Action::kPolice;
                row.extras.meter = Meter{0, 0, 1 + below(100), 5};
                break;
            case Table::kRouterShare:
            case Table::kSliceShare:
                row.action = Action::kShare;
                row.params = share_params({1 + below(3), below(2), below(2)}, below(3));
                break;
        }
        tables.write_row(op(), table, key, std::move(row));
    }

    void group(RowWrite& row) {
        row.action = static_cast<Action>(static_cast<int>(Action::kOneShot) + below(3));
        row.params = {1 + below(4), 0, 0};
        if (row.action == Action::kOneShot) {
            row.params = {};
            for (uint32_t members = below(4); members > 0; --members) {
                row.extras.members.push_back({100 + below(5), 1 + below(3)});
            }
        }
    }

    void profile(Tables& tables) {
        if (below(2) == 0) {
            tables.write_member(op(), 1 + below(4), 100 + below(5));
        } else {
            tables.write_group(op(), 1 + below(3), 0, {{1 + below(4), 1 + below(3)}});
        }
    }

    std::mt19937 random_;
};

class JournalTest : public ::testing::Test {
  protected:
    std::string copy() {
        auto to = folder / "copy";
        std::filesystem::copy_file(folder / "journal", to, std::filesystem::copy_options::overwrite_existing);
        return to.string();
    }
    Folder folder;
};

// Has one route change with so much metadata that most of the file is superseded then, and commits.
void supersede(Tables& tables, uint32_t vrf, uint32_t address) {
    const RouteAction nexthop{SP_ROUTE_NEXTHOP, 1};
    for (uint32_t octets = 0; octets < 5u << 20; octets += 10'000) {
        const Notes much{std::string(10'000, 'n'), 0};
        ASSERT_TRUE(tables.write_route(Op::kModify, vrf, Family::kIpv4, prefix4(address, 24), nexthop, much).ok());
    }
    ASSERT_TRUE(tables.write_route(Op::kModify, vrf, Family::kIpv4, prefix4(address, 24), nexthop, {}).ok());
    tables.commit();
}

class Rewriting : public JournalTest {
  protected:
    std::unique_ptr<Process> process = std::make_unique<Process>(folder / "journal");
    Tables& tables = process->tables;

    void route(Op op, uint32_t vrf, uint32_t address, uint32_t nexthop) {
        auto done = tables.write_route(op, vrf, Family::kIpv4, prefix4(address, 24), {SP_ROUTE_NEXTHOP, nexthop}, {});
        ASSERT_TRUE(done.ok()) << done.text;
    }
    void row(Op op, Table table, Key key, Action action, std::array<uint64_t, 3> params) {
        RowWrite row;
        row.action = action;
        row.params = params;
        auto done = tables.write_row(op, table, key, std::move(row));
        ASSERT_TRUE(done.ok()) << done.text;
        tables.commit();
    }
    bool under_way() const { return std::filesystem::exists((folder / "journal").string() + ".next"); }
    // More routes than are written with three requests.
    void begin() {
        for (uint32_t number = 0; number < 70'000; ++number) {
            route(Op::kInsert, 1, 0x14000000 + (number << 8), 1);
        }
        supersede(tables, 1, 0x14000000);
        ASSERT_TRUE(under_way());
    }
    void finish() {
        while (under_way()) tables.commit();
        EXPECT_EQ(tables.journal_status().rewrites, 1u);
    }
};

class RandomJournal : public JournalTest, public ::testing::WithParamInterface<uint32_t> {};

TEST_P(RandomJournal, EveryRequestIsThereForTheNextProcess) {
    Traffic traffic(GetParam());
    auto process = std::make_unique<Process>(folder / "journal");
    for (int requests = 0; requests < 400; ++requests) {
        traffic.request(process->tables);
        if (requests % 10 == 0) {
            Process next(copy());
            ASSERT_EQ(next.dump(), process->dump()) << "after " << requests << " requests";
        }
        if (requests % 100 == 99) {
            std::string before = process->dump();
            process.reset();
            process = std::make_unique<Process>(folder / "journal");
            ASSERT_EQ(process->dump(), before);
        }
    }
}
// Each process begins with empty tables of their full size, which the sanitizer takes long to make.
#ifdef __SANITIZE_ADDRESS__
constexpr uint32_t kSeeds = 5;
#else
constexpr uint32_t kSeeds = 20;
#endif
INSTANTIATE_TEST_SUITE_P(Seeds, RandomJournal, ::testing::Range(0u, kSeeds));

TEST_F(JournalTest, ATornFrameIsCutOffAndTheRestStays) {
    std::string before;
    size_t whole = 0;
    {
        Process process(folder / "journal");
        process.tables.write_route(Op::kInsert, 7, Family::kIpv4, prefix4(0x0a000000, 8), {SP_ROUTE_LOCAL}, {});
        process.tables.commit();
        before = process.dump();
        whole = std::filesystem::file_size(folder / "journal");
        process.tables.write_route(Op::kInsert, 7, Family::kIpv4, prefix4(0x0b000000, 8), {SP_ROUTE_GLEAN}, {"x"});
        process.tables.commit();
    }
    size_t size = std::filesystem::file_size(folder / "journal");
    for (size_t cut = whole; cut < size; ++cut) {
        auto torn = copy();
        std::filesystem::resize_file(torn, cut);
        Process next(torn);
        ASSERT_EQ(next.dump(), before) << cut;
        ASSERT_EQ(next.tables.journal_status().cut_octets, cut - whole);
        ASSERT_EQ(std::filesystem::file_size(torn), whole);
    }
    for (size_t at = whole; at < size; ++at) {
        auto damaged = copy();
        {
            std::fstream file(damaged, std::ios::in | std::ios::out | std::ios::binary);
            file.seekg(static_cast<std::streamoff>(at));
            int octet = file.get();
            file.seekp(static_cast<std::streamoff>(at));
            file.put(static_cast<char>(octet ^ 0x10));
        }
        ASSERT_EQ(Process(damaged).dump(), before) << at;
    }
}

// Enough superseded routes that the file is rewritten, some entries with each request.
TEST_F(JournalTest, IsRewrittenWhileItIsWritten) {
    auto process = std::make_unique<Process>(folder / "journal");
    constexpr uint32_t kRoutes = 60'000;
    for (uint32_t round = 0; round < 2; ++round) {
        for (uint32_t number = 0; number < kRoutes; ++number) {
            process->tables.write_route(round == 0 ? Op::kInsert : Op::kModify, 1 + number % 3, Family::kIpv4,
                                        prefix4(number << 8, 24), {SP_ROUTE_NEXTHOP, 100 + round + number % 7}, {});
        }
        process->tables.commit();
    }
    supersede(process->tables, 1, 0);
    // A request that changes little carries the rewriting on; whenever the process dies, all is there.
    uint32_t steps = 0;
    for (; process->tables.journal_status().rewrites == 0 && steps < 20; ++steps) {
        process->tables.write_route(Op::kErase, 1 + steps % 3, Family::kIpv4, prefix4(steps << 8, 24), {}, {});
        process->tables.write_route(Op::kInsert, 50 + steps, Family::kIpv4, prefix4(steps << 8, 24),
                                    {SP_ROUTE_GROUP, 500 + steps}, {});
        process->tables.commit();
        ASSERT_EQ(Process(copy()).dump(), process->dump()) << steps;
    }
    EXPECT_GT(process->tables.journal_status().rewrites, 0u);
    EXPECT_LT(std::filesystem::file_size(folder / "journal"), 3u << 20) << "of 7 MiB that were written";
    std::string before = process->dump();
    process.reset();
    EXPECT_EQ(Process(folder / "journal").dump(), before);
}

// The way in is the only entry that names router 9 in the new file when it goes, as that has no routes yet: another router
// came to have its slot.
TEST_F(Rewriting, KeepsARouterWhoseWayInGoesApartFromOneThatComes) {
    row(Op::kInsert, Table::kInterfaceClassifier, {1, 1}, Action::kSetRouterInterface, {1, 1});
    row(Op::kInsert, Table::kInterfaceClassifier, {1, 9}, Action::kSetRouterInterface, {9, 9});
    route(Op::kInsert, 9, 0x0a000000, 1);
    begin();
    row(Op::kErase, Table::kInterfaceClassifier, {1, 9}, Action::kNone, {});
    row(Op::kInsert, Table::kInterfaceClassifier, {1, 10}, Action::kSetRouterInterface, {10, 10});
    route(Op::kInsert, 10, 0x0b000000, 1);
    ASSERT_TRUE(under_way());
    finish();
    Process next(copy());
    EXPECT_NE(next.tables.routes().find(9, Family::kIpv4, prefix4(0x0a000000, 24)), 0u);
    EXPECT_EQ(next.tables.routes().find(10, Family::kIpv4, prefix4(0x0a000000, 24)), 0u);
    EXPECT_TRUE(next.dump() == process->dump());
}

// In the order of their keys the small ones come first, and would leave no room for the large ones.
TEST_F(Rewriting, KeepsGroupsThatFillTheRoomForMembers) {
    auto group = [&](uint32_t id, uint32_t members) {
        RowWrite row;
        row.action = Action::kOneShot;
        for (uint32_t each = 0; each < members; ++each) row.extras.members.push_back({1 + each, 1});
        return tables.write_row(Op::kInsert, Table::kNexthopGroup, {id, 0}, std::move(row)).ok();
    };
    for (uint32_t id = 9000; id < 9100; ++id) ASSERT_TRUE(group(id, 256));
    uint32_t small = 0;
    while (group(small + 1, 2)) ++small;
    tables.commit();
    begin();
    finish();
    Process next(copy());
    EXPECT_TRUE(next.dump() == process->dump());
    EXPECT_GT(small, 300u);
    EXPECT_EQ(sp_group_size(next.engine.arrays().groups[next.tables.objects().slot(Space::kGroup, 9099)]), 256u);
}

// What entries bring along for their controller is not known to the size that the file is expected to have.
TEST_F(Rewriting, EndsWhereEntriesHaveMuchMetadata) {
    for (uint32_t id = 1; id <= 3000; ++id) {
        RowWrite row;
        row.action = Action::kSetNeighbor;
        row.params = {1, id};
        row.extras.notes.metadata = std::string(2000, 'n');
        ASSERT_TRUE(tables.write_row(Op::kInsert, Table::kNexthop, {id, 0}, std::move(row)).ok());
    }
    tables.commit();
    finish();
    for (uint32_t request = 0; request < 20; ++request) {
        tables.set_election({0, request});
        tables.commit();
    }
    EXPECT_EQ(tables.journal_status().rewrites, 1u);
}

// Counters go on from one process to the next, and are told by the id that stands at a slot.
TEST_F(JournalTest, NamesRoutersThatWentAtNoSlot) {
    Process before(folder / "journal");
    const auto write = [&](Op op, uint32_t vrf_id) {
        RowWrite row;
        row.action = Action::kCountReason;
        ASSERT_TRUE(before.tables.write_row(op, Table::kReason, {vrf_id, SP_PUNT_GLEAN}, std::move(row)).ok());
    };
    const auto named = [](Process& process, uint32_t vrf_id) {
        return std::count_if(process.engine.arrays().vrfs, process.engine.arrays().vrfs + SP_VRFS,
                             [&](const sp_vrf& vrf) { return vrf.id == vrf_id; });
    };
    for (uint32_t id = 1; id <= 2; ++id) write(Op::kInsert, id);
    for (uint32_t id = 1; id <= 2; ++id) write(Op::kErase, id);
    write(Op::kInsert, 2);  // in a third slot, as the others wait for a grace period
    before.tables.commit();
    Process next(copy());
    EXPECT_EQ(named(next, 1), 0);
    EXPECT_EQ(named(next, 2), 1);
    EXPECT_EQ(named(before, 2), 1);
}

TEST_F(JournalTest, TwoProcessesDoNotShareOne) {
    Process first(folder / "journal");
    try {
        Process second(folder / "journal");
        FAIL() << "it was opened twice";
    } catch (const JournalError& problem) {
        EXPECT_NE(std::string(problem.what()).find("another vr-forwarder"), std::string::npos);
    }
}

TEST_F(JournalTest, AnotherFileIsRefused) {
    std::ofstream(folder / "journal") << "this is no journal, whatever it is";
    EXPECT_THROW(Process(folder / "journal"), JournalError);
}

TEST_F(JournalTest, WhatCannotBeWrittenIsCaughtUpWith) {
    auto process = std::make_unique<Process>(folder / "journal");
    auto put = [&](uint32_t number) {
        process->tables.write_route(Op::kInsert, 7, Family::kIpv4, prefix4(number << 8, 24), {SP_ROUTE_LOCAL}, {});
        process->tables.commit();
    };
    put(1);
    struct rlimit before {};
    getrlimit(RLIMIT_FSIZE, &before);
    auto handled = signal(SIGXFSZ, SIG_IGN);
    struct rlimit full = before;
    full.rlim_cur = std::filesystem::file_size(folder / "journal") + 10;
    setrlimit(RLIMIT_FSIZE, &full);
    put(2);
    EXPECT_TRUE(process->tables.journal_status().broken);
    put(3);
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, handled);
    put(4);
    EXPECT_FALSE(process->tables.journal_status().broken);
    std::string all = process->dump();
    process.reset();
    EXPECT_EQ(Process(folder / "journal").dump(), all);
}

TEST_F(JournalTest, CountersGoOnWhereTheArraysDoAndStartAgainWhereTheyDoNot) {
    RowWrite row;
    row.action = Action::kRewrite;
    sp_counter counted{};
    uint32_t slot = 0;
    {
        Process process(folder / "journal");
        process.engine.arrays().tx[0].packets = 1000;  // of whoever had the slot before
        process.tables.write_row(Op::kInsert, Table::kRouterInterfaceEgress, {5, 0}, std::move(row));
        process.tables.commit();
        slot = process.tables.objects().slot(Space::kInterface, 5);
        ASSERT_EQ(slot, 0u);
        process.engine.arrays().tx[slot].packets += 7;
        counted = process.engine.arrays().tx[slot];
    }
    auto count_of = [](const Tables& tables) {
        const Row* row = tables.rows().of(Table::kRouterInterfaceEgress).find({5, 0});
        return tables.rows().of(Table::kRouterInterfaceEgress).count({5, 0}, *row).packets;
    };
    {
        MemoryEngine engine;  // its counters were taken over
        engine.arrays().tx[slot] = counted;
        Grace grace(engine);
        EXPECT_EQ(count_of(Tables(engine.arrays(), grace, folder / "journal")), 7u);
    }
    EXPECT_EQ(count_of(Process(folder / "journal").tables), 0u);
}

}  // namespace
}  // namespace splitplane::testing
