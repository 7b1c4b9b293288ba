// SPDX-License-Identifier: Apache-2.0
//
// What is said where the kernel does not take a program: whose fault it is, and the remedy. Needs root.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "engine/xdp/object.h"

namespace splitplane::test {
namespace {

alignas(8) constexpr uint8_t kRefused[] = {
#include "refused.inc"
};
constexpr Capacity kCapacity{.words = 1u << 18, .members = 1u << 10};
constexpr uid_t kNobody = 65534;

std::string complaint_about(std::span<const uint8_t> elf) {
    try {
        XdpObject object(elf, kCapacity);
    } catch (const EngineError& error) {
        return error.what();
    }
    return "it loads";
}

// The same as a user without privileges, in a process of its own.
std::string complaint_without_privileges(std::span<const uint8_t> elf) {
    int ends[2];
    if (::pipe(ends) != 0) return "no pipe";
    const pid_t child = ::fork();
    if (child == 0) {
        const std::string said = ::setuid(kNobody) == 0 ? complaint_about(elf) : "no setuid";
        ::_exit(::write(ends[1], said.data(), said.size()) < 0);
    }
    ::close(ends[1]);
    std::string said(1000, '\0');
    const ssize_t size = ::read(ends[0], said.data(), said.size());
    ::close(ends[0]);
    ::waitpid(child, nullptr, 0);
    said.resize(size < 0 ? 0 : static_cast<size_t>(size));
    return said;
}

TEST(Loading, TheVerifiersRefusalIsSaidAsThatWithItsLog) {
    try {
        XdpObject object(kRefused, kCapacity);
        FAIL() << "it loads";
    } catch (const VerifierRefused& refused) {
        const std::string said = refused.what();
        EXPECT_NE(said.find("the kernel's verifier refuses the XDP program: R1 offset is outside of the packet"), said.npos) << said;
        EXPECT_EQ(said.find("root"), said.npos) << said;
        EXPECT_EQ(said.find('\n'), said.npos) << said;
        EXPECT_NE(refused.log().find("invalid access to packet"), said.npos) << refused.log();
    }
}

TEST(Loading, PrivilegesAreSpokenOfWhereTheyLack) {
    EXPECT_EQ(complaint_about(XdpObject::forwarding_program()), "it loads");
    const std::string said = complaint_without_privileges(XdpObject::forwarding_program());
    EXPECT_NE(said.find("it needs root, or CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON"), said.npos) << said;
    EXPECT_EQ(complaint_about(kRefused).find("it needs root"), said.npos);
}

}  // namespace
}  // namespace splitplane::test
