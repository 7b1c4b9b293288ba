// SPDX-License-Identifier: Apache-2.0

#include "daemon/options.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <utility>

namespace splitplane {

const char* const kUsage =
    R"(vr-forwarder: a software forwarder for many virtual routers, driven by P4Runtime

  vr-forwarder [run] [OPTION]...          forward, until SIGTERM; what is attached goes on forwarding
  vr-forwarder status [--json]            ports, tables, controllers, counters of the one that runs
  vr-forwarder dump [TABLE] [--json]      entries of the one that runs
  vr-forwarder detach                     take a stopped one off its ports, which forward nothing then
  vr-forwarder check --config FILE        say what is wrong with a configuration, or nothing

  --config FILE         configuration in TOML; the options below count more
  --port N=INTERFACE    a port of the plane; repeat it for each
  --device-id N         P4Runtime's device id (1)
  --listen ADDRESS      where controllers connect: HOST:PORT or unix:PATH; repeatable (127.0.0.1:9559)
  --tls-cert FILE       certificate and key shown to controllers on TCP; PEM
  --tls-key FILE
  --tls-ca FILE         controllers have to show a certificate signed by this authority
  --metrics ADDRESS     where OpenMetrics are served over HTTP: HOST:PORT or unix:PATH (nowhere)
  --state DIR           journal and control sockets (/run/vr-forwarder)
  --instance NAME       folder below /sys/fs/bpf for what outlives the process (vr-forwarder)
  --capacity NAME=N     room: words of routes, members of groups; groups, nexthops, policers, router_interfaces;
                        repeatable
  --samples NAME=N      which routed packets a controller that asks is shown: one_in (25), per_s (10000); repeatable
  --log-level LEVEL     debug, info, warning, error (info)
  --detach-on-exit      leave the ports at SIGTERM
  --json                for programs
  --version, --help
)";

namespace {

using Take = std::function<void(const std::string& value)>;

const std::map<std::string, Verb> kVerbs{
    {"run", Verb::kRun},       {"status", Verb::kStatus}, {"dump", Verb::kDump},
    {"detach", Verb::kDetach}, {"check", Verb::kCheck},
};

// "NAME=VALUE" in two, ConfigError where there is no "=".
std::pair<std::string, std::string> halves(const std::string& flag, const std::string& value, const char* form) {
    const size_t equals = value.find('=');
    if (equals == std::string::npos) throw ConfigError(flag + " takes " + form + ", not `" + value + "`");
    return {value.substr(0, equals), value.substr(equals + 1)};
}

std::map<std::string, Take> takers(Options& options) {
    Config& config = options.config;
    return {
        {"--config", [](const std::string&) {}},  // was read before
        {"--port",
         [&config, first = true](const std::string& value) mutable {
             if (std::exchange(first, false)) config.ports.clear();
             const auto [number, interface] = halves("--port", value, "N=INTERFACE");
             config.ports.push_back(port_of(number, interface));
         }},
        {"--listen",
         [&config, first = true](const std::string& value) mutable {
             if (std::exchange(first, false)) config.listen.clear();
             config.listen.push_back(address_of(value));
         }},
        {"--capacity",
         [&config](const std::string& value) {
             const auto [name, count] = halves("--capacity", value, "NAME=N");
             set_capacity(config, name, number_of(count, "the capacity " + name, 1, most_of_capacity(name)));
         }},
        {"--samples",
         [&config](const std::string& value) {
             const auto [name, count] = halves("--samples", value, "NAME=N");
             set_samples(config.samples, name, number_of(count, "a number of samples", 1, kMostOfSamples));
         }},
        {"--device-id",
         [&config](const std::string& value) {
             config.device_id = number_of(value, "--device-id", 1, UINT64_MAX);
         }},
        {"--tls-cert", [&config](const std::string& value) { config.tls.cert = value; }},
        {"--tls-key", [&config](const std::string& value) { config.tls.key = value; }},
        {"--tls-ca", [&config](const std::string& value) { config.tls.ca = value; }},
        {"--metrics", [&config](const std::string& value) { config.metrics = address_of(value); }},
        {"--state", [&config](const std::string& value) { config.state = std::filesystem::absolute(value); }},
        {"--instance", [&config](const std::string& value) { config.instance = instance_of(value); }},
        {"--log-level", [&config](const std::string& value) { config.log_level = log_level_of(value); }},
    };
}

// Words as flag and value: "--a=b" and "--a b" are the same.
struct Word {
    std::string flag;
    std::string value;
};

std::vector<Word> paired(std::span<const std::string> words, const std::map<std::string, Take>& known) {
    std::vector<Word> found;
    for (size_t at = 0; at < words.size(); ++at) {
        const std::string& word = words[at];
        if (!word.starts_with("--")) {
            found.push_back({"", word});
            continue;
        }
        const size_t equals = word.find('=');
        const std::string flag = word.substr(0, equals);
        if (!known.contains(flag)) {
            found.push_back({word, ""});
        } else if (equals != std::string::npos) {
            found.push_back({flag, word.substr(equals + 1)});
        } else if (at + 1 < words.size()) {
            found.push_back({flag, words[++at]});
        } else {
            throw ConfigError(flag + " needs a value; see vr-forwarder --help");
        }
    }
    return found;
}

void take_plain(Options& options, const std::string& word, size_t place) {
    const auto verb = kVerbs.find(word);
    if (place == 0 && verb != kVerbs.end()) {
        options.verb = verb->second;
    } else if (options.verb == Verb::kDump && place == 1) {
        options.table = word;
    } else {
        throw ConfigError("`" + word + "` is not understood; see vr-forwarder --help");
    }
}

}  // namespace

Options parse_options(std::span<const std::string> words) {
    Options options;
    auto known = takers(options);
    const std::vector<Word> found = paired(words, known);
    for (const Word& word : found) {
        if (word.flag == "--config") read_config(word.value, options.config);
    }
    size_t plain = 0;
    for (const Word& word : found) {
        if (word.flag.empty()) {
            take_plain(options, word.value, plain++);
        } else if (word.flag == "--json") {
            options.json = true;
        } else if (word.flag == "--detach-on-exit") {
            options.config.detach_on_exit = true;
        } else if (word.flag == "--help" || word.flag == "--version") {
            options.verb = word.flag == "--help" ? Verb::kHelp : Verb::kVersion;
            return options;
        } else if (const auto take = known.find(word.flag); take != known.end()) {
            take->second(word.value);
        } else {
            throw ConfigError("unknown option " + word.flag + "; see vr-forwarder --help");
        }
    }
    std::ranges::sort(options.config.ports, {}, &Port::number);
    return options;
}

}  // namespace splitplane
