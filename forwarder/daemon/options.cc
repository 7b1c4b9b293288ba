// SPDX-License-Identifier: Apache-2.0

#include "daemon/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <utility>
#include <vector>

namespace splitplane {

namespace {

constexpr const char* kAbout = "vr-forwarder: a software forwarder for many virtual routers, driven by P4Runtime";
constexpr const char* kSeeHelp = "; see vr-forwarder --help";

struct Command {
    const char* name;
    Verb verb;
    const char* help;
};

constexpr std::array<Command, 5> kCommands{{
    {"run", Verb::kRun, "forward, until SIGTERM; what is attached goes on forwarding (where no command is given)"},
    {"status", Verb::kStatus, "ports, tables, controllers, counters of the one that runs"},
    {"dump", Verb::kDump, "entries of the one that runs; with the name of a table behind it only of that table"},
    {"detach", Verb::kDetach, "take a stopped one off its ports, which forward nothing then"},
    {"check", Verb::kCheck, "say what is wrong with the configuration of --config, or nothing"},
}};

// An option with a value, and what takes each value that it was given.
struct Setting {
    const char* name;
    const char* form;
    const char* help;
    std::function<void(const std::string& value)> take;
};

// "NAME=VALUE" in two, ConfigError where there is no "=".
std::pair<std::string, std::string> halves(const std::string& flag, const std::string& value, const char* form) {
    const size_t equals = value.find('=');
    if (equals == std::string::npos) throw ConfigError(flag + " takes " + form + ", not `" + value + "`");
    return {value.substr(0, equals), value.substr(equals + 1)};
}

// In the order in which they are taken: the file first, as the others count more.
std::vector<Setting> settings(Config& config) {
    return {
        {"--config", "FILE", "configuration in TOML; the options below count more",
         [&config](const std::string& value) { read_config(value, config); }},
        {"--port", "N=INTERFACE", "a port of the plane; repeat it for each",
         [&config, first = true](const std::string& value) mutable {
             if (std::exchange(first, false)) config.ports.clear();
             const auto [number, interface] = halves("--port", value, "N=INTERFACE");
             config.ports.push_back(port_of(number, interface));
         }},
        {"--speed", "N=SPEED", "of the link of port N: 100M, 2.5G; where its device does not tell (docs);\nrepeatable",
         [&config](const std::string& value) {
             const auto [number, speed] = halves("--speed", value, "N=SPEED");
             set_speed(config, number, speed);
         }},
        {"--device-id", "N", "P4Runtime's device id (1)",
         [&config](const std::string& value) {
             config.device_id = number_of(value, "--device-id", 1, UINT64_MAX);
         }},
        {"--listen", "ADDRESS", "where controllers connect beside STATE/p4rt.sock: HOST:PORT, which\nneeds TLS, or unix:PATH; repeatable",
         [&config, first = true](const std::string& value) mutable {
             if (std::exchange(first, false)) config.listen.clear();
             config.listen.push_back(address_of(value));
         }},
        {"--tls-cert", "FILE", "certificate that is shown to controllers on TCP; PEM",
         [&config](const std::string& value) { config.tls.cert = value; }},
        {"--tls-key", "FILE", "its key; PEM", [&config](const std::string& value) { config.tls.key = value; }},
        {"--tls-ca", "FILE", "controllers have to show a certificate signed by this authority",
         [&config](const std::string& value) { config.tls.ca = value; }},
        {"--tls-client", "NAME", "DNS name of the controllers' certificates (vr-controller)",
         [&config](const std::string& value) { config.tls.client = client_of(value); }},
        {"--metrics", "ADDRESS", "where OpenMetrics are served over HTTP: HOST:PORT or unix:PATH (nowhere)",
         [&config](const std::string& value) { config.metrics = address_of(value); }},
        {"--state", "DIR", "journal and control sockets (/run/vr-forwarder)",
         [&config](const std::string& value) { config.state = std::filesystem::absolute(value); }},
        {"--instance", "NAME", "folder below /sys/fs/bpf for what outlives the process (vr-forwarder)",
         [&config](const std::string& value) { config.instance = instance_of(value); }},
        {"--engine", "NAME", "xdp; or memory: tables without packets, to try a controller (xdp)",
         [&config](const std::string& value) { config.engine = engine_of(value); }},
        {"--capacity", "NAME=N",
         "room: words of routes, members of groups; groups, nexthops, policers,\nrouter_interfaces; repeatable",
         [&config](const std::string& value) {
             const auto [name, count] = halves("--capacity", value, "NAME=N");
             set_capacity(config, name, number_of(count, "the capacity " + name, 1, most_of_capacity(name)));
         }},
        {"--samples", "NAME=N",
         "which routed packets a controller that asks is shown: one_in (25), per_s (10000);\nrepeatable",
         [&config](const std::string& value) {
             const auto [name, count] = halves("--samples", value, "NAME=N");
             set_samples(config.samples, name, number_of(count, "a number of samples", 1, kMostOfSamples));
         }},
        {"--log-level", "LEVEL", "debug, info, warning, error (info)",
         [&config](const std::string& value) { config.log_level = log_level_of(value); }},
    };
}

// Parse, and tell what CLI11 found wrong as one line with the remedy. False: --help or --version, which is in `verb`.
bool parsed(CLI::App& app, std::span<const std::string> words, Verb& verb) {
    try {
        app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
    } catch (const CLI::CallForHelp&) {
        verb = Verb::kHelp;
        return false;
    } catch (const CLI::CallForVersion&) {
        verb = Verb::kVersion;
        return false;
    } catch (const CLI::ArgumentMismatch&) {  // an option takes whatever is behind it, so it is the last word
        throw ConfigError(words.back() + " needs a value" + kSeeHelp);
    } catch (const CLI::ParseError& error) {
        throw ConfigError(error.what() + std::string(kSeeHelp));
    }
    for (const std::string& word : app.remaining(true)) {
        const bool option = word.starts_with("--");
        throw ConfigError((option ? "unknown option " + word : "`" + word + "` is not understood") + kSeeHelp);
    }
    return true;
}

}  // namespace

Options parse_options(std::span<const std::string> words) {
    Options options;
    CLI::App app(kAbout, "vr-forwarder");
    app.set_help_flag("-h,--help", "this text");
    app.set_version_flag("--version", "", "the version");
    app.require_subcommand(0, 1);
    app.allow_extras();
    for (const Command& command : kCommands) {
        CLI::App* const verb = app.add_subcommand(command.name, command.help)->fallthrough();
        verb->set_help_flag();  // there is one text for all
        verb->callback([&options, &command] { options.verb = command.verb; });
        if (command.verb == Verb::kDump) verb->add_option("TABLE", options.table, "its name");
    }
    const std::vector<Setting> known = settings(options.config);
    std::vector<const CLI::Option*> given;
    for (const Setting& setting : known) {
        CLI::Option* const option = app.add_option(setting.name, std::as_const(setting.help));
        given.push_back(option->type_name(setting.form)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll));
    }
    bool detach_on_exit = false;
    app.add_flag("--detach-on-exit", detach_on_exit, "leave the ports at SIGTERM");
    bool alike = false;
    bool generic = false;
    app.add_flag("--no-native", generic, "generic XDP on all ports, for a driver whose native XDP does harm");
    bool core_shares = false;
    app.add_flag("--core-shares", core_shares, "divide cores that are too small for all by routers' shares");
    bool count_routes = false;
    app.add_flag("--route-counters", count_routes, "count packets by route, by samples of them");
    app.add_flag("--no-hash-by-router", alike, "spread flows alike on all routers, as BMv2 does");
    app.add_flag("--json", options.json, "status and dump for programs");
    if (!parsed(app, words, options.verb)) {
        if (options.verb == Verb::kHelp) {
            options.help = app.get_formatter()->make_help(&app, app.get_name(), CLI::AppFormatMode::Normal);
        }
        return options;
    }
    for (size_t at = 0; at < known.size(); ++at) {
        for (const std::string& value : given[at]->results()) known[at].take(value);
    }
    options.config.detach_on_exit |= detach_on_exit;
    options.config.native &= !generic;
    options.config.core_shares |= core_shares;
    options.config.samples.count_routes |= count_routes;
    options.config.hash_by_router &= !alike;
    std::ranges::sort(options.config.ports, {}, &Port::number);
    return options;
}

}  // namespace splitplane
