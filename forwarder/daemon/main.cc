// SPDX-License-Identifier: Apache-2.0
//
// vr-forwarder: the command.

#include <absl/synchronization/mutex.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "daemon/daemon.h"
#include "daemon/dump.h"
#include "daemon/http.h"
#include "daemon/log.h"
#include "daemon/options.h"

namespace {

using namespace splitplane;

int detach(const Config& config) {
    const size_t count = detach_engine(config.engine_options());
    std::cout << "detached from " << count << (count == 1 ? " interface\n" : " interfaces\n");
    return 0;
}

int act(const Options& options) {
    const Config& config = options.config;
    switch (options.verb) {
        case Verb::kHelp: std::cout << options.help; return 0;
        case Verb::kVersion: std::cout << "vr-forwarder " SP_VERSION "\n"; return 0;
        case Verb::kCheck: check_config(config); return 0;
        case Verb::kStatus:
            std::cout << http_get(config.control_socket(), options.json ? "/status.json" : "/status");
            return 0;
        case Verb::kDump:
            http_get(config.control_socket(), "/status");  // says it well where none runs
            dump("unix:" + config.p4runtime_socket().string(), config.device_id, options.table, options.json,
                 std::cout);
            return 0;
        case Verb::kDetach: return detach(config);
        case Verb::kRun: break;
    }
    check_config(config);
    set_log_level(config.log_level);
    run_daemon(config);
    return 0;
}

}  // namespace

int main(int count, char** words) {
    std::ios::sync_with_stdio(false);
    // Debian builds the library with a check for programmers: it costs gRPC's locks two thirds of their time, and ends
    // the process where two of them were ever taken in another order, deadlock or not.
    absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
    try {
        const std::vector<std::string> given(words + 1, words + count);
        return act(parse_options(given));
    } catch (const ConfigError& error) {
        std::cerr << "vr-forwarder: " << error.what() << "\n";
        return 2;
    } catch (const std::exception& error) {
        std::cerr << "vr-forwarder: " << error.what() << "\n";
        return 1;
    }
}
