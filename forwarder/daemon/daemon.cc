// SPDX-License-Identifier: Apache-2.0

#include "daemon/daemon.h"

#include <fcntl.h>
#include <grpcpp/security/server_credentials.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <ctime>
#include <fstream>
#include <system_error>
#include <utility>

#include "daemon/hash_seed.h"
#include "daemon/log.h"
#include "daemon/metrics.h"
#include "daemon/notify.h"
#include "daemon/tls.h"
#include "server/probe.h"

namespace splitplane {

namespace {

// One process for each state directory: the descriptor of its lock. ConfigError where it is taken.
Descriptor locked_state(const Config& config) {
    std::error_code problem;
    std::filesystem::create_directories(config.state, problem);
    if (!problem) std::filesystem::permissions(config.state, std::filesystem::perms::owner_all, problem);
    if (problem) {
        throw ConfigError("cannot use the state directory " + config.state.string() + ": " + problem.message());
    }
    const std::filesystem::path path = config.state / "lock";
    Descriptor lock(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!lock) throw ConfigError("cannot use the state directory: " + path.string() + ": " + std::strerror(errno));
    if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
        throw ConfigError("another vr-forwarder runs with the state directory " + config.state.string() +
                          "; stop it, or choose another --state");
    }
    return lock;
}

// What the verifier said is long and of use to who mends the program: it goes to a file that the error then names.
[[noreturn]] void tell_refusal(const Config& config, const VerifierRefused& refused) {
    const std::filesystem::path path = config.state / "verifier.log";
    std::ofstream file(path);
    file << refused.log();
    file.close();
    throw EngineError(refused.what() + (file ? "; its whole log is in " + path.string()
                                             : "; its log could not be written to " + path.string()));
}

std::unique_ptr<Engine> started_engine(const Config& config) {
    try {
        return make_engine(config.engine_options());
    } catch (const VerifierRefused& refused) {
        tell_refusal(config, refused);
    }
}

ServerOptions server_options(const Config& config) {
    ServerOptions options;
    options.device_id = config.device_id;
    options.log = [](const std::string& line) { log(LogLevel::kInfo, line); };
    return options;
}

// google.rpc.Code by its name in OpenMetrics.
constexpr std::array<const char*, kCodes> kCodeNames{
    "OK",          "CANCELLED",      "UNKNOWN",          "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED", "NOT_FOUND",
    "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED",     "OUT_OF_RANGE",
    "UNIMPLEMENTED", "INTERNAL",     "UNAVAILABLE",      "DATA_LOSS",          "UNAUTHENTICATED",
};

void add_by_code(std::vector<ServerCount>& counts, const char* name, const char* help,
                 const std::array<uint64_t, kCodes>& values) {
    for (size_t code = 0; code < kCodes; ++code) {
        if (code == 0 || values[code] != 0) counts.push_back({name, help, "code", kCodeNames[code], values[code]});
    }
}

std::vector<ServerCount> counts_of(const ServerStatistics& seen) {
    std::vector<ServerCount> counts;
    add_by_code(counts, "writes", "WriteRequests.", seen.writes);
    add_by_code(counts, "updates", "Updates of WriteRequests.", seen.updates);
    add_by_code(counts, "reads", "ReadRequests.", seen.reads);
    add_by_code(counts, "pipeline_configs", "SetForwardingPipelineConfig requests.", seen.pipeline_configs);
    const auto add = [&](const char* name, const char* help, uint64_t value) {
        counts.push_back({name, help, "", "", value});
    };
    add("entities_read", "Entities sent in answer to reads.", seen.entities_read);
    add("connections_refused", "Connections closed: too many were open.", seen.connections_refused);
    add("streams_refused", "Streams ended with an error: too many were open, or what was said is not allowed.",
        seen.streams_refused);
    add("packet_ins", "Packets given to the primary controller.", seen.packet_ins);
    add("packet_ins_no_primary", "Packets dropped: no controller was primary.", seen.packet_ins_no_primary);
    add("packet_ins_queue_full", "Packets dropped: the primary did not take them.", seen.packet_ins_queue_full);
    add("samples", "Samples given to the primary controller.", seen.samples);
    add("samples_dropped", "Samples dropped: no controller was primary, or it did not take them.", seen.samples_dropped);
    add("route_samples_dropped", "Samples not counted by route: the tables were written for too long.",
        seen.route_samples_dropped);
    add("packet_outs", "Packets sent for the primary controller.", seen.packet_outs);
    add("packet_outs_refused", "Packet-outs that were malformed or not allowed.", seen.packet_outs_refused);
    add("packet_outs_no_port", "Packet-outs that no port took.", seen.packet_outs_no_port);
    add("packet_outs_over_share", "Packet-outs dropped: their router had no share of the link left.",
        seen.packet_outs_over_share);
    add("stream_errors_dropped", "StreamErrors for which there was no room.", seen.stream_errors_dropped);
    return counts;
}

using Clock = std::chrono::steady_clock;

timespec left_until(Clock::time_point then) {
    const auto left = std::max(Clock::duration{}, then - Clock::now());
    const auto whole = std::chrono::duration_cast<std::chrono::seconds>(left);
    return {whole.count(), std::chrono::nanoseconds(left - whole).count()};
}

// Until SIGTERM or SIGINT comes, which is returned, the service manager is told that the daemon serves.
int serve(Daemon& daemon, const sigset_t& ends) {
    constexpr std::chrono::microseconds kStatusEvery = std::chrono::seconds(10);
    const std::optional<std::chrono::microseconds> limit = watchdog_limit();
    const std::chrono::microseconds every = limit ? *limit / 3 : kStatusEvery;  // one or two may be late
    const auto patience = std::chrono::duration_cast<std::chrono::milliseconds>(every / 2);
    // What has no room in its queue is lost: all is said each time.
    for (auto next = Clock::now();;) {
        const bool answers = daemon.answers(patience);
        notify_service(answers ? "READY=1\nWATCHDOG=1\nSTATUS=" + daemon.status()
                               : std::string("STATUS=its P4Runtime socket does not answer"));
        next = std::max(next + every, Clock::now());
        const timespec pause = left_until(next);
        if (const int received = sigtimedwait(&ends, nullptr, &pause); received > 0) return received;
    }
}

// Each port and each connection has some; what is usual is of the time of select(2), and 1,024.
void take_descriptors() {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

Daemon::Daemon(const Config& config)
    : config_(config),
      lock_(locked_state(config)),
      engine_(started_engine(config)),
      grace_(*engine_),
      tables_(engine_->arrays(), grace_, config.state / "journal", config.samples, config.limits),
      server_(tables_, *engine_, server_options(config)) {
    if (config.hash_by_router) *engine_->arrays().hash_seed = hash_seed(config.state);
    const std::vector<Listener> all = listeners();
    for (const Listener& listener : all) listening_.push_back(listener.address);
    server_.start(all);
    engine_->set_port_sink([this](const PortStatus& port) {
        const std::lock_guard guard(speeds_mutex_);
        follow_speed(port);
    });
    engine_->activate(config_.ports);
    {
        const std::lock_guard guard(speeds_mutex_);  // what changes meanwhile is told after this
        for (const PortStatus& port : engine_->ports()) follow_speed(port);
    }
    const auto answers = [this](std::string_view path) { return answer(path); };
    control_ = std::make_unique<HttpServer>(std::vector{"unix:" + config_.control_socket().string()}, answers);
    if (!config_.metrics.empty()) {
        metrics_ = std::make_unique<HttpServer>(std::vector{config_.metrics}, answers);
    }
    log_start();
}

std::vector<Listener> Daemon::listeners() const {
    const std::string own = "unix:" + config_.p4runtime_socket().string();
    std::vector<Listener> all{{own, grpc::InsecureServerCredentials()}};
    for (const std::string& address : config_.listen) {
        if (address == own) continue;
        const bool local = address.starts_with("unix:");
        all.push_back({address, local ? grpc::InsecureServerCredentials() : tls_credentials(config_.tls)});
    }
    return all;
}

// What a device says beyond what links can have is taken for the most that they can.
void Daemon::follow_speed(const PortStatus& port) {
    const uint64_t speed = std::min(port.speed, LinkShares::kMost);
    tables_.links().set_speed(port.port.number, speed < LinkShares::kLeast ? 0 : speed);
}

std::vector<LinkReport> Daemon::links() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);  // the engine's clock
    const uint64_t now_ns = static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
    std::vector<LinkReport> all;
    for (const Port& port : config_.ports) all.push_back({port, tables_.links().status(port.number, now_ns)});
    return all;
}

