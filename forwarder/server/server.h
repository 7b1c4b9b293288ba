// SPDX-License-Identifier: Apache-2.0
//
// The P4Runtime server: the tables and the engine's packets for controllers, by P4Runtime 1.4.
//
//     Tables tables(engine.arrays(), grace, state / "journal");     // replays what the process before had in force
//     P4RuntimeServer server(tables, engine, {.device_id = 1});     // sets the engine's punt sink
//     server.start({{"192.0.2.1:9559", credentials}, {"unix:/run/…/p4rt.sock", grpc::InsecureServerCredentials()}});
//     engine.activate(ports);
//     …
//     server.stop();
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "tables/tables.h"

namespace grpc {
class ServerCredentials;
}

namespace splitplane {

// What the server cannot do, in one line that names the thing and the remedy.
class ServerError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

struct Listener {
    std::string address;  // "HOST:PORT" or "unix:PATH"; port 0 takes a free one
    std::shared_ptr<grpc::ServerCredentials> credentials;
};

struct ServerOptions {
    uint64_t device_id = 1;
    size_t max_streams = 32;           // controllers at once
    size_t max_reads = 16;             // at once, of all controllers
    size_t queued_packet_ins = 1024;   // of the primary; when more wait the least urgent are dropped
    int max_request_octets = 4 << 20;
    std::function<void(const std::string&)> log = {};  // one line each, of what an operator wants to know
};

// Since the start, except `streams`, `primary` and the tables, which are as of now.
struct ServerStatistics {
    std::array<uint64_t, kCodes> writes{};   // WriteRequests by google.rpc.Code
    std::array<uint64_t, kCodes> updates{};  // of them, by code
    std::array<uint64_t, kCodes> reads{};    // ReadRequests by code
    uint64_t entities_read = 0;
    std::array<uint64_t, kCodes> pipeline_configs{};  // SetForwardingPipelineConfig by code
    uint64_t connections_refused = 0;  // closed: too many were open
    uint64_t streams = 0;
    uint64_t streams_refused = 0;
    bool primary = false;               // whether there is one
    ElectionId election;                // the highest that was ever seen
    uint64_t packet_ins = 0;
    uint64_t packet_ins_no_primary = 0;  // dropped: nobody to send them to
    uint64_t packet_ins_queue_full = 0;  // dropped: the primary does not take them fast enough
    uint64_t samples = 0;                // that joined a list of digests
    uint64_t samples_dropped = 0;        // nobody to send them to, or the primary does not take them fast enough
    uint64_t route_samples_dropped = 0;  // not counted by route: who had the tables had them for too long
    uint64_t packet_outs = 0;
    uint64_t packet_outs_refused = 0;    // by this side: malformed, not primary, no such router interface
    uint64_t packet_outs_no_port = 0;    // by the engine
    uint64_t packet_outs_over_share = 0;  // dropped: their router has no share of the link left
    uint64_t stream_errors_dropped = 0;  // for which the queue had no room

    struct Occupancy {
        const char* table;
        uint64_t entries;
        uint64_t size;
    };
    std::vector<Occupancy> tables;
    uint64_t profile_members = 0, profile_groups = 0;
    uint64_t vrfs = 0, router_interfaces = 0, nexthops = 0, groups = 0;  // slots in use
    FibMemory routes{};
    BlockArena::Usage group_members{};
    JournalStatus journal;
};

class P4RuntimeServer {
  public:
    P4RuntimeServer(Tables& tables, Engine& engine, ServerOptions options);
    ~P4RuntimeServer();
    P4RuntimeServer(const P4RuntimeServer&) = delete;
    P4RuntimeServer& operator=(const P4RuntimeServer&) = delete;

    // Listen; ListenError names the address that cannot be had. Returns the ports, 0 for a Unix socket, which only its
    // owner may use.
    std::vector<int> start(const std::vector<Listener>& listeners);
    // End all streams and requests; returns when the last has gone. The destructor does it too.
    void stop();

    ServerStatistics statistics() const;

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace splitplane
