// SPDX-License-Identifier: Apache-2.0
//
// The unary RPCs and Read.
#include "server/service.h"

#include <grpcpp/support/proto_buffer_reader.h>

#include "google/rpc/status.pb.h"
#include "server/reading.h"
#include "server/writing.h"

namespace splitplane {

namespace {

constexpr const char* kApiVersion = "1.4.0";
constexpr size_t kArenaOctets = 4 << 20;  // a request of 1,000 routes takes 1 MiB
constexpr size_t kNamedStreams = 4;       // streams beyond those that arbitrate, which are refused by name

size_t index_of(const grpc::Status& status) {
    return std::min(static_cast<size_t>(status.error_code()), kCodes - 1);
}

// Counts who is there at once.
class Place {
  public:
    Place(std::atomic<size_t>& taken, size_t most) : taken_(taken), had_(taken.fetch_add(1) < most) {}
    ~Place() { --taken_; }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    bool had() const { return had_; }

  private:
    std::atomic<size_t>& taken_;
    bool had_;
};

std::optional<ElectionId> seen(ElectionId highest) {
    return highest == ElectionId{} ? std::nullopt : std::optional(highest);
}

}  // namespace

Service::Service(Tables& tables, Engine& engine, const ServerOptions& options)
    : tables_(tables),
      engine_(engine),
      options_(options),
      arbitration_(options.device_id, options.max_streams, seen(tables.election())) {
    if (const auto before = seen(tables.election()); before != arbitration_.highest()) {
        const auto lock = tables.lock();
        tables.set_election({});
        tables.commit();
        log("the election id " + text_of(*before) + " of the journal would lock every controller out: forgotten");
    }
}

void Service::log(const std::string& line) const {
    if (options_.log) {
        options_.log(line);
    }
}

// -- what every request is checked for, in the order of the specification ---------------------------------------------
grpc::Status Service::check_device(uint64_t device_id, const std::string& role, uint64_t role_id) const {
    if (device_id != options_.device_id) {
        return {grpc::NOT_FOUND, "no device " + std::to_string(device_id) + " here, only " +
                                     std::to_string(options_.device_id)};
    }
    if (!default_role(role, role_id)) {
        return {grpc::NOT_FOUND, "no role " + (role.empty() ? std::to_string(role_id) : role) +
                                     " here, only the default role"};
    }
    return {};
}

grpc::Status Service::check_primary(bool has_election_id, const p4::v1::Uint128& election_id) const {
    std::lock_guard guard(arbitration_mutex_);
    if (!has_election_id || !arbitration_.is_primary(election_id)) {
        return {grpc::PERMISSION_DENIED, "not the primary controller"};
    }
    return {};
}

// -- Write -----------------------------------------------------------------------------------------------------------
grpc::ServerUnaryReactor* Service::Write(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                         grpc::ByteBuffer* response) {
    auto* reactor = context->DefaultReactor();
    grpc::Status status = write(*request);
    bool own = false;
    if (status.ok()) {
        status = grpc::SerializationTraits<p4::v1::WriteResponse>::Serialize(p4::v1::WriteResponse(), response, &own);
    }
    reactor->Finish(status);
    return reactor;
}

grpc::Status Service::write(const grpc::ByteBuffer& octets) {
    // What a request takes is known from the one before it: nothing is allocated while routes are written.
    struct Room {
        std::unique_ptr<char[]> octets = std::make_unique<char[]>(kArenaOctets);
        google::protobuf::Arena arena{octets.get(), kArenaOctets};
    };
    thread_local Room room;
    auto* request = google::protobuf::Arena::CreateMessage<p4::v1::WriteRequest>(&room.arena);
    grpc::ByteBuffer buffer(octets);
    grpc::ProtoBufferReader reader(&buffer);
    grpc::Status status(grpc::INVALID_ARGUMENT, "not a WriteRequest");
    if (request->ParseFromZeroCopyStream(&reader)) {
        status = write(*request);
    } else {
        count([](auto& statistics) { ++statistics.writes[grpc::INVALID_ARGUMENT]; });
    }
    room.arena.Reset();
    return status;
}

grpc::Status Service::check_write(const p4::v1::WriteRequest& request) const {
    grpc::Status status = check_device(request.device_id(), request.role(), request.role_id());
    if (status.ok()) {
        status = check_primary(request.has_election_id(), request.election_id());
    }
    if (status.ok() && tables_.pipeline().empty()) {
        status = {grpc::FAILED_PRECONDITION, "there is no pipeline; set it first"};
    }
    if (status.ok() && request.atomicity() != p4::v1::WriteRequest::CONTINUE_ON_ERROR) {
        status = {grpc::UNIMPLEMENTED, p4::v1::WriteRequest::Atomicity_Name(request.atomicity()) +
                                           ": only CONTINUE_ON_ERROR is offered"};
    }
    return status;
}

grpc::Status Service::write(const p4::v1::WriteRequest& request) {
    std::vector<std::pair<size_t, Result>> refused;
    grpc::Status status;
    {
        auto lock = tables_.lock();
        status = check_write(request);
        if (status.ok()) {
            for (int position = 0; position < request.updates_size(); ++position) {
                Result result = write_update(tables_, schema_, request.updates(position));
                if (!result.ok()) {
                    refused.emplace_back(position, std::move(result));
                }
            }
            tables_.commit();
        }
    }
    bool attempted = status.ok();
    auto updates = static_cast<size_t>(request.updates_size());
    if (WriteStatus written = write_status(refused, updates); !written.ok) {
        status = grpc::Status(grpc::UNKNOWN, written.message, written.details);
    }
    count([&](auto& statistics) {
        ++statistics.writes[index_of(status)];
        if (attempted) {
            statistics.updates[0] += updates - refused.size();
            for (const auto& [position, result] : refused) {
                ++statistics.updates[static_cast<size_t>(result.code)];
            }
        }
    });
    return status;
}

// -- Read ------------------------------------------------------------------------------------------------------------
grpc::Status Service::Read(grpc::ServerContext*, const p4::v1::ReadRequest* request,
                           grpc::ServerWriter<p4::v1::ReadResponse>* writer) {
    Place place(open_reads_, options_.max_reads);
    grpc::Status status = check_device(request->device_id(), request->role(), 0);
    if (status.ok() && !place.had()) {
        status = {grpc::RESOURCE_EXHAUSTED, std::to_string(options_.max_reads) + " reads are under way already"};
    }
    if (auto lock = tables_.lock(); status.ok() && tables_.pipeline().empty()) {
        status = {grpc::FAILED_PRECONDITION, "there is no pipeline; set it first"};
    } else {
        tables_.settle_route_counts();
    }
    std::vector<std::pair<size_t, Result>> refused;
    Reading reading(tables_, schema_, engine_, [&](const auto& part) { return writer->Write(part); });
    for (int position = 0; status.ok() && position < request->entities_size() && !reading.cancelled(); ++position) {
        Result result = reading.read(request->entities(position));
        if (!result.ok()) {
            refused.emplace_back(position, std::move(result));
        }
    }
    if (reading.cancelled()) {
        status = {grpc::CANCELLED, "the controller has gone"};
    } else if (refused.size() == 1 && request->entities_size() == 1) {
        const Result& only = refused.front().second;
        auto details = write_status(refused, 1).details;
        status = grpc::Status(static_cast<grpc::StatusCode>(only.code), only.text, details);
    } else if (!refused.empty()) {
        WriteStatus all = write_status(refused, static_cast<size_t>(request->entities_size()));
        status = grpc::Status(grpc::UNKNOWN, refused.front().second.text, all.details);
    }
    count([&](auto& statistics) {
        ++statistics.reads[index_of(status)];
        statistics.entities_read += reading.entities();
    });
    return status;
}

// -- the pipeline ----------------------------------------------------------------------------------------------------
grpc::Status Service::SetForwardingPipelineConfig(grpc::ServerContext*, const Config* request,
                                                  p4::v1::SetForwardingPipelineConfigResponse*) {
    grpc::Status status = set_pipeline(*request);
    count([&](auto& statistics) { ++statistics.pipeline_configs[index_of(status)]; });
    if (!status.ok()) {
        log("a pipeline was refused: " + status.error_message());
    }
    return status;
}

grpc::Status Service::set_pipeline(const Config& request) {
    auto lock = tables_.lock();
    grpc::Status status = check_device(request.device_id(), request.role(), request.role_id());
    if (status.ok()) {
        status = check_primary(request.has_election_id(), request.election_id());
    }
    if (status.ok() && request.action() != Config::COMMIT) {
        status = check_pipeline(request);
    }
    if (status.ok()) {
        status = apply_pipeline(request);
    }
    return status;
}

grpc::Status Service::check_pipeline(const Config& request) const {
    if (!request.has_config() || !request.config().has_p4info()) {
        return {grpc::INVALID_ARGUMENT, Config::Action_Name(request.action()) + " needs a config with its P4Info"};
    }
    std::string difference = schema_.difference(request.config().p4info());
    if (!difference.empty()) {
        return {grpc::INVALID_ARGUMENT, "this device runs the pipeline splitplane alone; its P4Info differs: " +
                                            difference};
    }
    return {};
}

grpc::Status Service::apply_pipeline(const Config& request) {
    switch (request.action()) {
        case Config::VERIFY:
            return {};
        case Config::VERIFY_AND_SAVE:
            saved_pipeline_ = request.config().SerializeAsString();
            return {};
        case Config::VERIFY_AND_COMMIT:
            tables_.clear();
            tables_.set_pipeline(request.config().SerializeAsString());
            break;
        case Config::RECONCILE_AND_COMMIT:
            tables_.set_pipeline(request.config().SerializeAsString());
            break;
        case Config::COMMIT:
            // The pipeline is the same, so that what was written since it was saved is in force already.
            if (request.has_config()) {
                return {grpc::INVALID_ARGUMENT, "COMMIT takes the saved config and no other"};
            }
            if (!saved_pipeline_) {
                return {grpc::NOT_FOUND, "no config was saved"};
            }
            tables_.set_pipeline(std::move(*saved_pipeline_));
            break;
        default:
            return {grpc::INVALID_ARGUMENT, "no such action"};
    }
    saved_pipeline_.reset();
    tables_.commit();
    log("the pipeline was set: " + Config::Action_Name(request.action()));
    return {};
}

grpc::Status Service::GetForwardingPipelineConfig(grpc::ServerContext*,
                                                  const p4::v1::GetForwardingPipelineConfigRequest* request,
                                                  p4::v1::GetForwardingPipelineConfigResponse* response) {
    using Request = p4::v1::GetForwardingPipelineConfigRequest;
    grpc::Status status = check_device(request->device_id(), {}, 0);
    if (!status.ok()) {
        return status;
    }
    std::string pipeline;
    {
        auto lock = tables_.lock();
        pipeline = tables_.pipeline();
    }
    if (pipeline.empty()) {
        return {};
    }
    auto& config = *response->mutable_config();
    if (!config.ParseFromString(pipeline)) {
        return {grpc::INTERNAL, "the pipeline as kept cannot be read"};
    }
    auto kind = request->response_type();
    if (kind == Request::COOKIE_ONLY || kind == Request::DEVICE_CONFIG_AND_COOKIE) {
        config.clear_p4info();
    }
    if (kind == Request::COOKIE_ONLY || kind == Request::P4INFO_AND_COOKIE) {
        config.clear_p4_device_config();
    }
    return {};
}

grpc::Status Service::Capabilities(grpc::ServerContext*, const p4::v1::CapabilitiesRequest* request,
                                   p4::v1::CapabilitiesResponse* response) {
    if (request->device_id() != 0 && request->device_id() != options_.device_id) {
        return check_device(request->device_id(), {}, 0);
    }
    response->set_p4runtime_api_version(kApiVersion);
    return {};
}

// -- statistics ------------------------------------------------------------------------------------------------------
ServerStatistics Service::statistics() const {
    ServerStatistics statistics;
    {
        std::lock_guard guard(statistics_mutex_);
        statistics = statistics_;
    }
    {
        std::lock_guard guard(arbitration_mutex_);
        statistics.streams = arbitration_.streams();
        statistics.primary = arbitration_.primary().has_value();
        statistics.election = arbitration_.highest().value_or(ElectionId{});
    }
    statistics.route_samples_dropped = tables_.route_samples_dropped();
    auto lock = tables_.lock();
    for (const auto& table : schema_.tables()) {
        if (table.kind == TableSchema::Kind::kRoutes) {
            statistics.tables.push_back({route_table_name(table.family), tables_.routes().size(table.family),
                                         table.size});
        } else if (table.kind == TableSchema::Kind::kRows) {
            statistics.tables.push_back({traits(table.table).name, tables_.rows().of(table.table).rows().size(),
                                         tables_.rows().of(table.table).limit()});
        }
    }
    statistics.profile_members = tables_.rows().profile().members().size();
    statistics.profile_groups = tables_.rows().profile().groups().size();
    statistics.vrfs = tables_.objects().of(Space::kVrf).used();
    statistics.router_interfaces = tables_.objects().of(Space::kInterface).used();
    statistics.nexthops = tables_.objects().of(Space::kNexthop).used();
    statistics.groups = tables_.objects().of(Space::kGroup).used();
    statistics.routes = tables_.routes().memory();
    statistics.group_members = tables_.rows().profile().memory();
    statistics.journal = tables_.journal_status();
    return statistics;
}

// -- the stream ------------------------------------------------------------------------------------------------------
grpc::Status Service::StreamChannel(
    grpc::ServerContext* context,
    grpc::ServerReaderWriter<p4::v1::StreamMessageResponse, p4::v1::StreamMessageRequest>* stream) {
    Place place(open_streams_, options_.max_streams + kNamedStreams);
    if (!place.had()) {
        count([](auto& statistics) { ++statistics.streams_refused; });
        return {grpc::RESOURCE_EXHAUSTED, "too many streams are open"};
    }
    Arbitration::Stream id = 0;
    auto outbox = enter(id);
    std::thread sending([&] {
        bool more = false;
        while (auto message = outbox->pop(more)) {
            grpc::WriteOptions options;
            if (more) {
                options.set_buffer_hint();
            }
            if (!stream->Write(*message, options)) {
                break;
            }
        }
    });
    grpc::Status status;
    p4::v1::StreamMessageRequest message;
    while (status.ok() && stream->Read(&message)) {
        status = serve(id, message, *outbox);
    }
    leave(id);
    outbox->close();
    if (status.ok()) {
        context->TryCancel();  // a client that has gone, or closed its side, and does not read holds nobody up
    }
    sending.join();
    if (!status.ok()) {
        count([](auto& statistics) { ++statistics.streams_refused; });
        log("a stream was ended: " + status.error_message());
    }
    return status;
}

}  // namespace splitplane