Load Daemon::load() {
    Load load{cpu_times(processor_statistics()), engine_->losses(), read_core_shares(engine_->arrays()).levels, {}};
    for (const LinkReport& link : links()) load.over_share[link.port.number] = link.status.over_share;
    return load;
}

void Daemon::log_start() {
    const JournalStatus journal = server_.statistics().journal;
    if (journal.cut_octets != 0) {
        log(LogLevel::kWarning, "the journal's last " + std::to_string(journal.cut_octets) +
                                    " octets were not written whole and are left out");
    }
    if (journal.routes_replayed != 0) {
        log(LogLevel::kInfo, "the journal had " + std::to_string(journal.routes_replayed) + " routes");
    }
    for (const std::string& remark : engine_->remarks()) log(LogLevel::kInfo, remark);
    for (const PortStatus& port : engine_->ports()) {
        const std::string name = "port " + std::to_string(port.port.number) + " (" + port.port.interface + ")";
        if (!port.problem.empty()) {
            log(LogLevel::kWarning, name + ": " + port.problem);
        } else {
            log(LogLevel::kInfo, name + ": " + port.mode + (port.up ? ", up" : ", down"));
        }
    }
    log(LogLevel::kInfo, engine_->description() + "; device id " + std::to_string(config_.device_id));
}

