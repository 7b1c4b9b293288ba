// SPDX-License-Identifier: Apache-2.0

#include "daemon/report.h"

#include <algorithm>
#include <utility>

#include "daemon/json.h"
#include "daemon/metrics.h"

namespace splitplane {

namespace {

using Type = OpenMetrics::Type;

// Rows under a head, columns as wide as their widest cell.
class Columns {
  public:
    explicit Columns(std::vector<std::string> head) { add(std::move(head)); }

    void add(std::vector<std::string> row) {
        widths_.resize(std::max(widths_.size(), row.size()));
        for (size_t at = 0; at < row.size(); ++at) widths_[at] = std::max(widths_[at], row[at].size());
        rows_.push_back(std::move(row));
    }

    std::string text() const {
        if (rows_.size() == 1) return "";
        std::string text;
        for (const auto& row : rows_) {
            std::string line = " ";
            for (size_t at = 0; at < row.size(); ++at) {
                line += " " + row[at] + std::string(widths_[at] - row[at].size() + 1, ' ');
            }
            text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
        }
        return "\n" + text;
    }

  private:
    std::vector<std::vector<std::string>> rows_;
    std::vector<size_t> widths_;
};

std::string duration(uint64_t seconds) {
    const uint64_t days = seconds / 86400, hours = seconds / 3600 % 24, minutes = seconds / 60 % 60;
    if (days != 0) return std::to_string(days) + " d " + std::to_string(hours) + " h";
    if (hours != 0) return std::to_string(hours) + " h " + std::to_string(minutes) + " min";
    if (minutes != 0) return std::to_string(minutes) + " min " + std::to_string(seconds % 60) + " s";
    return std::to_string(seconds) + " s";
}

std::string mebioctets(uint64_t octets) { return std::to_string((octets + (1u << 19)) >> 20) + " MiB"; }

std::string state_of(const PortStatus& port) {
    if (!port.present) return "absent";
    return port.up ? "up" : "down";
}

std::string limits_text(const Limits::Seen& seen) {
    if (seen.seconds == 0) return "not known yet, ask again in a second";
    const std::string since = " in the last " + std::to_string(seen.seconds) + " s";
    std::string text;
    for (const Limit& limit : seen.limits) {
        text += (text.empty() ? "" : "\n           ") + limit.kind + ": " + limit.detail + since;
    }
    return text.empty() ? "nothing" + since : text;
}

std::string head_text(const Report& report) {
    std::string text = "vr-forwarder " + report.version + ", pid " + std::to_string(report.pid) + ", up for " +
                       duration(report.uptime_s) + ", device id " + std::to_string(report.device_id) + "\n";
    text += "engine     " + report.engine + "\n";
    for (const std::string& remark : report.remarks) text += "           " + remark + "\n";
    text += "listening ";
    for (const std::string& address : report.listening) text += " " + address;
    text += "\ncontrol    " + std::to_string(report.controllers) + " connected, " +
            (report.primary ? "one of them primary" : "none of them primary");
    if (!report.election_id.empty()) text += ", highest election id " + report.election_id;
    text += "\nlimits     " + limits_text(report.limits);
    text += std::string("\npipeline   ") + (report.pipeline ? "set" : "not set: no controller has pushed it") + "\n";
    text += "trie       " + mebioctets(report.trie_octets_used) + " of " + mebioctets(report.trie_octets) + " used\n";
    return text + "journal    " + mebioctets(report.journal_octets) +
           (report.journal_broken ? ", cannot be written: what changes is lost with this process" : "") + "\n";
}

// Calls `each` with a router interface, place, class and how many punts were lost there, where some were.
template <typename Each>
void each_lost(const Counters& counters, const Each& each) {
    for (const auto& [id, places] : counters.lost_punts) {
        for (size_t place = 0; place < SP_PLACES; ++place) {
            for (size_t punt_class = 0; punt_class < SP_PUNT_CLASSES; ++punt_class) {
                const uint64_t packets = places[place][punt_class];
                if (packets != 0) each(id, kPuntPlaceNames[place], kPuntClassNames[punt_class], packets);
            }
        }
    }
}

Columns lost_columns(const Counters& counters) {
    Columns columns({"LOST PUNTS OF INTERFACE", "CLASS", "PLACE", "PACKETS"});
    each_lost(counters, [&](uint32_t id, const char* place, const char* punt_class, uint64_t packets) {
        columns.add({std::to_string(id), punt_class, place, std::to_string(packets)});
    });
    return columns;
}

// Calls `each` with a port, where it lost frames ("egress", "device"), by what, of which queue, and how many: where
// some were.
template <typename Each>
void each_port_lost(const Report& report, const Each& each) {
    for (const PortLosses& port : report.losses) {
        const auto number = [](const PortStatus& one) { return one.port.number; };
        const auto status = std::ranges::find(report.ports, port.port, number);
        if (status == report.ports.end()) continue;
        for (size_t loss = 0; loss < SP_LOSSES; ++loss) {
            if (port.egress[loss] != 0 && kLossNames[loss] != nullptr) {
                each(status->port, "egress", kLossNames[loss], std::string(), port.egress[loss]);
            }
        }
        for (const DeviceLoss& loss : port.device) {
            const std::string queue = loss.queue ? std::to_string(*loss.queue) : std::string();
            if (loss.frames != 0) each(status->port, "device", loss.counter, queue, loss.frames);
        }
    }
}

Columns port_lost_columns(const Report& report) {
    Columns columns({"LOST BY PORT", "INTERFACE", "WHERE", "COUNTER", "QUEUE", "FRAMES"});
    each_port_lost(report, [&](const Port& port, const char* where, const std::string& counter,
                               const std::string& queue, uint64_t frames) {
        columns.add({std::to_string(port.number), port.interface, where, counter, queue, std::to_string(frames)});
    });
    return columns;
}

// With one digit behind the point.
std::string percent(uint64_t millionths) {
    return std::to_string(millionths / 10000) + "." + std::to_string(millionths / 1000 % 10) + " %";
}

Columns core_columns(const CoreShares& cores) {
    Columns columns({"CORE", "FOR A WEIGHT OF 1"});
    for (const CoreLevel& core : cores.levels) {
        const bool all = core.level == SP_SHARE_WHOLE;
        columns.add({std::to_string(core.cpu), all ? "all that is asked for" : percent(core.level)});
    }
    return columns;
}

Columns over_share_columns(const CoreShares& cores) {
    Columns columns({"OVER SHARE OF CORES", "CORE SECONDS", "PACKETS DROPPED"});
    for (const auto& [id, time] : cores.routers) {
        if (time.over_share == 0) continue;
        columns.add({"router " + std::to_string(id), std::to_string(time.ns / 1'000'000'000),
                     std::to_string(time.over_share)});
    }
    return columns;
}

// Bits a second as --speed takes them: "2.5G", "99.871M".
std::string speed_text(uint64_t bits_per_s) {
    constexpr uint64_t kMega = 1'000'000, kGiga = 1'000'000'000;
    const uint64_t unit = bits_per_s >= kGiga ? kGiga : kMega;
    std::string part = std::to_string(1000 + bits_per_s % unit / (unit / 1000)).substr(1);
    part.erase(part.find_last_not_of('0') + 1);
    return std::to_string(bits_per_s / unit) + (part.empty() ? "" : "." + part) + (unit == kGiga ? "G" : "M");
}

Columns link_columns(const Report& report) {
    Columns columns({"LINK", "INTERFACE", "SPEED", "USE", "LEVEL", "SHARES", "OVER SHARE"});
    for (const auto& [port, link] : report.links) {
        const bool known = link.speed != 0;
        columns.add({std::to_string(port.number), port.interface, known ? speed_text(link.speed) : "unknown",
                     known ? speed_text(link.use) : "-", known ? speed_text(link.level) : "-",
                     !known ? "none" : link.contended ? "applied" : "not needed", std::to_string(link.over_share)});
    }
    return columns;
}

Columns reason_columns(const Counters& counters) {
    Columns columns({"REASON", "PACKETS", "OCTETS"});
    const ReasonTraffic all = counters.all_routers();
    for (size_t reason = 1; reason < SP_REASONS; ++reason) {
        if (all[reason].packets == 0) continue;
        const std::string kind = reason < kFirstDrop ? "punt " : "drop ";
        const Traffic& traffic = all[reason];
        columns.add({kind + kReasonNames[reason], std::to_string(traffic.packets), std::to_string(traffic.octets)});
    }
    for (size_t each = 0; each < SP_ENGINE_COUNTERS; ++each) {
        if (kEngineCounterNames[each] == nullptr || counters.engine[each] == 0) continue;
        columns.add({std::string("lost ") + kEngineCounterNames[each], std::to_string(counters.engine[each])});
    }
    for (size_t each = 0; each < SP_ENGINE_COUNTERS; ++each) {
        if (kSampleCounterNames[each] == nullptr || counters.engine[each] == 0) continue;
        columns.add({std::string("sample ") + kSampleCounterNames[each], std::to_string(counters.engine[each])});
    }
    return columns;
}

}  // namespace

std::string report_text(const Report& report) {
    Columns ports({"PORT", "INTERFACE", "STATE", "MODE", "PROBLEM"});
    for (const PortStatus& port : report.ports) {
        const std::string mode = port.mode.empty() ? "-" : port.mode;
        ports.add({std::to_string(port.port.number), port.port.interface, state_of(port), mode, port.problem});
    }
    Columns tables({"TABLE", "ENTRIES", "SIZE"});
    for (const TableReport& table : report.tables) {
        tables.add({table.name, std::to_string(table.entries), std::to_string(table.size)});
    }
    const InterfaceTraffic traffic = report.counters.all_interfaces();
    Columns packets({"TRAFFIC", "PACKETS", "OCTETS"});
    packets.add({"received", std::to_string(traffic.received.packets), std::to_string(traffic.received.octets)});
    packets.add({"sent", std::to_string(traffic.sent.packets), std::to_string(traffic.sent.octets)});
    return head_text(report) + ports.text() + link_columns(report).text() + tables.text() + packets.text() +
           reason_columns(report.counters).text() + lost_columns(report.counters).text() +
           core_columns(report.cores).text() + over_share_columns(report.cores).text() +
           port_lost_columns(report).text();
}

namespace {

Json json_of(const Traffic& traffic) { return {{"packets", traffic.packets}, {"octets", traffic.octets}}; }

Json json_of(const PortStatus& port) {
    return {
        {"number", port.port.number}, {"interface", port.port.interface}, {"present", port.present},
        {"up", port.up},              {"mode", port.mode},                {"problem", port.problem},
    };
}

Json json_of(const LinkReport& link) {
    const LinkStatus& status = link.status;
    return {
        {"port", link.port.number},       {"interface", link.port.interface}, {"speed_bit_s", status.speed},
        {"use_bit_s", status.use},        {"level_bit_s", status.level},      {"contended", status.contended},
        {"over_share", status.over_share},
    };
}

Json json_of(const TableReport& table) {
    return {{"name", table.name}, {"entries", table.entries}, {"size", table.size}};
}

template <typename T>
Json json_list(const std::vector<T>& values) {
    Json list = Json::array();
    for (const T& value : values) list.push_back(json_of(value));
    return list;
}

Json json_interfaces(const Counters& counters) {
    Json::object_t interfaces;
    for (const auto& [id, traffic] : counters.interfaces) {
        Json both{{"received", json_of(traffic.received)}, {"sent", json_of(traffic.sent)}};
        add_key(interfaces, std::to_string(id), std::move(both));
    }
    return interfaces;
}

Json json_routers(const Counters& counters) {
    Json::object_t routers;
    for (const auto& [id, reasons] : counters.routers) {
        Json::object_t met;
        for (size_t reason = 1; reason < SP_REASONS; ++reason) {
            if (reasons[reason].packets != 0) add_key(met, kReasonNames[reason], json_of(reasons[reason]));
        }
        add_key(routers, std::to_string(id), std::move(met));
    }
    return routers;
}

Json json_lost(const Counters& counters) {
    Json list = Json::array();
    each_lost(counters, [&](uint32_t id, const char* place, const char* punt_class, uint64_t packets) {
        list.push_back(Json{{"interface", id}, {"place", place}, {"class", punt_class}, {"packets", packets}});
    });
    return list;
}

Json json_port_lost(const Report& report) {
    Json list = Json::array();
    each_port_lost(report, [&](const Port& port, const char* where, const std::string& counter,
                               const std::string& queue, uint64_t frames) {
        list.push_back(Json{{"port", port.number}, {"interface", port.interface}, {"where", where},
                            {"counter", counter}, {"queue", queue}, {"frames", frames}});
    });
    return list;
}

Json json_cores(const CoreShares& cores) {
    Json list = Json::array();
    for (const CoreLevel& core : cores.levels) list.push_back(Json{{"cpu", core.cpu}, {"level", core.level}});
    Json::object_t routers;
    for (const auto& [id, time] : cores.routers) {
        add_key(routers, std::to_string(id), Json{{"core_ns", time.ns}, {"over_share", time.over_share}});
    }
    return Json{{"levels", list}, {"routers", routers}};
}

Json json_limits(const Limits::Seen& seen) {
    Json list = Json::array();
    for (const Limit& limit : seen.limits) list.push_back(Json{{"by", limit.kind}, {"detail", limit.detail}});
    return Json{{"seconds", seen.seconds}, {"limits", list}};
}

Json json_engine(const Counters& counters, const std::array<const char*, SP_ENGINE_COUNTERS>& names) {
    Json::object_t named;
    for (size_t each = 0; each < SP_ENGINE_COUNTERS; ++each) {
        if (names[each] != nullptr) add_key(named, names[each], counters.engine[each]);
    }
    return named;
}

Json json_server(const std::vector<ServerCount>& counts) {
    Json::object_t server;
    for (const ServerCount& count : counts) {
        add_key(server, count.label_value.empty() ? count.name : count.name + " " + count.label_value, count.value);
    }
    return server;
}

}  // namespace

std::string report_json(const Report& report) {
    const Json json{
        {"version", report.version},
        {"pid", report.pid},
        {"uptime_s", report.uptime_s},
        {"device_id", report.device_id},
        {"engine", report.engine},
        {"remarks", report.remarks},
        {"listening", report.listening},
        {"pipeline", report.pipeline},
        {"trie_octets_used", report.trie_octets_used},
        {"trie_octets", report.trie_octets},
        {"journal_octets", report.journal_octets},
        {"journal_broken", report.journal_broken},
        {"ports", json_list(report.ports)},
        {"links", json_list(report.links)},
        {"tables", json_list(report.tables)},
        {"controllers",
         {{"connected", report.controllers}, {"primary", report.primary}, {"election_id", report.election_id}}},
        {"interfaces", json_interfaces(report.counters)},
        {"routers", json_routers(report.counters)},
        {"lost_punts", json_lost(report.counters)},
        {"lost_by_port", json_port_lost(report)},
        {"core_shares", json_cores(report.cores)},
        {"limited", json_limits(report.limits)},
        {"lost", json_engine(report.counters, kEngineCounterNames)},
        {"samples", json_engine(report.counters, kSampleCounterNames)},
        {"server", json_server(report.server)},
    };
    return json_text(json, 2) + "\n";
}

namespace {

void write_ports(OpenMetrics& metrics, const Report& report) {
    metrics.family("port_up", Type::kGauge, "1 while a port is attached, administratively up and has carrier.");
    for (const PortStatus& port : report.ports) {
        const std::string number = std::to_string(port.port.number);
        metrics.sample(port.up && !port.mode.empty() ? 1 : 0,
                       {{"port", number}, {"interface", port.port.interface}, {"mode", port.mode}});
    }
}

// Only links whose speed is known.
void write_links(OpenMetrics& metrics, const Report& report) {
    const auto family = [&](const char* name, Type type, const char* help, auto value) {
        metrics.family(name, type, help);
        for (const auto& [port, link] : report.links) {
            if (link.speed == 0) continue;
            metrics.sample(value(link), {{"port", std::to_string(port.number)}, {"interface", port.interface}});
        }
    };
    using L = const LinkStatus&;
    family("link_speed_bits", Type::kGauge, "What a link takes a second.", [](L l) { return l.speed; });
    family("link_use_bits", Type::kGauge, "What a link is sent a second.", [](L l) { return l.use; });
    family("link_level_bits", Type::kGauge, "What a weight of 1 may send a second.", [](L l) { return l.level; });
    family("link_contended", Type::kGauge, "1 while shares of a link are applied.",
           [](L l) { return l.contended ? 1 : 0; });
    family("link_over_share", Type::kCounter, "Packets over their router's share of a link.",
           [](L l) { return l.over_share; });
}

void write_tables(OpenMetrics& metrics, const Report& report) {
    metrics.family("table_entries", Type::kGauge, "Entries in force.");
    for (const TableReport& table : report.tables) metrics.sample(table.entries, {{"table", table.name}});
    metrics.family("table_size", Type::kGauge, "Entries that fit.");
    for (const TableReport& table : report.tables) metrics.sample(table.size, {{"table", table.name}});
    metrics.family("trie_used_bytes", Type::kGauge, "Memory that routes take in the data plane.");
    metrics.sample(report.trie_octets_used);
    metrics.family("trie_size_bytes", Type::kGauge, "Memory that there is for routes.");
    metrics.sample(report.trie_octets);
    metrics.family("journal_bytes", Type::kGauge, "Size of the journal.");
    metrics.sample(report.journal_octets);
    metrics.family("journal_broken", Type::kGauge,
                   "1 while the journal cannot be written: changes are lost with the process.");
    metrics.sample(report.journal_broken ? 1 : 0);
}

void write_interfaces(OpenMetrics& metrics, const Counters& counters) {
    const auto family = [&](const char* name, const char* help, auto value) {
        metrics.family(name, Type::kCounter, help);
        for (const auto& [id, traffic] : counters.interfaces) {
            metrics.sample(value(traffic), {{"router_interface", std::to_string(id)}});
        }
    };
    using T = const InterfaceTraffic&;
    family("received_packets", "Packets that came in by a router interface.", [](T t) { return t.received.packets; });
    family("received_bytes", "Octets of these.", [](T t) { return t.received.octets; });
    family("sent_packets", "Packets forwarded by a router interface.", [](T t) { return t.sent.packets; });
    family("sent_bytes", "Octets of these.", [](T t) { return t.sent.octets; });
}

void write_reasons(OpenMetrics& metrics, const Counters& counters, const char* name, const char* help, size_t from,
                   size_t to) {
    metrics.family(name, Type::kCounter, help);
    for (const auto& [id, reasons] : counters.routers) {
        const std::string router = std::to_string(id);
        for (size_t reason = from; reason < to; ++reason) {
            if (reasons[reason].packets == 0) continue;  // 8,192 routers of 17 reasons would fill a page
            metrics.sample(reasons[reason].packets, {{"router", router}, {"reason", kReasonNames[reason]}});
        }
    }
}

void write_ports_lost(OpenMetrics& metrics, const Report& report) {
    metrics.family("egress_lost_frames", Type::kCounter, "Frames counted as sent that did not leave by their port.");
    each_port_lost(report, [&](const Port& port, std::string_view where, const std::string& counter,
                               const std::string&, uint64_t frames) {
        if (where != "egress") return;
        const std::string number = std::to_string(port.number);
        metrics.sample(frames, {{"port", number}, {"interface", port.interface}, {"reason", counter}});
    });
    metrics.family("device_lost_frames", Type::kCounter, "Frames that the device of a port says it lost.");
    each_port_lost(report, [&](const Port& port, std::string_view where, const std::string& counter,
                               const std::string& queue, uint64_t frames) {
        if (where != "device") return;
        const std::string number = std::to_string(port.number);
        metrics.sample(
            frames, {{"port", number}, {"interface", port.interface}, {"counter", counter}, {"queue", queue}});
    });
    metrics.family("limited", Type::kGauge, "1 where something has limited forwarding in the last seconds.");
    for (const char* kind : {"core", "ring", "link"}) {
        const auto is_kind = [&](const Limit& one) { return one.kind == kind; };
        metrics.sample(std::ranges::any_of(report.limits.limits, is_kind) ? 1 : 0, {{"by", kind}});
    }
}

void write_cores(OpenMetrics& metrics, const CoreShares& cores) {
    metrics.family("core_level", Type::kGauge, "Millionths of a core for a weight of 1; 1000000: no limit.");
    for (const CoreLevel& core : cores.levels) metrics.sample(core.level, {{"cpu", std::to_string(core.cpu)}});
    const auto family = [&](const char* name, const char* help, auto value) {
        metrics.family(name, Type::kCounter, help);
        for (const auto& [id, time] : cores.routers) metrics.sample(value(time), {{"router", std::to_string(id)}});
    };
    family("core_nanoseconds", "Time of cores that a router's packets took.", [](const CoreTime& t) { return t.ns; });
    family("core_over_share", "Packets dropped over their router's share of a core.",
           [](const CoreTime& t) { return t.over_share; });
}

void write_server(OpenMetrics& metrics, const Report& report) {
    std::string family;
    for (const ServerCount& count : report.server) {
        if (count.name != family) metrics.family("p4runtime_" + count.name, Type::kCounter, count.help);
        family = count.name;
        if (count.label.empty()) {
            metrics.sample(count.value);
        } else {
            metrics.sample(count.value, {{count.label, count.label_value}});
        }
    }
    metrics.family("p4runtime_controllers", Type::kGauge, "Controllers that are connected.");
    metrics.sample(report.controllers);
    metrics.family("p4runtime_primary", Type::kGauge, "1 while one of them is primary.");
    metrics.sample(report.primary ? 1 : 0);
}

}  // namespace

std::string report_metrics(const Report& report) {
    OpenMetrics metrics;
    metrics.family("build", Type::kInfo, "What is running.");
    metrics.sample(1, {{"version", report.version}, {"engine", report.engine}});
    metrics.family("uptime_seconds", Type::kGauge, "Since the process started.");
    metrics.sample(report.uptime_s);
    write_ports(metrics, report);
    write_links(metrics, report);
    write_tables(metrics, report);
    write_interfaces(metrics, report.counters);
    write_reasons(metrics, report.counters, "punts", "Packets for a guest, before they are policed.", 1, kFirstDrop);
    write_reasons(metrics, report.counters, "drops", "Packets dropped.", kFirstDrop, SP_REASONS);
    metrics.family("lost", Type::kCounter, "Packets that the engine could not pass on.");
    for (size_t each = 0; each < SP_ENGINE_COUNTERS; ++each) {
        if (kEngineCounterNames[each] == nullptr) continue;
        metrics.sample(report.counters.engine[each], {{"reason", kEngineCounterNames[each]}});
    }
    metrics.family("samples", Type::kCounter, "Packets chosen as samples, sent all the same, by what became of the sample.");
    for (size_t each = 0; each < SP_ENGINE_COUNTERS; ++each) {
        if (kSampleCounterNames[each] == nullptr) continue;
        metrics.sample(report.counters.engine[each], {{"outcome", kSampleCounterNames[each]}});
    }
    metrics.family("lost_punts", Type::kCounter, "Packets for a guest that did not reach the controller.");
    each_lost(report.counters, [&](uint32_t id, const char* place, const char* punt_class, uint64_t packets) {
        metrics.sample(packets, {{"router_interface", std::to_string(id)}, {"class", punt_class}, {"place", place}});
    });
    write_ports_lost(metrics, report);
    write_cores(metrics, report.cores);
    write_server(metrics, report);
    return std::move(metrics).text();
}

}  // namespace splitplane
