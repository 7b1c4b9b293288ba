// SPDX-License-Identifier: Apache-2.0
//
// How a forwarder is: collected in one place, shown as a page for people, as JSON, and as OpenMetrics.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/core_shares.h"
#include "daemon/counters.h"
#include "daemon/limiting.h"
#include "engine/engine.h"
#include "tables/link_shares.h"

namespace splitplane {

struct TableReport {
    std::string name;
    uint64_t entries;
    uint64_t size;  // entries that fit
};

struct LinkReport {
    Port port;
    LinkStatus status;
};

// A number that goes up, of the P4Runtime server: `name` is what OpenMetrics call it, with at most one label.
struct ServerCount {
    std::string name;  // "requests"
    std::string help;
    std::string label, label_value;  // "method", "Write"; empty: none
    uint64_t value;
};

struct Report {
    std::string version;
    int pid = 0;
    uint64_t uptime_s = 0;
    uint64_t device_id = 0;
    std::vector<std::string> listening;
    std::string engine;
    std::vector<std::string> remarks;  // of the engine, for the operator
    bool pipeline = false;             // a controller has set it
    std::vector<PortStatus> ports;
    std::vector<LinkReport> links;     // of the same ports
    std::vector<TableReport> tables;
    uint64_t controllers = 0;          // that are connected
    bool primary = false;              // one of them is
    std::string election_id;           // the highest that was ever seen; empty: none
    std::vector<ServerCount> server;
    uint64_t trie_octets_used = 0, trie_octets = 0;
    uint64_t journal_octets = 0;
    bool journal_broken = false;       // it cannot be written: changes are lost with the process
    Counters counters;
    CoreShares cores;
    std::vector<PortLosses> losses;
    Limits::Seen limits{{}, 0};
};

std::string report_text(const Report& report);
std::string report_json(const Report& report);
std::string report_metrics(const Report& report);

}  // namespace splitplane
