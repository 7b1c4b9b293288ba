// SPDX-License-Identifier: Apache-2.0
//
// Veth pairs in a network namespace of this process's own, and packet sockets at their far ends.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "engine/xdp/object.h"
#include "tests/pipeline/frames.h"

namespace splitplane::test {

// Move this process into new network and mount namespaces, with a bpffs of its own. Empty, or why it cannot.
std::string enclose();
// Where enclose() has mounted the bpffs.
std::string bpffs();

// Run a command; a test fails where it does.
void shell(const std::string& command);

// A veth pair: `near` is for the engine, the far end is held by this.
class Wire {
  public:
    // `index`: the near end's number; 0: whichever.
    explicit Wire(const std::string& near, uint32_t index = 0);
    ~Wire();
    Wire(const Wire&) = delete;
    Wire& operator=(const Wire&) = delete;

    const std::string& near() const { return near_; }
    // Send into the engine's port.
    void send(const Octets& frame) const;
    // The next frame that has left the engine's port; none after a minute, which a test that expects one never waits.
    std::optional<Octets> receive(std::chrono::milliseconds wait = std::chrono::seconds(60)) const;

  private:
    std::string near_, far_;
    Descriptor socket_;
};

// Two wires in namespaces of this process's own; of an engine of instance "test" on them nothing stays.
class OnTwoWires : public ::testing::Test {
  protected:
    static void SetUpTestSuite();
    void SetUp() override;
    void TearDown() override;

    std::optional<Wire> lan, up;

  private:
    static inline std::string problem_;  // why there are no namespaces
};

}  // namespace splitplane::test
