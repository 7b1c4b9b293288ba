// SPDX-License-Identifier: Apache-2.0
//
// What the build takes from p4src/golden: embed.py writes golden.cc.
#pragma once

#include <string_view>

namespace splitplane {

// The P4Info in text form.
std::string_view golden_p4info();

// The entries of constant tables, one a line; embed.py says how.
std::string_view golden_entries();

}  // namespace splitplane
