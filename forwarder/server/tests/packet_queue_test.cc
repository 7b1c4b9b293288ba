// SPDX-License-Identifier: Apache-2.0
//
// Packet-ins that wait: who goes first, and who gives way.

#include "server/packet_queue.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace splitplane {
namespace {

struct PacketQueues : ::testing::Test {
    PacketQueue queue{4};
    std::optional<Waiting> dropped;

    // False where one is dropped, of which `dropped` then tells. Interfaces of a router begin at ten times its number.
    bool push(uint32_t punt_class, uint32_t router, const std::string& name, uint32_t interface = 0) {
        p4::v1::StreamMessageResponse packet;
        packet.mutable_packet()->set_payload(name);
        dropped = queue.push({punt_class, router, 10 * router + interface}, std::move(packet));
        return !dropped;
    }
    std::vector<std::string> all() {
        std::vector<std::string> names;
        while (!queue.empty()) names.push_back(queue.pop().packet().payload());
        return names;
    }
    using Names = std::vector<std::string>;
};

TEST_F(PacketQueues, TheMostUrgentClassGoesFirst) {
    push(SP_CLASS_OPTIONS, 1, "options");
    push(SP_CLASS_BGP, 1, "bgp");
    push(SP_CLASS_BFD, 1, "bfd");
    EXPECT_EQ(all(), (Names{"bfd", "bgp", "options"}));
}

TEST_F(PacketQueues, RoutersOfAClassTakeTurns) {
    push(SP_CLASS_BGP, 7, "7a");
    push(SP_CLASS_BGP, 7, "7b");
    push(SP_CLASS_BGP, 1, "1a");
    push(SP_CLASS_BGP, 9, "9a");
    EXPECT_EQ(all(), (Names{"1a", "7a", "9a", "7b"}));
    push(SP_CLASS_BGP, 1, "1b");
    push(SP_CLASS_BGP, 9, "9b");
    EXPECT_EQ(queue.pop().packet().payload(), "9b") << "7 was the last, whoever has left since";
}

TEST_F(PacketQueues, OfTooManyTheNewestIsDropped) {
    for (const auto* name : {"a", "b", "c", "d"}) EXPECT_TRUE(push(SP_CLASS_ICMP, 1, name));
    EXPECT_FALSE(push(SP_CLASS_ICMP, 1, "e"));
    EXPECT_EQ(all(), (Names{"a", "b", "c", "d"}));
}

TEST_F(PacketQueues, WhoHasMostGivesWayToOthersOfItsClass) {
    for (const auto* name : {"a", "b", "c", "d"}) push(SP_CLASS_ICMP, 1, name);
    EXPECT_FALSE(push(SP_CLASS_ICMP, 2, "e"));
    EXPECT_FALSE(push(SP_CLASS_ICMP, 2, "f"));
    EXPECT_FALSE(push(SP_CLASS_ICMP, 2, "g")) << "as many as the other";
    EXPECT_EQ(all(), (Names{"a", "e", "b", "f"}));
}

TEST_F(PacketQueues, AnInterfaceLeavesRoomToAnotherOfItsRouter) {
    for (const auto* name : {"a", "b", "c", "d"}) push(SP_CLASS_ICMP, 1, name);
    EXPECT_FALSE(push(SP_CLASS_ICMP, 1, "e", 1));
    EXPECT_EQ(dropped->interface, 10u) << "of whom has most";
    EXPECT_FALSE(push(SP_CLASS_ICMP, 1, "f", 1));
    EXPECT_FALSE(push(SP_CLASS_ICMP, 1, "g", 1));
    EXPECT_EQ(dropped->interface, 11u) << "as many as the other";
    EXPECT_EQ(all(), (Names{"a", "e", "b", "f"}));
}

TEST_F(PacketQueues, TheLeastUrgentGivesWay) {
    push(SP_CLASS_OPTIONS, 1, "options");
    for (const auto* name : {"a", "b", "c"}) push(SP_CLASS_ROUTING, 1, name);
    EXPECT_FALSE(push(SP_CLASS_BFD, 2, "bfd"));
    EXPECT_EQ(dropped->punt_class, uint32_t{SP_CLASS_OPTIONS}) << "it is another one's loss";
    EXPECT_EQ(dropped->interface, 10u);
    EXPECT_FALSE(push(SP_CLASS_GLEAN, 3, "glean")) << "is itself the least urgent";
    EXPECT_EQ(dropped->interface, 30u);
    EXPECT_EQ(all(), (Names{"bfd", "a", "b", "c"}));
}

TEST_F(PacketQueues, WithoutRoomNothingWaits) {
    PacketQueue none(0);
    EXPECT_TRUE(none.push({SP_CLASS_BFD, 1, 1}, {}));
    EXPECT_TRUE(none.empty());
}

}  // namespace
}  // namespace splitplane
