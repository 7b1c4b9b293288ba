// SPDX-License-Identifier: Apache-2.0

#include "daemon/config.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "daemon/pem.h"

namespace splitplane {

namespace {

using Setter = std::function<void(const toml::node&)>;
using Setters = std::map<std::string, Setter, std::less<>>;

constexpr size_t kInterfaceName = 15;  // IFNAMSIZ - 1
constexpr size_t kUnixPath = 107;      // sizeof sun_path - 1
constexpr uint32_t kMostOfAnArray = 1u << 28;

// Capacities of whole arrays, and of tables: all that a name limits has the same keys.
const std::map<std::string, std::vector<Table>, std::less<>> kCapacities{
    {"groups", {Table::kNexthopGroup}},
    {"members", {}},
    {"nexthops", {Table::kNexthop}},
    {"policers", {Table::kPolicer}},
    {"router_interfaces", {Table::kRouterInterface, Table::kRouterInterfaceEgress}},
    {"words", {}},
};

std::string ticked(std::string_view text) { return "`" + std::string(text) + "`"; }

std::string list_of(const Setters& setters) {
    std::string names;
    for (const auto& [name, setter] : setters) names += (names.empty() ? "" : ", ") + name;
    return names;
}

// A file being read: turns whatever is wrong into FILE:LINE and one sentence.
class Reader {
  public:
    explicit Reader(std::string name) : name_(std::move(name)) {}

    [[noreturn]] void fail(const toml::source_position& where, const std::string& what) const {
        throw ConfigError(name_ + ":" + std::to_string(where.line) + ": " + what);
    }

    // Give each key of a table to its setter.
    void read(const toml::table& table, std::string_view of, const Setters& setters) const {
        for (const auto& [key, node] : table) {
            const auto setter = setters.find(key.str());
            if (setter == setters.end()) {
                const std::string place = of.empty() ? "" : " in [" + std::string(of) + "]";
                const std::string unknown = "unknown key " + ticked(key.str()) + place;
                fail(key.source().begin, unknown + "; there are " + list_of(setters));
            }
            at(node, [&] { setter->second(node); });
        }
    }

    // Run `set`, and tell where it was when it finds a value wrong.
    void at(const toml::node& node, const std::function<void()>& set) const {
        try {
            set();
        } catch (const ConfigError& error) {
            const std::string text = error.what();
            if (text.starts_with(name_ + ":")) throw;
            fail(node.source().begin, text);
        }
    }

    const toml::table& table(const toml::node& node, const std::string& key) const {
        if (!node.is_table()) fail(node.source().begin, ticked(key) + " is a table: write [" + key + "]");
        return *node.as_table();
    }

