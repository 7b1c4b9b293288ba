// SPDX-License-Identifier: Apache-2.0
//
// Whether a P4Runtime server answers a client that connects.
#pragma once

#include <chrono>
#include <string>

namespace splitplane {

// Ask for the Capabilities at a Unix socket, over a connection of its own. True: there is an answer in time, whatever it
// says. No client of gRPC's, which in the server's own process would share what its threads wait on.
bool answers(const std::string& socket_path, std::chrono::milliseconds within);

}  // namespace splitplane
