// SPDX-License-Identifier: Apache-2.0
//
// The command line of vr-forwarder.
#pragma once

#include <span>
#include <string>

#include "daemon/config.h"

namespace splitplane {

enum class Verb { kRun, kStatus, kDump, kDetach, kCheck, kHelp, kVersion };

struct Options {
    Verb verb = Verb::kRun;
    Config config;
    bool json = false;
    std::string table;  // of `dump`; empty: all
    std::string help;   // what --help prints
};

// Read the words behind the program's name, by CLI11. The file of --config is read first, wherever it stands, so that
// the other words count more. ConfigError where something is wrong.
Options parse_options(std::span<const std::string> words);

}  // namespace splitplane
