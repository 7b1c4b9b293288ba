// SPDX-License-Identifier: Apache-2.0
//
// P4Runtime's RPCs. Locks, in the order in which they are taken: the tables' │ arbitration │ statistics.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>

#include "p4/v1/p4runtime.grpc.pb.h"
#include "server/arbitration.h"
#include "server/outbox.h"
#include "server/schema.h"
#include "server/server.h"

namespace splitplane {

// Write decodes its request itself, into an arena that is kept; the other RPCs have a thread each while they last.
class Service : public p4::v1::P4Runtime::WithRawCallbackMethod_Write<p4::v1::P4Runtime::Service> {
  public:
    Service(Tables& tables, Engine& engine, const ServerOptions& options);

    grpc::ServerUnaryReactor* Write(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                    grpc::ByteBuffer* response) override;
    grpc::Status Read(grpc::ServerContext* context, const p4::v1::ReadRequest* request,
                      grpc::ServerWriter<p4::v1::ReadResponse>* writer) override;
    grpc::Status SetForwardingPipelineConfig(grpc::ServerContext* context,
                                             const p4::v1::SetForwardingPipelineConfigRequest* request,
                                             p4::v1::SetForwardingPipelineConfigResponse* response) override;
    grpc::Status GetForwardingPipelineConfig(grpc::ServerContext* context,
                                             const p4::v1::GetForwardingPipelineConfigRequest* request,
                                             p4::v1::GetForwardingPipelineConfigResponse* response) override;
    grpc::Status StreamChannel(
        grpc::ServerContext* context,
        grpc::ServerReaderWriter<p4::v1::StreamMessageResponse, p4::v1::StreamMessageRequest>* stream) override;
    grpc::Status Capabilities(grpc::ServerContext* context, const p4::v1::CapabilitiesRequest* request,
                              p4::v1::CapabilitiesResponse* response) override;

    // A WriteRequest as octets, done; for Write, the fuzzer and the benchmark.
    grpc::Status write(const grpc::ByteBuffer& octets);
    grpc::Status write(const p4::v1::WriteRequest& request);

    // One stream, for StreamChannel and the fuzzer: what is said on it, and what waits to be sent. A status that is not
    // OK ends it.
    std::shared_ptr<Outbox> enter(Arbitration::Stream& id);
    grpc::Status serve(Arbitration::Stream id, const p4::v1::StreamMessageRequest& message, Outbox& outbox);
    void leave(Arbitration::Stream id);

    void punt(const Punt& punt);
    ServerStatistics statistics() const;

  private:
    using Config = p4::v1::SetForwardingPipelineConfigRequest;

    grpc::Status check_device(uint64_t device_id, const std::string& role, uint64_t role_id) const;
    // With the tables' lock held.
    grpc::Status check_primary(bool has_election_id, const p4::v1::Uint128& election_id) const;
    grpc::Status check_write(const p4::v1::WriteRequest& request) const;
    grpc::Status set_pipeline(const Config& request);
    grpc::Status apply_pipeline(const Config& request);
    grpc::Status check_pipeline(const Config& request) const;

    grpc::Status arbitrate(Arbitration::Stream id, const p4::v1::MasterArbitrationUpdate& message);
    void tell(const std::vector<Arbitration::Notice>& notices);
    bool push_sample(const Punt& sample, Outbox& outbox);
    void count_dropped(const Waiting& packet);
    uint64_t sample_time();
    Result send_packet(Arbitration::Stream id, const p4::v1::PacketOut& packet);

    template <typename Change>
    void count(Change change) {
        std::lock_guard guard(statistics_mutex_);
        change(statistics_);
    }
    void log(const std::string& line) const;

    Tables& tables_;
    Engine& engine_;
    const ServerOptions options_;
    const Schema schema_;
    std::optional<std::string> saved_pipeline_;  // by VERIFY_AND_SAVE; with the tables' lock

    mutable std::mutex arbitration_mutex_;
    Arbitration arbitration_;
    std::map<Arbitration::Stream, std::shared_ptr<Outbox>> outboxes_;
    std::atomic<Arbitration::Stream> last_stream_{0};
    std::atomic<uint64_t> last_sample_time_{0};
    std::atomic<size_t> open_streams_{0}, open_reads_{0};

    mutable std::mutex statistics_mutex_;
    ServerStatistics statistics_;
};

}  // namespace splitplane
