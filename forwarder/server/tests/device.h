// SPDX-License-Identifier: Apache-2.0
//
// A device for tests: the real server and tables over an engine without packets, and controllers that speak to it over
// gRPC.
#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/memory_engine.h"
#include "p4/v1/p4runtime.grpc.pb.h"
#include "server/server.h"

namespace splitplane::testing {

namespace p4v1 = ::p4::v1;
using Config = p4v1::SetForwardingPipelineConfigRequest;

inline constexpr uint64_t kDevice = 7;

// A folder that is gone with the test.
class Folder {
  public:
    Folder();
    ~Folder();
    const std::filesystem::path& path() const { return path_; }

  private:
    std::filesystem::path path_;
};

class EngineGrace : public GracePeriods {
  public:
    explicit EngineGrace(Engine& engine) : engine_(engine) {}
    void synchronize() override { engine_.synchronize(); }

  private:
    Engine& engine_;
};

// One process of the daemon: engine, tables, server. A second one over the same folder is what comes after a crash.
class Device {
  public:
    explicit Device(const std::filesystem::path& folder, ServerOptions options = {.device_id = kDevice},
                    SampleRate rate = {});
    ~Device();

    std::shared_ptr<grpc::Channel> connect() const;
    MemoryEngine& engine() { return *engine_; }
    sp_arrays& arrays() { return engine_->arrays(); }
    Tables& tables() { return *tables_; }
    P4RuntimeServer& server() { return *server_; }
    std::vector<std::string> log() const;

  private:
    std::string address_;
    std::unique_ptr<MemoryEngine> engine_;
    std::unique_ptr<EngineGrace> grace_;
    std::unique_ptr<Tables> tables_;
    mutable std::mutex mutex_;
    std::vector<std::string> log_;
    std::unique_ptr<P4RuntimeServer> server_;
};

// -- messages --------------------------------------------------------------------------------------------------------
p4::config::v1::P4Info golden();
p4v1::Uint128 election(uint64_t low, uint64_t high = 0);
std::string value(uint64_t number);

p4v1::TableEntry key_of(uint32_t table_id, std::vector<uint64_t> fields);
// An entry of one of the small tables, by the numbers of its fields and parameters.
p4v1::TableEntry entry(uint32_t table_id, std::vector<uint64_t> fields, uint32_t action_id,
                       std::vector<uint64_t> params = {});
p4v1::Action action(uint32_t action_id, std::vector<uint64_t> params = {});
// "10.0.0.0/8" or "2001:db8::/32".
p4v1::TableEntry route_key(uint64_t vrf_id, const std::string& prefix);
p4v1::TableEntry route(uint64_t vrf_id, const std::string& prefix, uint32_t action_id,
                       std::vector<uint64_t> params = {});
p4v1::TableEntry group(uint64_t group_id, std::vector<std::pair<uint64_t, int>> members);

inline p4v1::Entity entity(const p4v1::TableEntry& entry) {
    p4v1::Entity entity;
    *entity.mutable_table_entry() = entry;
    return entity;
}
p4v1::Update update(p4v1::Update::Type type, const p4v1::Entity& entity);
inline p4v1::Update insert(const p4v1::TableEntry& entry) { return update(p4v1::Update::INSERT, entity(entry)); }
inline p4v1::Update modify(const p4v1::TableEntry& entry) { return update(p4v1::Update::MODIFY, entity(entry)); }
inline p4v1::Update erase(const p4v1::TableEntry& entry) { return update(p4v1::Update::DELETE, entity(entry)); }

// What a refused WriteRequest or ReadRequest says of each part.
std::vector<p4v1::Error> errors_of(const grpc::Status& status);

// -- a controller ----------------------------------------------------------------------------------------------------
class Controller {
  public:
    explicit Controller(const Device& device);
    ~Controller();

    p4v1::P4Runtime::Stub& stub() { return *stub_; }

    // Open the stream, say an election id, and return what the device answers.
    p4v1::MasterArbitrationUpdate arbitrate(std::optional<p4v1::Uint128> election_id, uint64_t device_id = kDevice);
    void send(const p4v1::MasterArbitrationUpdate& message);
    void send(const p4v1::PacketOut& packet);
    void send(const p4v1::StreamMessageRequest& message);
    // The next message; none: the stream has ended, and end() tells how.
    std::optional<p4v1::StreamMessageResponse> receive();
    grpc::Status end();
    void hang_up();

    // As the primary with the election id it has.
    grpc::Status set_pipeline(Config::Action action = Config::VERIFY_AND_COMMIT);
    grpc::Status set_pipeline(Config request);
    Config pipeline_request(Config::Action action) const;
    p4v1::WriteRequest write_request(const std::vector<p4v1::Update>& updates) const;
    grpc::Status write(const p4v1::WriteRequest& request);
    grpc::Status write(const std::vector<p4v1::Update>& updates) { return write(write_request(updates)); }
    // The code that one update comes to.
    grpc::StatusCode write_one(const p4v1::Update& update);
    // What a read gives, in order; `status` tells how it ended.
    std::vector<p4v1::Entity> read(const std::vector<p4v1::Entity>& wanted, grpc::Status* status = nullptr);
    std::vector<p4v1::TableEntry> read_entries(const p4v1::TableEntry& wanted, grpc::Status* status = nullptr);
    std::vector<p4v1::TableEntry> read_entries(uint32_t table_id, grpc::Status* status = nullptr);

  private:
    std::unique_ptr<p4v1::P4Runtime::Stub> stub_;
    std::unique_ptr<grpc::ClientContext> context_;
    std::unique_ptr<grpc::ClientReaderWriter<p4v1::StreamMessageRequest, p4v1::StreamMessageResponse>> stream_;
    p4v1::Uint128 election_id_;
};

// A device with its pipeline set by its primary controller.
class WithDevice : public ::testing::Test {
  protected:
    void SetUp() override;
    // The process dies; another one comes over what it leaves.
    void restart();

    Folder folder;
    SampleRate rate;
    std::unique_ptr<Device> device;
    std::unique_ptr<Controller> primary;
};

// Ids of p4src/common/ids.p4.
inline constexpr uint32_t kClassifierTable = 0x02000001, kAdmitTable = 0x02000002, kPuntTable = 0x02000003,
                          kIpv4Table = 0x02000004, kIpv6Table = 0x02000005, kGroupTable = 0x02000006,
                          kNexthopTable = 0x02000007, kInterfaceTable = 0x02000008, kEgressTable = 0x02000009,
                          kFallbackTable = 0x0200000a, kReasonTable = 0x0200000b, kPolicerTable = 0x0200000c,
                          kPuntClassTable = 0x0200000d;
inline constexpr uint32_t kSetRouterInterface = 0x01000001, kSetEgressRouterInterface = 0x01000002,
                          kUnknownInterface = 0x01000003, kAdmit = 0x01000004, kSetNexthop = 0x0100000a,
                          kSetNexthopGroup = 0x0100000b, kPuntLocal = 0x0100000c, kPuntGlean = 0x0100000d,
                          kPuntUnreachable = 0x0100000e, kBlackhole = 0x0100000f, kFallback = 0x01000010,
                          kSetMember = 0x01000011, kSetNeighbor = 0x01000012, kGleanNeighbor = 0x01000013,
                          kNeighborFailed = 0x01000014, kSetPort = 0x01000016, kRewrite = 0x01000018,
                          kSendToFallback = 0x01000019, kCountReason = 0x0100001b, kPolice = 0x0100001d;
inline constexpr uint32_t kProfile = 0x11000001;

}  // namespace splitplane::testing
