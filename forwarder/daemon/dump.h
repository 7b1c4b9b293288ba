// SPDX-License-Identifier: Apache-2.0
//
// `vr-forwarder dump`: the entries of a running forwarder, read by P4Runtime like any controller would.
#pragma once

#include <cstdint>
#include <ostream>
#include <stdexcept>
#include <string>

namespace splitplane {

// Why nothing, or not everything, could be read; one line.
class DumpError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

// Write the entries of a table, or of all where it is empty, as they arrive: a line for each, or a JSON array.
void dump(const std::string& address, uint64_t device_id, const std::string& table, bool json, std::ostream& output);

}  // namespace splitplane
