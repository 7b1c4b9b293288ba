// SPDX-License-Identifier: Apache-2.0
//
// Routes are gone through page by page, while others come and go.
#include <gtest/gtest.h>

#include "tables/tests/fixture.h"

namespace splitplane {
namespace {

using testing::prefix4;
using testing::Process;

constexpr RouteAction kLocal{SP_ROUTE_LOCAL};

void write(Process& process, Op op, uint32_t vrf_id, uint32_t address) {
    ASSERT_TRUE(process.tables.write_route(op, vrf_id, Family::kIpv4, prefix4(address, 24), kLocal, {}).ok());
}

// The next router begins at its own first route, not behind the last one of the router that has none any more.
TEST(Routes, OfTheNextRouterAreVisitedFromTheFirstOnWhateverLeavesBetween) {
    Process process;
    write(process, Op::kInsert, 1, 0x0a000000);
    write(process, Op::kInsert, 2, 0x01000000);
    Routes::Cursor cursor;
    std::vector<Prefix> seen;
    const auto visit = [&](uint32_t, const Prefix& prefix, uint32_t) { seen.push_back(prefix); };
    EXPECT_TRUE(process.tables.routes().visit(Family::kIpv4, cursor, 1, visit));
    write(process, Op::kErase, 1, 0x0a000000);
    process.tables.routes().visit(Family::kIpv4, cursor, 10, visit);
    ASSERT_EQ(seen.size(), 2u);
    EXPECT_EQ(seen[1], prefix4(0x01000000, 24));
}

TEST(Routes, OfAllRoutersAreClearedHoweverMany) {
    constexpr uint32_t kAtOnce = 4096;  // what clear() takes in one go: here it ends where a router does
    Process process;
    for (uint32_t vrf_id = 1; vrf_id <= 3; ++vrf_id) {
        for (uint32_t at = 0; at < kAtOnce; ++at) write(process, Op::kInsert, vrf_id, (4 - vrf_id) << 28 | at << 8);
    }
    process.tables.clear();
    EXPECT_EQ(process.tables.routes().size(Family::kIpv4), 0u);
}

}  // namespace
}  // namespace splitplane
