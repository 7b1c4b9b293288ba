// SPDX-License-Identifier: Apache-2.0

#include "daemon/report.h"

#include <gtest/gtest.h>

#include "engine/memory_engine.h"

namespace splitplane {
namespace {

constexpr uint32_t kCpus = 2;

// One router, vrf_id 700 in slot 3, with router interface 42 in slot 5 on port 2, VLAN 100.
class Counted : public testing::Test {
  protected:
    Counted() : engine_({.words = 64, .members = 64}, kCpus), arrays_(engine_.arrays()) {
        arrays_.vrfs[3].id = 700;
        arrays_.interfaces[5].id = 42;
        arrays_.egresses[5].rewrite = SP_PRESENT | 0x020000000001;
        arrays_.classifier[sp_classifier_index(2, 100)] = sp_classifier(SP_CLASSIFIER_INGRESS, 3, 5, 9);
    }

    sp_counter& rx(uint32_t cpu) { return arrays_.rx[cpu * SP_INTERFACES + 9]; }
    sp_counter& tx(uint32_t cpu) { return arrays_.tx[cpu * SP_INTERFACES + 5]; }
    sp_counter& reason(uint32_t cpu, uint32_t vrf, uint32_t reason) {
        return arrays_.reasons[(size_t{cpu} * SP_VRFS + vrf) * SP_REASONS + sp_reason_index(reason)];
    }
    Counters counters() { return read_counters(arrays_, ports_); }

