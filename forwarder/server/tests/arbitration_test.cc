// SPDX-License-Identifier: Apache-2.0
//
// Election ids that would lock every later controller out.
#include "server/arbitration.h"

#include <gtest/gtest.h>

#include "server/tests/device.h"

namespace splitplane::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::system_clock;

constexpr uint64_t kMost = UINT64_MAX;
constexpr uint64_t kDayMs = 24 * 60 * 60 * 1000;
constexpr uint64_t kNowMs = 1'800'000'000'000;  // 2027
constexpr uint64_t kYear2100Ms = 4'102'444'800'000;

uint64_t real_now_ms() {
    return static_cast<uint64_t>(
        std::chrono::duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count());
}

// An arbitration whose clock the test sets.
class ElectionRule : public ::testing::Test {
  protected:
    Result propose(uint64_t stream, uint64_t high, uint64_t low) {
        p4v1::MasterArbitrationUpdate message;
        message.set_device_id(kDevice);
        *message.mutable_election_id() = election(low, high);
        std::vector<Arbitration::Notice> notices;
        return arbitration->update(stream, message, notices);
    }
    std::unique_ptr<Arbitration> with_highest(std::optional<ElectionId> highest) {
        return std::make_unique<Arbitration>(kDevice, 8, highest,
                                             [this] { return system_clock::time_point(milliseconds(now_ms)); });
    }

    uint64_t now_ms = kNowMs;
    std::unique_ptr<Arbitration> arbitration = with_highest(std::nullopt);
};

TEST_F(ElectionRule, MoreThanADayAheadOfTheClockIsRefusedAndChangesNothing) {
    EXPECT_TRUE(propose(1, kNowMs, 5).ok());
    for (const auto& [high, low] : std::vector<std::pair<uint64_t, uint64_t>>{{kMost, kMost}, {kNowMs + kDayMs + 1, 0}}) {
        const Result refused = propose(2, high, low);
        EXPECT_EQ(refused.code, Code::kInvalidArgument);
        EXPECT_NE(refused.text.find("election id " + std::to_string(high) + "." + std::to_string(low) +
                                    " would lock others out"), std::string::npos) << refused.text;
    }
    EXPECT_EQ(arbitration->primary(), 1u);
    EXPECT_EQ(arbitration->highest(), (ElectionId{kNowMs, 5}));
    EXPECT_TRUE(propose(2, kNowMs + kDayMs, kMost).ok());
    EXPECT_EQ(arbitration->primary(), 2u);
}

TEST_F(ElectionRule, AMillisecondLaterTheHighestOfAllIsOutbid) {
    ASSERT_TRUE(propose(1, kNowMs + kDayMs, kMost).ok());
    EXPECT_FALSE(propose(2, kNowMs + kDayMs + 1, 0).ok());
    ++now_ms;
    EXPECT_TRUE(propose(2, kNowMs + kDayMs + 1, 0).ok());
    EXPECT_EQ(arbitration->primary(), 2u);
}

TEST_F(ElectionRule, SmallNumbersAreAlwaysTaken) {
    now_ms = 0;
    EXPECT_TRUE(propose(1, 0, kMost).ok());
    EXPECT_TRUE(propose(2, 1, 0).ok());
}

TEST_F(ElectionRule, AClockThatWasNeverSetKeepsNoControllerOut) {
    now_ms = 12'000;  // twelve seconds after 1970
    EXPECT_TRUE(propose(1, kNowMs, 1).ok());
    EXPECT_FALSE(propose(2, kYear2100Ms + 1, 0).ok());
}

TEST_F(ElectionRule, AClockThatIsSetBackKeepsTheHighestInForce) {
    ASSERT_TRUE(propose(1, kNowMs, 1).ok());
    now_ms -= 3 * kDayMs;
    EXPECT_TRUE(propose(2, kNowMs, 2).ok()) << "who outbids what is in force";
    EXPECT_FALSE(propose(3, kNowMs + 1, 0).ok());
}

TEST_F(ElectionRule, OneThatWasRememberedIsForgotten) {
    arbitration = with_highest(ElectionId{kMost, kMost});
    EXPECT_FALSE(arbitration->highest());
    EXPECT_TRUE(propose(1, kNowMs, 1).ok());
    EXPECT_EQ(arbitration->primary(), 1u);
    arbitration = with_highest(ElectionId{kNowMs, 1});
    EXPECT_EQ(arbitration->highest(), (ElectionId{kNowMs, 1}));
}

TEST(ElectionId, OfAControllerThatIsTooHighEndsItsStreamAlone) {
    Folder folder;
    Device device(folder.path());
    Controller good(device), bad(device);
    EXPECT_EQ(good.arbitrate(election(1, real_now_ms())).status().code(), grpc::OK);
    bad.arbitrate(election(kMost, kMost));
    EXPECT_EQ(bad.end().error_code(), grpc::INVALID_ARGUMENT);
    EXPECT_EQ(good.set_pipeline().error_code(), grpc::OK) << "it is primary as before";
}

TEST(ElectionId, AJournalWithOneThatIsTooHighHeals) {
    Folder folder;
    {
        Device before(folder.path());
        const auto lock = before.tables().lock();
        before.tables().set_election({kMost, kMost});
        before.tables().commit();
    }
    for (int start = 0; start < 2; ++start) {
        Device after(folder.path());
        const auto log = after.log();
        const bool told = !log.empty() && log.front().find("of the journal would lock every controller out") !=
                                              std::string::npos;
        EXPECT_EQ(told, start == 0) << "once";
        Controller controller(after);
        EXPECT_EQ(controller.arbitrate(election(static_cast<uint64_t>(start), real_now_ms())).status().code(), grpc::OK);
    }
}

}  // namespace
}  // namespace splitplane::testing
