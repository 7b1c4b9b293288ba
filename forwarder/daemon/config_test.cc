// SPDX-License-Identifier: Apache-2.0

#include "daemon/config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "daemon/options.h"

namespace splitplane {
namespace {

Config read(const std::string& text) {
    Config config;
    read_config_text(text, "f.toml", config);
    check_config(config);
    return config;
}

std::string file_complaint(const std::string& text) {
    try {
        read(text);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "nothing";
}

Options parsed(const std::vector<std::string>& words) { return parse_options(words); }

std::string complaint(const std::vector<std::string>& words) {
    try {
        check_config(parsed(words).config);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "nothing";
}

TEST(Config, EverythingIsRead) {
    Config config;
    read_config_text(R"(
device_id = 7
listen = ["192.0.2.1:9559", "unix:/run/x.sock", "[::1]:9559"]
metrics = "127.0.0.1:9560"
state = "/var/lib/x"
engine = "memory"
instance = "edge-1"
log_level = "debug"
detach_on_exit = true
hash_by_router = false
route_counters = true
core_shares = true
[ports]
10 = "eth1"
2 = "eth2"
3 = {interface = "eth3", speed = "2.5G"}
[tls]
cert = "/dev/null"
key = "/dev/zero"
ca = "/dev/full"
client = "controller.example"
[samples]
one_in = 20
per_s = 50
[capacity]
words = 1000
members = 5
nexthops = 100
policers = 90112
router_interfaces = 1
)", "f.toml", config);
    EXPECT_EQ(config.device_id, 7u);
    EXPECT_EQ(config.listen, (std::vector<std::string>{"192.0.2.1:9559", "unix:/run/x.sock", "[::1]:9559"}));
    EXPECT_EQ(config.metrics, "127.0.0.1:9560");
    EXPECT_EQ(config.control_socket(), "/var/lib/x/control.sock");
    EXPECT_EQ(config.engine, EngineKind::kMemory);
    EXPECT_EQ(config.instance, "edge-1");
    EXPECT_EQ(config.log_level, LogLevel::kDebug);
    EXPECT_TRUE(config.detach_on_exit);
    EXPECT_FALSE(config.hash_by_router);
    EXPECT_TRUE(config.core_shares);
    EXPECT_TRUE(config.engine_options().core_shares);
    ASSERT_EQ(config.ports.size(), 3u);
    EXPECT_EQ(config.ports[0].number, 2u);
    EXPECT_EQ(config.ports[0].interface, "eth2");
    EXPECT_EQ(config.ports[0].speed, 0u);
    EXPECT_EQ(config.ports[1].interface, "eth3");
    EXPECT_EQ(config.ports[1].speed, 2'500'000'000u);
    EXPECT_EQ(config.ports[2].number, 10u);
    EXPECT_EQ(config.capacity.words, 1008u);  // whole units
    EXPECT_EQ(config.capacity.members, 8u);
    EXPECT_EQ(config.limits.of(Table::kNexthop), 100u);
    EXPECT_EQ(config.limits.of(Table::kPolicer), 90112u);
    EXPECT_EQ(config.limits.of(Table::kRouterInterface), 1u);
    EXPECT_EQ(config.limits.of(Table::kRouterInterfaceEgress), 1u);
    EXPECT_EQ(config.limits.of(Table::kNexthopGroup), 16384u) << "what is not named is as large as can be";
    EXPECT_EQ(config.tls.cert, "/dev/null");
    EXPECT_EQ(config.tls.key, "/dev/zero");
    EXPECT_EQ(config.tls.ca, "/dev/full");
    EXPECT_EQ(config.tls.client, "controller.example");
    EXPECT_EQ(config.samples.one_in, 20u);
    EXPECT_EQ(config.samples.per_s, 50u);
    EXPECT_TRUE(config.samples.count_routes);
}

TEST(Config, AnEmptyFileIsTheDefaults) {
    const Config config = read("");
    EXPECT_TRUE(config.listen.empty()) << "there is the socket in the state directory";
    EXPECT_EQ(config.tls.client, "vr-controller");
    EXPECT_TRUE(config.ports.empty());
    EXPECT_FALSE(config.detach_on_exit);
    EXPECT_TRUE(config.hash_by_router);
    EXPECT_FALSE(config.samples.count_routes);
    EXPECT_FALSE(config.core_shares);
}

struct Wrong {
    const char* text;
    const char* said;
};

class WrongConfig : public testing::TestWithParam<Wrong> {};

TEST_P(WrongConfig, IsOneLineThatNamesPlaceThingAndRemedy) {
    const std::string said = file_complaint(std::string(GetParam().text));
    EXPECT_EQ(said.find('\n'), std::string::npos) << said;
    EXPECT_NE(said.find(GetParam().said), std::string::npos) << said;
}

INSTANTIATE_TEST_SUITE_P(
    All, WrongConfig,
    testing::Values(
        Wrong{"device_id = 1\nprots = 3\n", "f.toml:2: unknown key `prots`; there are capacity, core_shares, detach_on_exit"},
        Wrong{"[tls]\nkeys = \"x\"\n", "f.toml:2: unknown key `keys` in [tls]; there are ca, cert, client, key"},
        Wrong{"[ports]\n\n512 = \"eth1\"\n", "f.toml:3: a port's number is a number from 1 to 511, not `512`"},
        Wrong{"[ports]\n0 = \"eth1\"\n", "f.toml:2: a port's number is a number from 1 to 511, not `0`"},
        Wrong{"[ports]\neth1 = \"eth1\"\n", "not `eth1`"},
        Wrong{"[ports]\n1 = 7\n", "f.toml:2: `ports.1` takes a text in quotes"},
        Wrong{"[ports]\n1 = \"an/other\"\n", "`an/other` is no name of an interface"},
        Wrong{"[ports]\n1 = \"a23456789012345678\"\n", "is no name of an interface"},
        Wrong{"[ports]\n1 = \"eth1\"\n2 = \"eth1\"\n", "interface eth1 is two ports"},
        Wrong{"[ports]\n1 = {interface = \"eth1\", sped = \"1G\"}\n",
              "f.toml:2: unknown key `sped` in [ports.1]; there are interface, speed"},
        Wrong{"[ports]\n1 = {interface = \"eth1\", speed = \"fast\"}\n",
              "f.toml:2: `fast` is no speed of a link; write bits a second from 1M to 400G, as 100M or 2.5G"},
        Wrong{"[ports]\n1 = {interface = \"eth1\", speed = \"900\"}\n", "`900` is no speed of a link"},
        Wrong{"[ports]\n1 = {interface = \"eth1\", speed = \"401G\"}\n", "`401G` is no speed of a link"},
        Wrong{"[ports]\n1 = {interface = \"eth1\", speed = \"nanG\"}\n", "`nanG` is no speed of a link"},
        Wrong{"[ports]\n1 = {interface = \"eth1\", speed = 100}\n", "`speed` takes a text in quotes"},
        Wrong{"ports = 3\n", "f.toml:1: `ports` is a table: write [ports]"},
        Wrong{"listen = \"127.0.0.1:1\"\n", "`listen` takes a list"},
        Wrong{"listen = [\"9559\"]\n", "f.toml:1: `9559` is no address; write HOST:PORT, [IPV6]:PORT or unix:PATH"},
        Wrong{"listen = [\"::1:9559\"]\n", "`::1:9559` is no address"},
        Wrong{"listen = [\"unix:x.sock\"]\n", "a Unix socket has an absolute path"},
        Wrong{"metrics = \"127.0.0.1:0\"\n", "the port of `127.0.0.1:0` is a number from 1 to 65535"},
        Wrong{"device_id = 0\n", "f.toml:1: `device_id` takes a number from 1 to"},
        Wrong{"device_id = \"1\"\n", "`device_id` takes a number"},
        Wrong{"detach_on_exit = 1\n", "`detach_on_exit` is true or false"},
        Wrong{"native = 0\n", "`native` is true or false"},
        Wrong{"hash_by_router = \"no\"\n", "`hash_by_router` is true or false"},
        Wrong{"log_level = \"loud\"\n", "`loud` is no log level; there are debug, info, warning, error"},
        Wrong{"engine = \"dpdk\"\n", "`dpdk` is no engine; there are xdp, memory"},
        Wrong{"instance = \"../x\"\n", "`../x` is no name of an instance"},
        Wrong{"[samples]\none_in = 0\n", "f.toml:2: `one_in` takes a number from 1 to 1000000"},
        Wrong{"[capacity]\nwords = -1\n", "f.toml:2: `words` takes a number from 1 to"},
        Wrong{"[capacity]\nnexthops = 65537\n", "f.toml:2: `nexthops` takes a number from 1 to 65536"},
        Wrong{"[capacity]\ngroups = 0\n", "f.toml:2: `groups` takes a number from 1 to 16384"},
        Wrong{"[capacity]\nroutes = 1\n",
              "f.toml:2: unknown key `routes` in [capacity]; there are groups, members, nexthops, policers, "
              "router_interfaces, words"},
        Wrong{"[tls]\ncert = \"/nonexistent\"\n", "TLS needs a certificate, its key and the authority"},
        Wrong{"[tls]\ncert = \"/nonexistent\"\nkey = \"/nonexistent\"\n", "set cert, key and ca (--tls-cert, "},
        Wrong{"[tls]\ncert = \"/nonexistent\"\nkey = \"/nonexistent\"\nca = \"/nonexistent\"\n",
              "cannot read the TLS file /nonexistent"},
        Wrong{"[tls]\nclient = \"a b\"\n", "f.toml:2: `a b` is no DNS name of a certificate"},
        Wrong{"listen = [\"127.0.0.1:9559\"]\n",
              "cannot listen on 127.0.0.1:9559 without TLS, because whoever reaches it would own the plane: set cert, "
              "key and ca (--tls-cert, --tls-key, --tls-ca), or use unix:/run/vr-forwarder/p4rt.sock, which is always "
              "there"},
        Wrong{"listen = [\"unix:/run/x.sock\", \"[::1]:9559\"]\n", "cannot listen on [::1]:9559 without TLS"},
        Wrong{"[ports\n", "f.toml:1: not TOML: "},
        Wrong{"device_id = 1\ndevice_id = 2\n", "f.toml:2: not TOML: "}));

TEST(Config, ADirectoryIsNoFile) {
    Config config;
    try {
        read_config("/", config);
        FAIL() << "it was read";
    } catch (const ConfigError& error) {
        EXPECT_STREQ(error.what(), "cannot read the configuration /: Is a directory");
    }
}

TEST(Config, AMissingFileIsNamed) {
    Config config;
    try {
        read_config("/nonexistent/f.toml", config);
        FAIL();
    } catch (const ConfigError& error) {
        EXPECT_STREQ(error.what(), "cannot read the configuration /nonexistent/f.toml: No such file or directory");
    }
}

TEST(Options, TheCommandLineCountsMoreThanTheFile) {
    const std::string path = testing::TempDir() + "options.toml";
    std::ofstream(path) << "device_id = 3\nlisten = [\"127.0.0.1:1\"]\nmetrics = \"127.0.0.1:2\"\n"
                        << "[ports]\n1 = \"eth1\"\n";
    const Options options =
        parsed({"run", "--listen", "127.0.0.1:5", "--listen=unix:/x", "--port", "4=eth4", "--config", path});
    std::filesystem::remove(path);
    EXPECT_EQ(options.verb, Verb::kRun);
    EXPECT_EQ(options.config.device_id, 3u);
    EXPECT_EQ(options.config.listen, (std::vector<std::string>{"127.0.0.1:5", "unix:/x"}));
    EXPECT_EQ(options.config.metrics, "127.0.0.1:2");
    ASSERT_EQ(options.config.ports.size(), 1u);
    EXPECT_EQ(options.config.ports[0].interface, "eth4");
}

TEST(Options, ASpeedIsOfAPortThatThereIs) {
    const Options options = parsed({"--speed", "4=100M", "--port", "4=eth4", "--port", "5=eth5"});
    EXPECT_EQ(options.config.ports[0].speed, 100'000'000u);
    EXPECT_EQ(options.config.ports[1].speed, 0u);
    EXPECT_EQ(complaint({"--speed", "4=100M"}), "there is no port 4 to have a speed; name it with --port");
    EXPECT_EQ(complaint({"--port", "4=eth4", "--speed", "100M"}), "--speed takes N=SPEED, not `100M`");
}

TEST(Options, VerbsAndTheirWords) {
    EXPECT_EQ(parsed({}).verb, Verb::kRun);
    EXPECT_EQ(parsed({"--port", "1=a"}).verb, Verb::kRun);
    EXPECT_EQ(parsed({"status", "--json"}).json, true);
    EXPECT_EQ(parsed({"dump", "nexthop"}).table, "nexthop");
    EXPECT_EQ(parsed({"detach"}).verb, Verb::kDetach);
    EXPECT_EQ(parsed({"status", "--help"}).verb, Verb::kHelp);
    EXPECT_EQ(parsed({"--version"}).verb, Verb::kVersion);
    EXPECT_EQ(parsed({"--port", "eth1", "-h"}).verb, Verb::kHelp);
    EXPECT_EQ(parsed({"dump", "status"}).table, "status");
    EXPECT_EQ(parsed({"--state", "/a", "detach", "--state=/b"}).config.state, "/b");
}

TEST(Options, HelpNamesCommandsAndOptions) {
    std::istringstream help(parsed({"status", "--help"}).help);
    std::set<std::string> first;
    for (std::string line; std::getline(help, line);) {
        EXPECT_LE(line.size(), 120u) << line;
        std::istringstream words(line);
        std::string word;
        if (words >> word) first.insert(word);
    }
    for (const char* word :
         {"run", "status", "dump", "detach", "check", "--config", "--port", "--speed", "--device-id", "--listen", "--tls-cert",
          "--tls-key", "--tls-ca", "--tls-client", "--metrics", "--state", "--engine", "--instance", "--capacity", "--samples", "--log-level",
          "--detach-on-exit", "--no-native", "--core-shares", "--route-counters", "--no-hash-by-router", "--json", "--version", "-h,--help"}) {
        EXPECT_TRUE(first.contains(word)) << word;
    }
}

TEST(Options, WhatIsWrongIsNamed) {
    EXPECT_EQ(complaint({"--prot", "1=a"}), "unknown option --prot; see vr-forwarder --help");
    EXPECT_EQ(complaint({"--port"}), "--port needs a value; see vr-forwarder --help");
    EXPECT_EQ(complaint({"--port", "eth1"}), "--port takes N=INTERFACE, not `eth1`");
    EXPECT_EQ(complaint({"--port", "1=a", "--port", "1=b"}), "port 1 is named twice; give each port one interface");
    EXPECT_EQ(complaint({"--capacity", "routes=1"}),
              "`routes` is no capacity; there are groups, members, nexthops, policers, router_interfaces, words");
    EXPECT_EQ(complaint({"--capacity", "policers=90113"}),
              "the capacity policers is a number from 1 to 90112, not `90113`");
    EXPECT_EQ(complaint({"--capacity", "nexthops=many"}),
              "the capacity nexthops is a number from 1 to 65536, not `many`");
    EXPECT_EQ(complaint({"start"}), "`start` is not understood; see vr-forwarder --help");
    EXPECT_EQ(complaint({"status", "x"}), "`x` is not understood; see vr-forwarder --help");
    EXPECT_EQ(complaint({"run", "status"}), "`status` is not understood; see vr-forwarder --help");
    EXPECT_EQ(complaint({"dump", "nexthop", "x"}), "`x` is not understood; see vr-forwarder --help");
    EXPECT_EQ(complaint({"status", "--jsn", "x"}), "unknown option --jsn; see vr-forwarder --help");
    const std::string flag = complaint({"--json=x"});
    EXPECT_TRUE(flag.ends_with("--json = x; see vr-forwarder --help")) << flag;
}

}  // namespace
}  // namespace splitplane