  private:
    std::string name_;
};

std::string text_of(const toml::node& node, std::string_view key) {
    const auto value = node.value_exact<std::string>();
    if (!value) throw ConfigError(ticked(key) + " takes a text in quotes");
    return *value;
}

uint64_t integer_of(const toml::node& node, std::string_view key, uint64_t least, uint64_t most) {
    const auto value = node.value_exact<int64_t>();
    const std::string range = std::to_string(least) + " to " + std::to_string(most);
    if (!value || *value < 0 || static_cast<uint64_t>(*value) < least || static_cast<uint64_t>(*value) > most) {
        throw ConfigError(ticked(key) + " takes a number from " + range);
    }
    return static_cast<uint64_t>(*value);
}

std::vector<std::string> addresses_of(const toml::node& node) {
    const toml::array* array = node.as_array();
    if (array == nullptr) throw ConfigError("`listen` takes a list: listen = [\"192.0.2.1:9559\"]");
    std::vector<std::string> addresses;
    for (const toml::node& each : *array) addresses.push_back(address_of(text_of(each, "listen")));
    return addresses;
}

void read_ports(const Reader& reader, const toml::table& table, Config& config) {
    config.ports.clear();
    for (const auto& [key, node] : table) {
        reader.at(node, [&, number = std::string(key.str())] {
            std::string interface, speed;
            if (const toml::table* both = node.as_table()) {
                reader.read(*both, "ports." + number, {
                    {"interface", [&](const toml::node& each) { interface = text_of(each, "interface"); }},
                    {"speed", [&](const toml::node& each) { speed = text_of(each, "speed"); }},
                });
            } else {
                interface = text_of(node, "ports." + number);
            }
            config.ports.push_back(port_of(number, interface));
            if (!speed.empty()) config.ports.back().speed = speed_of(speed);
        });
    }
    std::ranges::sort(config.ports, {}, &Port::number);
}

void read_tls(const Reader& reader, const toml::table& table, TlsFiles& tls) {
    reader.read(table, "tls", {
        {"cert", [&](const toml::node& node) { tls.cert = text_of(node, "cert"); }},
        {"key", [&](const toml::node& node) { tls.key = text_of(node, "key"); }},
        {"ca", [&](const toml::node& node) { tls.ca = text_of(node, "ca"); }},
        {"client", [&](const toml::node& node) { tls.client = client_of(text_of(node, "client")); }},
    });
}

void read_capacity(const Reader& reader, const toml::table& table, Config& config) {
    Setters setters;
    for (const auto& [name, tables] : kCapacities) {
        setters[name] = [&config, name](const toml::node& node) {
            set_capacity(config, name, integer_of(node, name, 1, most_of_capacity(name)));
        };
    }
    reader.read(table, "capacity", setters);
}

void read_samples(const Reader& reader, const toml::table& table, SampleRate& samples) {
    Setters setters;
    for (const std::string name : {"one_in", "per_s"}) {
        setters[name] = [&samples, name](const toml::node& node) {
            set_samples(samples, name, integer_of(node, name, 1, kMostOfSamples));
        };
    }
    reader.read(table, "samples", setters);
}

bool flag_of(const toml::node& node, const std::string& name) {
    if (!node.is_boolean()) throw ConfigError("`" + name + "` is true or false");
    return *node.value<bool>();
}

void read_root(const Reader& reader, const toml::table& root, Config& config) {
    reader.read(root, "", {
        {"device_id", [&](const toml::node& node) { config.device_id = integer_of(node, "device_id", 1, INT64_MAX); }},
        {"listen", [&](const toml::node& node) { config.listen = addresses_of(node); }},
        {"metrics", [&](const toml::node& node) { config.metrics = address_of(text_of(node, "metrics")); }},
        {"state", [&](const toml::node& node) { config.state = text_of(node, "state"); }},
        {"engine", [&](const toml::node& node) { config.engine = engine_of(text_of(node, "engine")); }},
        {"instance", [&](const toml::node& node) { config.instance = instance_of(text_of(node, "instance")); }},
        {"log_level", [&](const toml::node& node) { config.log_level = log_level_of(text_of(node, "log_level")); }},
        {"detach_on_exit", [&](const toml::node& node) { config.detach_on_exit = flag_of(node, "detach_on_exit"); }},
        {"native", [&](const toml::node& node) { config.native = flag_of(node, "native"); }},
        {"core_shares", [&](const toml::node& node) { config.core_shares = flag_of(node, "core_shares"); }},
        {"route_counters",
         [&](const toml::node& node) { config.samples.count_routes = flag_of(node, "route_counters"); }},
        {"hash_by_router", [&](const toml::node& node) { config.hash_by_router = flag_of(node, "hash_by_router"); }},
        {"ports", [&](const toml::node& node) { read_ports(reader, reader.table(node, "ports"), config); }},
        {"tls", [&](const toml::node& node) { read_tls(reader, reader.table(node, "tls"), config.tls); }},
        {"capacity",
         [&](const toml::node& node) { read_capacity(reader, reader.table(node, "capacity"), config); }},
        {"samples", [&](const toml::node& node) { read_samples(reader, reader.table(node, "samples"), config.samples); }},
    });
}

}  // namespace

void read_config_text(std::string_view text, const std::string& name, Config& config) {
    const Reader reader(name);
    try {
        const toml::table root = toml::parse(text, name);
        read_root(reader, root, config);
    } catch (const toml::parse_error& error) {
        reader.fail(error.source().begin, "not TOML: " + std::string(error.description()));
    }
}

void read_config(const std::filesystem::path& path, Config& config) {
    std::string text;
    std::FILE* file = std::fopen(path.c_str(), "r");
    int error = file == nullptr ? errno : 0;
    if (file != nullptr) {
        char part[4096];
        for (size_t octets; (octets = std::fread(part, 1, sizeof(part), file)) > 0;) text.append(part, octets);
        if (std::ferror(file) != 0) error = errno;
        std::fclose(file);
    }
    if (error != 0) throw ConfigError("cannot read the configuration " + path.string() + ": " + std::strerror(error));
    read_config_text(text, path.string(), config);
}

void check_config(const Config& config) {
    std::set<uint32_t> numbers;
    std::set<std::string> interfaces;
    for (const Port& port : config.ports) {
        const std::string number = std::to_string(port.number);
        if (!numbers.insert(port.number).second) {
            throw ConfigError("port " + number + " is named twice; give each port one interface");
        }
        if (!interfaces.insert(port.interface).second) {
            throw ConfigError("interface " + port.interface + " is two ports; give each port an interface of its own");
        }
    }
    const TlsFiles& tls = config.tls;
    if (tls.wanted() && !tls.complete()) {
        throw ConfigError("TLS needs a certificate, its key and the authority of the controllers: set cert, key and ca "
                          "(--tls-cert, --tls-key, --tls-ca)");
    }
    for (const std::string& address : config.listen) {
        if (!address.starts_with("unix:") && !tls.wanted()) {
            throw ConfigError("cannot listen on " + address + " without TLS, because whoever reaches it would own the "
                              "plane: set cert, key and ca (--tls-cert, --tls-key, --tls-ca), or use unix:" +
                              config.p4runtime_socket().string() + ", which is always there");
        }
    }
    if (tls.complete()) check_tls(tls);
    if (config.control_socket().string().size() > kUnixPath) {
        throw ConfigError("the state directory " + config.state.string() + " is too long for a socket's path");
    }
}

Port port_of(std::string_view number, std::string_view interface) {
    const auto value = number_of(number, "a port's number", 1, SP_PORTS - 1);
    const bool fits = !interface.empty() && interface.size() <= kInterfaceName && interface != "." &&
                      interface != ".." && interface.find_first_of("/ \t\n") == std::string_view::npos;
    if (!fits) {
        throw ConfigError(ticked(interface) + " is no name of an interface; `ip link` lists them");
    }
    return {static_cast<uint32_t>(value), std::string(interface), 0};
}

uint64_t speed_of(std::string_view text) {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
    const double bits = value * (unit == "G" ? 1e9 : unit == "M" ? 1e6 : 0);
    // Not written the other way round: what is no number is not in between.
    if (error != std::errc() || !(bits >= LinkShares::kLeast && bits <= LinkShares::kMost)) {
        throw ConfigError(ticked(text) + " is no speed of a link; write bits a second from 1M to 400G, as 100M or 2.5G");
    }
    return static_cast<uint64_t>(bits);
}

void set_speed(Config& config, std::string_view number, std::string_view speed) {
    const auto wanted = number_of(number, "a port's number", 1, SP_PORTS - 1);
    const auto port = std::ranges::find(config.ports, wanted, &Port::number);
    if (port == config.ports.end()) {
        throw ConfigError("there is no port " + std::string(number) + " to have a speed; name it with --port");
    }
    port->speed = speed_of(speed);
}

std::string address_of(std::string_view text) {
    if (text.starts_with("unix:")) {
        const std::string_view path = text.substr(5);
        if (!path.starts_with("/") || path.size() > kUnixPath) {
            throw ConfigError(ticked(text) + " is no address: a Unix socket has an absolute path of 107 octets");
        }
        return std::string(text);
    }
    const size_t colon = text.rfind(':');
    const std::string_view host = text.substr(0, colon == std::string_view::npos ? 0 : colon);
    const bool bare_ipv6 = host.find(':') != std::string_view::npos && !(host.starts_with('[') && host.ends_with(']'));
    if (host.empty() || bare_ipv6) {
        throw ConfigError(ticked(text) + " is no address; write HOST:PORT, [IPV6]:PORT or unix:PATH");
    }
    number_of(text.substr(colon + 1), "the port of " + ticked(text), 1, 65535);
    return std::string(text);
}

std::string client_of(std::string_view text) {
    const auto plain = [](char octet) {
        return std::isalnum(static_cast<unsigned char>(octet)) || octet == '-' || octet == '_' || octet == '.';
    };
    if (text.empty() || text.size() > 253 || !std::ranges::all_of(text, plain)) {
        throw ConfigError(ticked(text) + " is no DNS name of a certificate, such as vr-controller");
    }
    return std::string(text);
}

EngineKind engine_of(std::string_view text) {
    const auto found = std::ranges::find(kEngineNames, text);
    if (found == kEngineNames.end()) throw ConfigError(ticked(text) + " is no engine; there are xdp, memory");
    return static_cast<EngineKind>(found - kEngineNames.begin());
}

LogLevel log_level_of(std::string_view text) {
    if (text == "debug") return LogLevel::kDebug;
    if (text == "info") return LogLevel::kInfo;
    if (text == "warning") return LogLevel::kWarning;
    if (text == "error") return LogLevel::kError;
    throw ConfigError(ticked(text) + " is no log level; there are debug, info, warning, error");
}

std::string instance_of(std::string_view text) {
    const auto plain = [](char octet) {
        return std::isalnum(static_cast<unsigned char>(octet)) || octet == '-' || octet == '_' || octet == '.';
    };
    const bool fits = !text.empty() && text.size() <= 64 && text[0] != '.' && std::ranges::all_of(text, plain);
    if (!fits) throw ConfigError(ticked(text) + " is no name of an instance; use letters, digits, '-', '_' and '.'");
    return std::string(text);
}

uint64_t number_of(std::string_view text, std::string_view what, uint64_t least, uint64_t most) {
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
        throw ConfigError(std::string(what) + " is a number from " + std::to_string(least) + " to " +
                          std::to_string(most) + ", not " + ticked(text));
    }
    return value;
}

uint64_t most_of_capacity(std::string_view name) {
    const auto found = kCapacities.find(name);
    if (found == kCapacities.end()) {
        std::string names;
        for (const auto& [known, tables] : kCapacities) names += (names.empty() ? "" : ", ") + known;
        throw ConfigError(ticked(name) + " is no capacity; there are " + names);
    }
    return found->second.empty() ? kMostOfAnArray : traits(found->second.front()).size;
}

void set_capacity(Config& config, std::string_view name, uint64_t value) {
    const auto count = static_cast<uint32_t>(value);
    if (name == "words") {
        config.capacity.words = (count + 15) / 16 * 16;  // layout.h
    } else if (name == "members") {
        config.capacity.members = (count + 3) / 4 * 4;
    } else {
        for (const Table table : kCapacities.find(name)->second) config.limits.set(table, count);
    }
}

void set_samples(SampleRate& samples, std::string_view name, uint64_t value) {
    if (name == "one_in") {
        samples.one_in = static_cast<uint32_t>(value);
    } else if (name == "per_s") {
        samples.per_s = static_cast<uint32_t>(value);
    } else {
        throw ConfigError(ticked(name) + " is nothing of samples; there are one_in, per_s");
    }
}

}  // namespace splitplane
