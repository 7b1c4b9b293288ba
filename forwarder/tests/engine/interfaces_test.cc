// SPDX-License-Identifier: Apache-2.0
//
// What the engine makes of rtnetlink's messages, in the orders in which they come where some of them are lost.

#include <gtest/gtest.h>
#include <linux/if.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "engine/netdev/interfaces.h"
#include "engine/netdev/netlink.h"

namespace splitplane::test {
namespace {

// Messages as the kernel lays them out.
class Messages {
  public:
    Messages& link(uint32_t seq, int ifindex, const char* name, uint16_t flags = NLM_F_MULTI,
                   uint16_t type = RTM_NEWLINK) {
        struct {
            nlmsghdr header;
            ifinfomsg body;
            rtattr attribute;
            char name[IFNAMSIZ];
        } message{};
        message.header = {sizeof message, type, flags, seq, 0};
        message.body.ifi_index = ifindex;
        message.body.ifi_flags = IFF_UP | IFF_LOWER_UP;
        message.attribute = {static_cast<unsigned short>(RTA_LENGTH(IFNAMSIZ)), IFLA_IFNAME};
        std::strncpy(message.name, name, IFNAMSIZ - 1);
        return add(&message, sizeof message);
    }
    Messages& gone(int ifindex) { return link(0, ifindex, "", 0, RTM_DELLINK); }
    Messages& done(uint32_t seq, uint16_t flags = NLM_F_MULTI, int error = 0) {
        struct {
            nlmsghdr header;
            int error;
        } message{{sizeof message, NLMSG_DONE, flags, seq, 0}, error};
        return add(&message, sizeof message);
    }
    Messages& refused(uint32_t seq, int error) {
        struct {
            nlmsghdr header;
            nlmsgerr body;
        } message{};
        message.header = {sizeof message, NLMSG_ERROR, 0, seq, 0};
        message.body.error = -error;
        return add(&message, sizeof message);
    }
    operator std::span<const char>() const { return octets_; }

  private:
    Messages& add(const void* message, size_t octets) {
        const auto* from = static_cast<const char*>(message);
        octets_.insert(octets_.end(), from, from + octets);
        return *this;
    }

    std::vector<char> octets_;
};

// A table that knows eth1 (ifindex 3) and eth2 (4) by its first dump.
InterfaceTable two_interfaces() {
    InterfaceTable table;
    const uint32_t seq = table.next_dump().value();
    table.take(Messages().link(seq, 3, "eth1").link(seq, 4, "eth2").done(seq));
    EXPECT_TRUE(table.complete());
    return table;
}

TEST(InterfaceTableTest, KnowsWhatADumpHadAndForgetsWhatTheNextHasNot) {
    InterfaceTable table = two_interfaces();
    EXPECT_EQ(table.find("eth1")->ifindex, 3u);
    EXPECT_FALSE(table.next_dump());
    table.overrun();
    const uint32_t seq = table.next_dump().value();
    table.take(Messages().link(seq, 4, "eth2").done(seq));
    EXPECT_FALSE(table.find("eth1"));
    EXPECT_TRUE(table.find("eth2"));
    EXPECT_TRUE(table.complete());
}

// Only what is on a bus is believed what it says of its speed.
TEST(InterfaceTableTest, KnowsTheBusOfADevice) {
    InterfaceTable table = two_interfaces();
    ifinfomsg body{};
    body.ifi_index = 3;
    NetlinkRequest message(RTM_NEWLINK, 0);
    message.body(body).attribute(IFLA_IFNAME, std::string("eth1"));
    message.attribute(IFLA_PARENT_DEV_BUS_NAME, std::string("pci"));
    table.take(message.octets());
    EXPECT_EQ(table.find("eth1")->bus, "pci");
    EXPECT_EQ(table.find("eth2")->bus, "");
}

// Overrun, dump, a second overrun, the kernel's EBUSY to a second dump: nothing of it is a reason to let ports go.
TEST(InterfaceTableTest, AnOverrunDuringADumpAsksAgainOnceItHasEnded) {
    InterfaceTable table = two_interfaces();
    table.overrun();
    const uint32_t first = table.next_dump().value();
    table.take(Messages().link(first, 3, "eth1"));
    table.overrun();
    EXPECT_FALSE(table.next_dump()) << "the kernel has one dump at a time of a socket";
    table.take(Messages().done(first));
    EXPECT_TRUE(table.find("eth1") && table.find("eth2")) << "the dump may have missed what was lost meanwhile";
    const uint32_t second = table.next_dump().value();
    EXPECT_GT(second, first);
    table.take(Messages().link(second, 3, "eth1").done(second));
    EXPECT_FALSE(table.find("eth2"));
    EXPECT_TRUE(table.complete());
}

TEST(InterfaceTableTest, ARefusedDumpIsNoEndOfOneAndIsAskedForOnceSomethingIsHeard) {
    InterfaceTable table = two_interfaces();
    table.overrun();
    const uint32_t refused = table.next_dump().value();
    table.take(Messages().refused(refused, EBUSY));
    EXPECT_TRUE(table.find("eth1") && table.find("eth2"));
    EXPECT_FALSE(table.next_dump()) << "asked at once it would be refused again";
    table.take(Messages().done(refused - 1));
    const uint32_t again = table.next_dump().value();
    table.take(Messages().link(again, 3, "eth1").link(again, 4, "eth2").done(again));
    EXPECT_TRUE(table.find("eth1") && table.find("eth2"));
    EXPECT_TRUE(table.complete());
}

TEST(InterfaceTableTest, AnInterruptedOrFailedDumpIsNotWhole) {
    InterfaceTable table = two_interfaces();
    table.overrun();
    uint32_t seq = table.next_dump().value();
    table.take(Messages().link(seq, 3, "eth1", NLM_F_MULTI | NLM_F_DUMP_INTR).done(seq));
    EXPECT_TRUE(table.find("eth2"));
    seq = table.next_dump().value();
    table.take(Messages().link(seq, 3, "eth1").done(seq, NLM_F_MULTI, -ENOMEM));
    EXPECT_TRUE(table.find("eth2"));
    seq = table.next_dump().value();
    table.take(Messages().link(seq, 3, "eth1").done(seq, NLM_F_MULTI | NLM_F_DUMP_INTR));
    EXPECT_TRUE(table.find("eth2"));
    seq = table.next_dump().value();
    table.take(Messages().link(seq, 3, "eth1").done(seq));
    EXPECT_FALSE(table.find("eth2"));
}

TEST(InterfaceTableTest, ChangesCountWithoutADump) {
    InterfaceTable table = two_interfaces();
    table.take(Messages().gone(3).link(0, 5, "eth3", 0));
    EXPECT_FALSE(table.find("eth1"));
    EXPECT_EQ(table.find("eth3")->ifindex, 5u);
    EXPECT_TRUE(table.complete());
}

TEST(InterfaceTableTest, ShortMessagesAreLeftOut) {
    InterfaceTable table = two_interfaces();
    const Messages whole = Messages().gone(3).gone(4);
    const std::span<const char> octets = whole;
    for (size_t length = 0; length < sizeof(nlmsghdr) + sizeof(ifinfomsg); ++length) table.take(octets.first(length));
    EXPECT_TRUE(table.find("eth1") && table.find("eth2"));
}

}  // namespace
}  // namespace splitplane::test
