// SPDX-License-Identifier: Apache-2.0
//
// Tables that take fewer entries than they have room for.
#include <gtest/gtest.h>

#include "tables/tests/fixture.h"

namespace splitplane {
namespace {

using testing::Folder;
using testing::Process;

struct Limited {
    Table table;
    Action action;
};

RowWrite row_of(Action action) {
    RowWrite row;
    row.action = action;
    row.params = {1, 2, 3};
    return row;
}

TableLimits limits_of(Table table, uint32_t entries) {
    TableLimits limits;
    limits.set(table, entries);
    return limits;
}

class Limits : public ::testing::TestWithParam<Limited> {
  protected:
    static Result write(Process& process, Op op, uint32_t id) {
        return process.tables.write_row(op, GetParam().table, {id, 0}, row_of(GetParam().action));
    }
    static size_t held(Process& process) { return process.tables.rows().of(GetParam().table).rows().size(); }
};

TEST_P(Limits, AreKeptAndWhatLeavesMakesRoom) {
    Process process({}, limits_of(GetParam().table, 2));
    EXPECT_TRUE(write(process, Op::kInsert, 1).ok());
    EXPECT_TRUE(write(process, Op::kInsert, 2).ok());
    const std::string before = process.dump();
    const Result refused = write(process, Op::kInsert, 3);
    EXPECT_EQ(refused.code, Code::kResourceExhausted);
    EXPECT_EQ(refused.text, std::string(traits(GetParam().table).name) + " is full: 2 entries");
    EXPECT_EQ(process.dump(), before) << "nothing of it is applied";
    EXPECT_TRUE(write(process, Op::kModify, 2).ok()) << "what is there may change";
    EXPECT_TRUE(write(process, Op::kErase, 1).ok());
    EXPECT_TRUE(write(process, Op::kInsert, 3).ok());
    EXPECT_EQ(held(process), 2u);
}

TEST_P(Limits, OfTheNextProcessTakeNothingAway) {
    Folder folder;
    const auto journal = folder / "journal";
    {
        Process process(journal);
        for (uint32_t id = 1; id <= 3; ++id) EXPECT_TRUE(write(process, Op::kInsert, id).ok());
        process.tables.commit();
    }
    Process next(journal, limits_of(GetParam().table, 1));
    EXPECT_EQ(held(next), 3u) << "what forwards goes on";
    EXPECT_EQ(next.tables.rows().of(GetParam().table).limit(), 1u);
    EXPECT_TRUE(write(next, Op::kErase, 1).ok());
    EXPECT_EQ(write(next, Op::kInsert, 1).code, Code::kResourceExhausted);
    EXPECT_TRUE(write(next, Op::kModify, 2).ok());
}

TEST(TableLimits, AreTheSizesWhereNothingIsSaid) {
    Process process;
    for (size_t each = 0; each < kTables; ++each) {
        const auto table = static_cast<Table>(each);
        EXPECT_EQ(process.tables.rows().of(table).limit(), traits(table).size);
    }
}

// It would have gone on with the group as it was before.
TEST(TableLimits, OfMembersThatAGroupOfTheJournalDoesNotFitIntoAreSaid) {
    Folder folder;
    {
        Process process(folder / "journal");
        Tables& tables = process.tables;
        RowWrite row = row_of(Action::kProfileGroup);
        EXPECT_TRUE(tables.write_member(Op::kInsert, 1, 7).ok());
        EXPECT_TRUE(tables.write_group(Op::kInsert, 1, 0, {{1, 1}}).ok());
        EXPECT_TRUE(tables.write_row(Op::kInsert, Table::kNexthopGroup, {5, 0}, std::move(row)).ok());
        EXPECT_TRUE(tables.write_group(Op::kModify, 1, 0, {{1, 200}}).ok());
        tables.commit();
    }
    MemoryEngine engine{Capacity{.words = 1u << 10, .members = 128}};
    testing::Grace grace(engine);
    try {
        Tables tables(engine.arrays(), grace, folder / "journal");
        FAIL() << "it starts with a group of "
               << sp_group_size(engine.arrays().groups[tables.objects().slot(Space::kGroup, 5)]);
    } catch (const JournalError& problem) {
        EXPECT_NE(std::string(problem.what()).find("raise the capacity of members"), std::string::npos);
    }
}

INSTANTIATE_TEST_SUITE_P(All, Limits,
                         ::testing::Values(Limited{Table::kNexthop, Action::kSetNeighbor},
                                           Limited{Table::kRouterInterface, Action::kSetPort},
                                           Limited{Table::kRouterInterfaceEgress, Action::kRewrite},
                                           Limited{Table::kPolicer, Action::kPolice},
                                           Limited{Table::kNexthopGroup, Action::kOneShot}));

}  // namespace
}  // namespace splitplane
