// SPDX-License-Identifier: Apache-2.0
//
// What is said of drivers that are not here: a line for each way in which one cannot, or not as it is set.

#include <gtest/gtest.h>

#include <cerrno>

#include "engine/netdev/native.h"
#include "engine/netdev/offloads.h"
#include "engine/netdev/xdp_features.h"

namespace splitplane::test {
namespace {

constexpr uint64_t kAll = kXdpBasic | kXdpRedirect | kXdpTransmit | kXdpReceiveFrags | kXdpTransmitFrags;

DeviceFacts device(const char* driver, std::optional<uint64_t> features = kAll) {
    DeviceFacts facts;
    facts.name = "eth1";
    facts.driver.name = driver;
    facts.mtu = 1500;
    facts.xdp_features = features;
    return facts;
}

TEST(Native, ADriverHasToRedirectAndToTakeWhatIsRedirected) {
    EXPECT_EQ(native_hindrance(device("ice")), "");
    EXPECT_EQ(native_hindrance(device("e1000e", 0)), "its driver e1000e has no native XDP");
    EXPECT_EQ(native_hindrance(device("", 0)), "its driver has no native XDP");
    EXPECT_EQ(native_hindrance(device("ixgbevf", kXdpBasic)), "its driver ixgbevf has native XDP without redirect");
    EXPECT_EQ(native_shortfall(device("mlx4_en", kXdpBasic | kXdpRedirect)),
              "its driver mlx4_en has native XDP but sends nothing that another port redirects to it");
    EXPECT_EQ(native_shortfall(device("ice")), "");
}

TEST(Native, WhereTheKernelDoesNotTellDriversThatLoseAreKnownByName) {
    for (const char* driver : {"ixgbevf", "mlx4_en", "nfp"}) {
        EXPECT_NE(native_hindrance(device(driver, std::nullopt)), "") << driver;
    }
    EXPECT_EQ(native_hindrance(device("ixgbe", std::nullopt)), "");
    EXPECT_EQ(native_shortfall(device("ixgbe", std::nullopt)), "");
}

TEST(Native, ARefusalSaysWhatToDo) {
    EXPECT_EQ(native_refusal(device("e1000e", std::nullopt), EOPNOTSUPP, ""), "its driver e1000e has no native XDP");
    EXPECT_EQ(native_refusal(device("e1000e"), EOPNOTSUPP, "Underlying driver does not support XDP in native mode"),
              "its driver e1000e has no native XDP");
    DeviceFacts ixgbe = device("ixgbe");
    EXPECT_EQ(native_refusal(ixgbe, EINVAL, ""),
              "its driver ixgbe refuses native XDP (Invalid argument): DCB may be on; switch it off");
    ixgbe.virtual_functions = 4;
    EXPECT_EQ(native_refusal(ixgbe, EINVAL, ""),
              "its driver ixgbe refuses native XDP (Invalid argument): SR-IOV is on; run: echo 0 > "
              "/sys/class/net/eth1/device/sriov_numvfs");
    DeviceFacts virtio = device("virtio_net");
    virtio.joins_packets = true;
    const std::string said = native_refusal(virtio, EOPNOTSUPP, "disable GRO_HW/CSUM first");
    EXPECT_NE(said.find("guest_tso4=off"), std::string::npos) << said;
    DeviceFacts jumbo = device("ena");
    jumbo.mtu = 9000;
    EXPECT_EQ(native_refusal(jumbo, EINVAL, "MTU too large"),
              "its driver ena refuses native XDP (MTU too large): its MTU of 9000 may be too large; try: ip link set "
              "dev eth1 mtu 1500");
}

TEST(Native, ConditionsAreOthersOnceSomethingThatForbidsChanges) {
    const std::string before = conditions_of(device("ixgbe"));
    DeviceFacts facts = device("ixgbe", kAll & ~uint64_t{kXdpTransmit | kXdpTransmitFrags});
    EXPECT_EQ(conditions_of(facts), before) << "what an attached program changes";
    facts.mtu = 9000;
    EXPECT_NE(conditions_of(facts), before);
    facts = device("ixgbe");
    facts.joins_packets = true;
    EXPECT_NE(conditions_of(facts), before);
    facts = device("ixgbe");
    facts.virtual_functions = 1;
    EXPECT_NE(conditions_of(facts), before);
    EXPECT_NE(conditions_of(device("ice")), before);
    EXPECT_NE(conditions_of(device("ixgbe", 0)), before);
}

TEST(Native, FewerQueuesThanCpusLoseWhereTheQueueIsTheCpus) {
    DeviceFacts facts = device("mlx5_core");
    facts.channels = {8, 32};
    EXPECT_EQ(transmit_problem(facts, 16),
              "it has 8 queues for 16 CPUs: what others receive for it is lost; run: ethtool -L eth1 combined 16");
    EXPECT_EQ(transmit_problem(facts, 8), "");
    facts.driver.name = "i40e";
    facts.channels = {4, 8};
    EXPECT_EQ(transmit_problem(facts, 16),
              "it has 4 queues for 16 CPUs: what others receive for it is lost; have no interrupt of a port on CPU 8 "
              "or above, and run: ethtool -L eth1 combined 8");
    facts.driver.name = "ice";
    EXPECT_EQ(transmit_problem(facts, 16), "");
}

TEST(Native, AVethWhoseFarEndDoesNotPollIsNative) {
    const DeviceFacts facts = device("veth", kXdpBasic | kXdpRedirect | kXdpReceiveFrags);
    EXPECT_EQ(native_shortfall(facts), "");
    EXPECT_EQ(transmit_problem(facts, 1),
              "its far end does not poll, so what is sent to it is lost; run there: ethtool -K FAR gro on");
    EXPECT_EQ(transmit_problem(device("veth"), 1), "");
}

TEST(Native, FramesInSeveralBuffersNeedADriverThatSendsThem) {
    DeviceFacts facts = device("ena", kXdpBasic | kXdpRedirect | kXdpTransmit | kXdpReceiveFrags);
    EXPECT_FALSE(receives_frags(facts) || lacks_transmit_frags(facts)) << "its frames lie in one";
    facts.mtu = 9000;
    EXPECT_TRUE(receives_frags(facts) && lacks_transmit_frags(facts));
    facts.xdp_features = kAll;
    EXPECT_FALSE(lacks_transmit_frags(facts));
}

TEST(Offloads, WhatHidesTagsJoinsPacketsOrFiltersVlansIsToBeOff) {
    const std::map<std::string, OffloadState> offloads{
        {"rx-vlan-hw-parse", {true, false}}, {"rx-vlan-filter", {true, false}}, {"rx-lro", {true, false}},
        {"rx-gro-hw", {false, false}},       {"rx-gro", {true, false}},         {"rx-checksum", {true, false}},
    };
    const std::vector<std::string> native{"rx-vlan-hw-parse", "rx-lro", "rx-vlan-filter"};
    EXPECT_EQ(unwanted_offloads(offloads, false), native);
    EXPECT_EQ(unwanted_offloads(offloads, true).size(), native.size() + 1) << "GRO comes before generic XDP";
    const std::vector<std::string> said = offload_problems("eth1", offloads, false);
    ASSERT_EQ(said.size(), 3u);
    EXPECT_EQ(said[0], "rx-vlan-hw-parse is on and hides VLAN tags; run: ethtool -K eth1 rx-vlan-hw-parse off");
    EXPECT_EQ(said[2],
              "rx-vlan-filter is on and drops VLANs that the host does not have; run: ethtool -K eth1 rx-vlan-filter "
              "off");
}

TEST(Offloads, WhatADriverDoesNotLetGoIsSaidWhereItDoesHarm) {
    const std::map<std::string, OffloadState> offloads{{"rx-gro-hw", {true, true}}, {"rx-vlan-filter", {true, true}}};
    EXPECT_TRUE(unwanted_offloads(offloads, false).empty());
    EXPECT_EQ(offload_problems("eth1", offloads, false),
              std::vector<std::string>{"rx-gro-hw is on and joins packets, and its driver cannot switch it off; "
                                       "whoever runs this machine has to"});
}

}  // namespace
}  // namespace splitplane::test
