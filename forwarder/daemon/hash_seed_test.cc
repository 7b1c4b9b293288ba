// SPDX-License-Identifier: Apache-2.0

#include "daemon/hash_seed.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "daemon/config.h"

namespace splitplane {
namespace {

class HashSeed : public ::testing::Test {
  protected:
    void SetUp() override { std::filesystem::create_directories(state_); }
    void TearDown() override { std::filesystem::remove_all(state_); }

    const std::filesystem::path state_ =
        std::filesystem::temp_directory_path() / ("hash-seed-" + std::to_string(::getpid()));
};

TEST_F(HashSeed, IsDrawnOnceForAStateDirectory) {
    const uint64_t seed = hash_seed(state_);
    EXPECT_EQ(seed % 2, 1u);
    EXPECT_EQ(hash_seed(state_), seed) << "the next process";
    std::filesystem::remove(state_ / "hash-seed");
    EXPECT_NE(hash_seed(state_), seed) << "another forwarder";
}

TEST_F(HashSeed, IsDrawnAnewWhereTheFileHoldsNone) {
    for (const char* text : {"", "none\n", "0\n", "2\n"}) {
        std::ofstream(state_ / "hash-seed") << text;
        const uint64_t seed = hash_seed(state_);
        EXPECT_EQ(seed % 2, 1u) << text;
        EXPECT_EQ(hash_seed(state_), seed) << text;
    }
}

TEST_F(HashSeed, ThatCannotBeKeptIsSaid) {
    std::filesystem::remove_all(state_);
    EXPECT_THROW(hash_seed(state_), ConfigError);
}

}  // namespace
}  // namespace splitplane
