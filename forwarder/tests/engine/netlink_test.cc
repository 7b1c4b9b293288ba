// SPDX-License-Identifier: Apache-2.0
//
// Octets of netlink: what is asked, and what is read out of answers, short ones included.

#include <gtest/gtest.h>
#include <linux/genetlink.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>

#include <cerrno>

#include "engine/netdev/netlink.h"
#include "engine/netdev/virtual_function.h"
#include "engine/netdev/xdp_features.h"

namespace splitplane::test {
namespace {

// The octets of a request behind its header: what an answer has there is laid out alike.
std::span<const char> behind_header(NetlinkRequest& request) { return request.octets().subspan(NLMSG_HDRLEN); }

TEST(Netlink, AttributesAreReadAsTheyAreWritten) {
    NetlinkRequest request(RTM_GETLINK, 0);
    request.attribute(1, std::string("eth1")).attribute(2, 7u);
    request.begin_nest(3).attribute(1, 8u).end_nest();
    request.attribute(4, 9u);
    const NetlinkAttributes all(behind_header(request));
    EXPECT_EQ(all.text(1), "eth1");
    EXPECT_EQ(all.number(2), 7u);
    EXPECT_EQ(all.nested(3).number(1), 8u);
    EXPECT_EQ(all.number(4), 9u);
    EXPECT_FALSE(all.number(5) || all.long_number(2));
    EXPECT_EQ(all.all().size(), 4u);
    EXPECT_EQ(reinterpret_cast<const nlmsghdr*>(request.octets().data())->nlmsg_len, request.octets().size());
}

TEST(Netlink, AttributesThatAreCutAreNotThere) {
    NetlinkRequest request(RTM_GETLINK, 0);
    request.attribute(1, 7u).attribute(2, 8u);
    const std::span<const char> octets = behind_header(request);
    for (size_t length = 0; length < octets.size(); ++length) {
        const NetlinkAttributes cut(octets.first(length));
        EXPECT_EQ(cut.number(1).has_value(), length >= octets.size() / 2);
        EXPECT_FALSE(cut.number(2));
    }
}

TEST(Netlink, ADriversWordsAreReadOutOfAnError) {
    NetlinkRequest request(NLMSG_ERROR, NLM_F_CAPPED | NLM_F_ACK_TLVS);
    nlmsgerr body{};
    body.error = -EOPNOTSUPP;
    request.body(body).attribute(NLMSGERR_ATTR_MSG, std::string("MTU too large"));
    const NetlinkAnswer answer = answer_of(reinterpret_cast<const nlmsghdr*>(request.octets().data()));
    EXPECT_EQ(answer.error, EOPNOTSUPP);
    EXPECT_EQ(answer.words, "MTU too large");
    NetlinkRequest silent(NLMSG_ERROR, NLM_F_CAPPED);
    silent.body(body);
    EXPECT_EQ(answer_of(reinterpret_cast<const nlmsghdr*>(silent.octets().data())).words, "");
}

TEST(Netlink, XdpFeaturesAreReadOutOfADevicesMessage) {
    constexpr uint16_t kIfindex = 1, kFeatures = 3;
    const uint64_t features = kXdpBasic | kXdpRedirect;
    NetlinkRequest message(20, 0);
    message.body(genlmsghdr{1, 1, 0}).attribute(kIfindex, 3u).attribute(kFeatures, &features, sizeof features);
    EXPECT_EQ(xdp_features_in(behind_header(message)), features);
    EXPECT_FALSE(xdp_features_in({}));
    EXPECT_FALSE(xdp_features_in(behind_header(message).first(GENL_HDRLEN)));
}

TEST(Netlink, RightsOfAVirtualFunctionAreReadOutOfItsNicsMessage) {
    NetlinkRequest message(RTM_NEWLINK, 0);
    message.body(ifinfomsg{});
    NetlinkRequest functions(0, 0);
    for (uint32_t number = 0; number < 3; ++number) {
        const ifla_vf_trust trust{number, number};
        const ifla_vf_spoofchk check{number, number == 2 ? ~0u : 1u - number};
        functions.begin_nest(IFLA_VF_INFO).attribute(IFLA_VF_SPOOFCHK, &check, sizeof check);
        functions.attribute(IFLA_VF_TRUST, &trust, sizeof trust).end_nest();
    }
    const std::span<const char> list = behind_header(functions);
    message.attribute(IFLA_VFINFO_LIST, list.data(), list.size());
    const auto rights = [&](uint32_t number) { return rights_in(behind_header(message), number); };
    EXPECT_TRUE(!rights(0)->trusted && rights(0)->checked);
    EXPECT_TRUE(rights(1)->trusted && !rights(1)->checked);
    EXPECT_FALSE(rights(2)->checked) << "the driver does not tell";
    EXPECT_FALSE(rights(3));
    EXPECT_FALSE(rights_in({}, 0));
}

}  // namespace
}  // namespace splitplane::test
