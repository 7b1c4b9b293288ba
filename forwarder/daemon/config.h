// SPDX-License-Identifier: Apache-2.0
//
// What vr-forwarder is told: a TOML file, and the command line, whose words count more.
//
//     device_id = 1                        [ports]            [tls]
//     listen = ["192.0.2.1:9559"]          1 = "eth1"         cert = "/etc/vr-forwarder/cert.pem"
//     metrics = "127.0.0.1:9560"           2 = "eth2"         key = "/etc/vr-forwarder/key.pem"
//     state = "/run/vr-forwarder"                             ca = "/etc/vr-forwarder/ca.pem"
//     log_level = "info"                   [capacity]         client = "vr-controller"
//     detach_on_exit = false               words = 16777216
//     engine = "xdp"                       [samples]
//     hash_by_router = true                one_in = 100
//     route_counters = false
//
// A port whose link has a speed that its device does not tell: 3 = {interface = "eth3", speed = "1G"}.
#pragma once

#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engines.h"
#include "tables/link_shares.h"
#include "tables/row.h"

namespace splitplane {

// What is wrong with the configuration, in one line that names the thing and the remedy.
class ConfigError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// PEM files, for TCP. Clients have to show a certificate that the authority `ca` has signed for the DNS name `client`:
// the same authority signs those of switches and of routers' guests, who are no controllers.
struct TlsFiles {
    std::string cert;
    std::string key;
    std::string ca;
    std::string client = "vr-controller";
    bool complete() const { return !cert.empty() && !key.empty() && !ca.empty(); }
    bool wanted() const { return !cert.empty() || !key.empty() || !ca.empty(); }
};

struct Config {
    uint64_t device_id = 1;
    std::vector<std::string> listen;  // beside p4runtime_socket(): "HOST:PORT", which needs TLS, or "unix:PATH"
    std::string metrics;                                 // the same; empty: only on the control socket
    std::filesystem::path state = "/run/vr-forwarder";  // journal and control sockets; survives the process
    EngineKind engine = EngineKind::kXdp;
    std::string instance = "vr-forwarder";              // folder of bpffs for what is pinned
    LogLevel log_level = LogLevel::kInfo;
    bool detach_on_exit = false;
    bool native = true;          // false: generic XDP on all ports
    bool core_shares = false;    // true: cores that are too small for all are divided by routers' shares
    bool hash_by_router = true;  // false: flows are spread alike by all routers, and as BMv2 does
    std::vector<Port> ports;  // in order of their numbers
    TlsFiles tls;
    Capacity capacity;
    TableLimits limits;  // [capacity], too
    SampleRate samples;

    EngineOptions engine_options() const { return {engine, instance, capacity, native, core_shares}; }
    std::filesystem::path control_socket() const { return state / "control.sock"; }
    std::filesystem::path p4runtime_socket() const { return state / "p4rt.sock"; }
};

// Read a file into `config`. ConfigError names file and line.
void read_config(const std::filesystem::path& path, Config& config);
void read_config_text(std::string_view text, const std::string& name, Config& config);

// What only the whole tells: ConfigError where two ports are one interface, where TCP lacks TLS, ….
void check_config(const Config& config);

// One value each, as file and command line write it. ConfigError says what is wrong with it and what would be right.
Port port_of(std::string_view number, std::string_view interface);
uint64_t speed_of(std::string_view text);  // bits a second, of "100M", "2.5G"
void set_speed(Config& config, std::string_view number, std::string_view speed);  // of a port that there is
std::string address_of(std::string_view text);
std::string client_of(std::string_view text);  // DNS name of a certificate
EngineKind engine_of(std::string_view text);
LogLevel log_level_of(std::string_view text);
std::string instance_of(std::string_view text);
uint64_t number_of(std::string_view text, std::string_view what, uint64_t least, uint64_t most);
void set_capacity(Config& config, std::string_view name, uint64_t value);
uint64_t most_of_capacity(std::string_view name);  // ConfigError where there is no such capacity
void set_samples(SampleRate& samples, std::string_view name, uint64_t value);
inline constexpr uint32_t kMostOfSamples = 1'000'000;

}  // namespace splitplane