    MemoryEngine engine_;
    sp_arrays& arrays_;
    std::vector<Port> ports_{{2, "eth2"}};
};

TEST_F(Counted, AreSummedOverCpusAndNamedById) {
    rx(0) = {10, 1000};
    rx(1) = {1, 64};
    tx(1) = {7, 700};
    reason(0, 3, SP_PUNT_GLEAN) = {2, 128};
    reason(1, 3, SP_DROP_MALFORMED) = {3, 192};
    reason(1, 0, SP_DROP_UNKNOWN_INTERFACE) = {4, 256};
    arrays_.engine_counters[SP_COUNT_NO_PORT] = 5;
    arrays_.engine_counters[SP_ENGINE_COUNTERS + SP_COUNT_NO_PORT] = 6;
    const Counters found = counters();
    ASSERT_EQ(found.interfaces.size(), 1u);
    EXPECT_EQ(found.interfaces.at(42).received.packets, 11u);
    EXPECT_EQ(found.interfaces.at(42).received.octets, 1064u);
    EXPECT_EQ(found.interfaces.at(42).sent.packets, 7u);
    EXPECT_EQ(found.routers.at(700)[SP_PUNT_GLEAN].packets, 2u);
    EXPECT_EQ(found.routers.at(700)[sp_reason_index(SP_DROP_MALFORMED)].octets, 192u);
    EXPECT_EQ(found.routers.at(0)[kFirstDrop].packets, 4u);
    EXPECT_EQ(found.engine[SP_COUNT_NO_PORT], 11u);
    EXPECT_EQ(found.all_routers()[kFirstDrop].packets, 4u);
}

TEST_F(Counted, OnAnotherPortAreNotReceived) {
    ports_ = {{1, "eth1"}};
    rx(0) = {10, 1000};
    EXPECT_EQ(counters().all_interfaces().received.packets, 0u);
}

TEST_F(Counted, AreInAllThreeViews) {
    tx(0) = {7, 700};
    reason(0, 3, SP_PUNT_TTL_EXPIRED) = {2, 128};
    arrays_.engine_counters[SP_COUNT_RING_FULL] = 1;
    arrays_.engine_counters[SP_COUNT_SAMPLE_POLICED] = 8;
    Report report;
    report.version = "1.2.3";
    report.uptime_s = 3723;
    report.engine = "memory";
    report.listening = {"127.0.0.1:9559"};
    report.ports = {{{2, "eth2"}, true, true, "native", ""}, {{3, "eth3"}, false, false, "", "is gone"}};
    report.links = {{{2, "eth2"}, {1'000'000'000, 941'250'000, 333'000'000, true, 17}}, {{3, "eth3"}, {}}};
    report.tables = {{"ipv4_route", 5, 100}};
    report.controllers = 2;
    report.primary = true;
    report.election_id = "7.1";
    report.server = {{"writes", "WriteRequests.", "code", "OK", 9}, {"packet_ins", "Packets.", "", "", 4}};
    report.counters = counters();
    arrays_.cores[1].level = SP_CORE_WHOLE / 4;
    arrays_.core_routers[SP_VRFS + 3].spent = 2'000'000'000;
    arrays_.core_routers[SP_VRFS + 3].dropped = 17;
    report.cores = read_core_shares(arrays_);
    PortLosses losses{2, {}, {{"rx_dropped", std::nullopt, 0}, {"rx_queue_1_drops", 1, 12}}};
    losses.egress[SP_LOSS_DOWN] = 11;
    report.losses = {losses};
    report.limits = {{{"link", "port 2, 11 frames that it could not send"}}, 3};
    report.journal_broken = true;

    const std::string text = report_text(report);
    for (const char* line : {"vr-forwarder 1.2.3, pid 0, up for 1 h 2 min, device id 0\n",
                             "\n  2     eth2       up      native\n", "\n  3     eth3       absent  -       is gone\n", "\n  ipv4_route  5        100\n",
                             "\n  2     eth2       1G       941.25M  333M   applied  17\n",
                             "\n  3     eth3       unknown  -        -      none     0\n",
                             "\n  punt ttl_expired  2        128\n",
                             "\n  1     25.0 %\n", "\n  router 700           2             17\n",
                             "limits     link: port 2, 11 frames that it could not send in the last 3 s\n",
                             "\n  2             eth2       egress  down                     11\n",
                             "\n  2             eth2       device  rx_queue_1_drops  1      12\n", "\n  lost ring_full    1\n", "\n  sample policed    8\n",
                             "journal    0 MiB, cannot be written: what changes is lost with this process\n",
                             "control    2 connected, one of them primary, highest election id 7.1\n"}) {
        EXPECT_NE(text.find(line), std::string::npos) << line << text;
    }
    const std::string json = report_json(report);
    for (const char* part : {"\"ttl_expired\": {\n        \"packets\": 2,", "\"writes OK\": 9", "\"packet_ins\": 4",
                             "\"problem\": \"is gone\"", "\"speed_bit_s\": 1000000000", "\"over_share\": 17", "\"by\": \"link\"", "\"counter\": \"rx_queue_1_drops\"", "\"level\": 250000", "\"core_ns\": 2000000000", "\"journal_broken\": true", "\"ring_full\": 1", "\"policed\": 8"}) {
        EXPECT_NE(json.find(part), std::string::npos) << part << json;
    }
    const std::string metrics = report_metrics(report);
    for (const char* line :
         {"vr_forwarder_port_up{port=\"2\",interface=\"eth2\",mode=\"native\"} 1\n",
          "vr_forwarder_port_up{port=\"3\",interface=\"eth3\",mode=\"\"} 0\n",
          "vr_forwarder_sent_packets_total{router_interface=\"42\"} 7\n",
          "vr_forwarder_punts_total{router=\"700\",reason=\"ttl_expired\"} 2\n",
          "vr_forwarder_lost_total{reason=\"ring_full\"} 1\n",
          "vr_forwarder_egress_lost_frames_total{port=\"2\",interface=\"eth2\",reason=\"down\"} 11\n",
          "vr_forwarder_device_lost_frames_total{port=\"2\",interface=\"eth2\",counter=\"rx_queue_1_drops\","
          "queue=\"1\"} 12\n",
          "vr_forwarder_core_level{cpu=\"1\"} 250000\n",
          "vr_forwarder_core_nanoseconds_total{router=\"700\"} 2000000000\n",
          "vr_forwarder_core_over_share_total{router=\"700\"} 17\n",
          "vr_forwarder_link_use_bits{port=\"2\",interface=\"eth2\"} 941250000\n",
          "vr_forwarder_link_over_share_total{port=\"2\",interface=\"eth2\"} 17\n",
          "vr_forwarder_journal_broken 1\n", "vr_forwarder_limited{by=\"link\"} 1\n", "vr_forwarder_limited{by=\"core\"} 0\n",
          "vr_forwarder_samples_total{outcome=\"policed\"} 8\n",
          "vr_forwarder_p4runtime_writes_total{code=\"OK\"} 9\n", "vr_forwarder_p4runtime_packet_ins_total 4\n"}) {
        EXPECT_NE(metrics.find(line), std::string::npos) << line << metrics;
    }
    EXPECT_TRUE(metrics.ends_with("# EOF\n"));
}

}  // namespace
}  // namespace splitplane
