// SPDX-License-Identifier: Apache-2.0
//
// The number that makes the routers of this forwarder choose members of groups otherwise than those of another.
#pragma once

#include <cstdint>
#include <filesystem>

namespace splitplane {

// The seed that stands in a state directory, where one was drawn when there was none: it survives the process, so that
// flows stay where they are, and not a reboot. Odd, and so never 0. ConfigError where it can be neither read nor kept.
uint64_t hash_seed(const std::filesystem::path& state);

}  // namespace splitplane
