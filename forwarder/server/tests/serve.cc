// SPDX-License-Identifier: Apache-2.0
//
// memory-forwarder ADDRESS [JOURNAL]: the P4Runtime server of device 1 over tables in plain memory, without packets,
// for clients' tests and bench/p4write. It says "ready" on its standard output, and ends with its standard input.
#include <grpcpp/grpcpp.h>

#include <cstdio>
#include <filesystem>

#include "engine/memory_engine.h"
#include "server/server.h"

namespace {

class Grace : public splitplane::GracePeriods {
  public:
    void synchronize() override {}  // nobody reads
};

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2 || argc > 3) {
        std::fprintf(stderr, "memory-forwarder: wants ADDRESS [JOURNAL]\n");
        return 2;
    }
    try {
        splitplane::MemoryEngine engine;
        Grace grace;
        splitplane::Tables tables(engine.arrays(), grace, argc > 2 ? argv[2] : "");
        splitplane::P4RuntimeServer server(tables, engine, {.device_id = 1});
        server.start({{argv[1], grpc::InsecureServerCredentials()}});
        std::printf("ready, %zu routes replayed\n", tables.journal_status().routes_replayed);
        std::fflush(stdout);
        while (std::getchar() != EOF) {
        }
        auto statistics = server.statistics();
        std::printf("%zu octets of journal, %zu rewrites\n", statistics.journal.octets, statistics.journal.rewrites);
    } catch (const std::exception& problem) {
        std::fprintf(stderr, "memory-forwarder: %s\n", problem.what());
        return 1;
    }
    return 0;
}
