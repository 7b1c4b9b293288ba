// SPDX-License-Identifier: Apache-2.0
#include "fib/route_store.h"

#include <gtest/gtest.h>

namespace splitplane {
namespace {

// What an erasure that the trie has no room for relies on, whatever else takes all cells.
TEST(RouteStore, TakesBackWhatItJustGaveUpInAnyNode) {
    for (uint32_t routes = 1; routes <= 20; ++routes) {
        RouteStore store(200, 100);
        RouteNode& node = store.at(store.make(0, 0));
        auto fill = [&](RouteNode& with, uint32_t count) {
            uint32_t added = 0;
            while (added < count && store.add_route(with, 2 + added, 100 + added)) {
                ++added;
            }
            return added == count;
        };
        ASSERT_TRUE(fill(node, routes));
        while (fill(store.at(store.make(0, 6)), 4)) {  // the smallest block
        }
        for (uint32_t at = 0; at < routes; ++at) {
            store.remove_route(node, 2 + at);
            ASSERT_TRUE(store.add_route(node, 2 + at, 200 + at)) << at << " of " << routes;
        }
        for (uint32_t at = 0; at < routes; ++at) {
            EXPECT_EQ(store.leaf(node, 2 + at), 200 + at);
        }
    }
}

}  // namespace
}  // namespace splitplane