Report Daemon::report() {
    const ServerStatistics seen = server_.statistics();
    Report report;
    report.version = SP_VERSION;
    report.pid = getpid();
    report.uptime_s = static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - started_).count());
    report.device_id = config_.device_id;
    report.listening = listening_;
    report.engine = engine_->description();
    report.remarks = engine_->remarks();
    report.ports = engine_->ports();
    for (const auto& table : seen.tables) report.tables.push_back({table.table, table.entries, table.size});
    report.controllers = seen.streams;
    report.primary = seen.primary;
    if (seen.election != ElectionId{}) {
        report.election_id = (seen.election.high != 0 ? std::to_string(seen.election.high) + "." : std::string()) +
                             std::to_string(seen.election.low);
    }
    report.server = counts_of(seen);
    report.server.push_back({"metrics_refused", "Connections to the metrics refused, because too many were open.", "",
                             "", metrics_ ? metrics_->refused() : 0});
    report.trie_octets = seen.routes.trie_total;
    report.trie_octets_used = seen.routes.trie_used;
    report.journal_octets = seen.journal.octets;
    report.journal_broken = seen.journal.broken;
    {
        const auto guard = tables_.lock();
        report.pipeline = !tables_.pipeline().empty();
    }
    report.links = links();
    report.counters = read_counters(engine_->arrays(), config_.ports);
    report.cores = read_core_shares(engine_->arrays());
    Load now = load();
    report.losses = now.losses;
    report.limits = limits_.look(std::move(now), std::chrono::steady_clock::now());
    return report;
}

bool Daemon::answers(std::chrono::milliseconds within) {
    const bool all = splitplane::answers(config_.p4runtime_socket(), within);
    if (!all) log(LogLevel::kWarning, "nobody answers at " + config_.p4runtime_socket().string());
    return all;
}

// What could not be written is tried again also where no controller writes anything.
void Daemon::keep_journal() {
    bool broken = false;
    for (bool more = true; more;) {  // others write in between
        const auto guard = tables_.lock();
        if (tables_.journal_status().broken) tables_.commit();
        const JournalStatus seen = tables_.journal_status();
        broken = seen.broken;
        more = broken && seen.rewriting;
    }
    if (broken == std::exchange(journal_broken_, broken)) return;
    const std::string path = (config_.state / "journal").string();
    log(LogLevel::kWarning, broken ? "the journal " + path + " cannot be written; what changes is lost with this "
                                         "process unless there is room on its file system again"
                                   : "the journal " + path + " is written again, and whole");
}

std::string Daemon::status() {
    keep_journal();
    const ServerStatistics seen = server_.statistics();  // once whoever writes lets go of the tables
    // So that whoever asks for `status` is told of the last seconds, however long ago somebody asked before. The
    // kernel tells nothing of devices while a driver takes its time for a port: the watchdog does not wait for that.
    if (!look_.valid() || look_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) {
        try {
            look_ = std::async(std::launch::async, [this] { limits_.look(load(), Clock::now()); });
        } catch (const std::system_error&) {  // no thread is to be had: the next time
        }
    }
    const std::vector<PortStatus> ports = engine_->ports();
    const auto up = std::count_if(ports.begin(), ports.end(), [](const PortStatus& port) { return port.up; });
    return std::to_string(up) + " of " + std::to_string(ports.size()) + " ports up, " +
           (seen.primary ? "a controller is primary" : "no controller is primary") +
           (seen.journal.broken ? ", the journal cannot be written" : "");
}

HttpResponse Daemon::answer(std::string_view path) {
    if (path == "/metrics") return {200, OpenMetrics::kContentType, report_metrics(report())};
    if (path == "/status") return {200, "text/plain; charset=utf-8", report_text(report())};
    if (path == "/status.json") return {200, "application/json", report_json(report())};
    return {404, "text/plain; charset=utf-8", "there are /metrics, /status and /status.json\n"};
}

void run_daemon(const Config& config) {
    take_descriptors();
    // Before there are threads, so that all of them leave these signals to this one.
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    pthread_sigmask(SIG_BLOCK, &ends, nullptr);
    std::signal(SIGPIPE, SIG_IGN);
    umask(0077);
    {
        Daemon daemon(config);
        const int received = serve(daemon, ends);
        log(LogLevel::kInfo, std::string("ending on ") + (received == SIGTERM ? "SIGTERM" : "SIGINT"));
        notify_service("STOPPING=1");
    }
    if (config.detach_on_exit) {
        log(LogLevel::kInfo, "detached from " + std::to_string(detach_engine(config.engine_options())) + " interfaces");
    }
}

}  // namespace splitplane
