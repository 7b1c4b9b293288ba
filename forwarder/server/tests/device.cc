// SPDX-License-Identifier: Apache-2.0
#include "server/tests/device.h"

#include <arpa/inet.h>
#include <google/protobuf/text_format.h>
#include <unistd.h>

#include <cstdlib>

#include "google/rpc/status.pb.h"
#include "server/encoding.h"
#include "server/golden.h"

namespace splitplane::testing {

namespace {

constexpr Capacity kSmall{.words = 1u << 21, .members = 1u << 19};

// Client and server in one process share gRPC 1.51's epoll set, and now and then nobody waits on it: a transfer then
// stands still until the keepalive. Between processes this was never seen.
const bool kPolls = setenv("GRPC_POLL_STRATEGY", "poll", 0) == 0;

}  // namespace

Folder::Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "sp-server-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) {
        throw std::runtime_error("no folder for tests");
    }
    path_ = name;
}

Folder::~Folder() {
    std::filesystem::remove_all(path_);
}

Device::Device(const std::filesystem::path& folder, ServerOptions options, SampleRate rate)
    : address_("unix:" + (folder / "p4rt.sock").string()),
      engine_(std::make_unique<MemoryEngine>(kSmall)),
      grace_(std::make_unique<EngineGrace>(*engine_)),
      tables_(std::make_unique<Tables>(engine_->arrays(), *grace_, folder / "journal", rate)) {
    options.log = [this](const std::string& line) {
        std::lock_guard guard(mutex_);
        log_.push_back(line);
    };
    server_ = std::make_unique<P4RuntimeServer>(*tables_, *engine_, std::move(options));
    server_->start({{address_, grpc::InsecureServerCredentials()}});
    engine_->activate({{1, "eth1"}, {2, "eth2"}});
}

Device::~Device() = default;

std::shared_ptr<grpc::Channel> Device::connect() const {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_MAX_METADATA_SIZE, 1 << 20);
    return grpc::CreateCustomChannel(address_, grpc::InsecureChannelCredentials(), arguments);
}

std::vector<std::string> Device::log() const {
    std::lock_guard guard(mutex_);
    return log_;
}

// -- messages --------------------------------------------------------------------------------------------------------
p4::config::v1::P4Info golden() {
    p4::config::v1::P4Info info;
    google::protobuf::TextFormat::ParseFromString(std::string(golden_p4info()), &info);
    return info;
}

p4v1::Uint128 election(uint64_t low, uint64_t high) {
    p4v1::Uint128 id;
    id.set_high(high);
    id.set_low(low);
    return id;
}

std::string value(uint64_t number) {
    std::string octets;
    encode_value(number, octets);
    return octets;
}

p4v1::Action action(uint32_t action_id, std::vector<uint64_t> params) {
    p4v1::Action action;
    action.set_action_id(action_id);
    for (size_t position = 0; position < params.size(); ++position) {
        auto* param = action.add_params();
        param->set_param_id(static_cast<uint32_t>(position + 1));
        param->set_value(value(params[position]));
    }
    return action;
}

p4v1::TableEntry key_of(uint32_t table_id, std::vector<uint64_t> fields) {
    p4v1::TableEntry entry;
    entry.set_table_id(table_id);
    for (size_t position = 0; position < fields.size(); ++position) {
        auto* match = entry.add_match();
        match->set_field_id(static_cast<uint32_t>(position + 1));
        match->mutable_exact()->set_value(value(fields[position]));
    }
    return entry;
}

p4v1::TableEntry entry(uint32_t table_id, std::vector<uint64_t> fields, uint32_t action_id,
                       std::vector<uint64_t> params) {
    p4v1::TableEntry entry = key_of(table_id, std::move(fields));
    *entry.mutable_action()->mutable_action() = action(action_id, std::move(params));
    return entry;
}

p4v1::TableEntry route_key(uint64_t vrf_id, const std::string& prefix) {
    size_t slash = prefix.find('/');
    bool ipv6 = prefix.find(':') != std::string::npos;
    std::string address(ipv6 ? 16 : 4, '\0');
    inet_pton(ipv6 ? AF_INET6 : AF_INET, prefix.substr(0, slash).c_str(), address.data());
    address.erase(0, std::min(address.find_first_not_of('\0'), address.size() - 1));
    p4v1::TableEntry entry = key_of(ipv6 ? kIpv6Table : kIpv4Table, {vrf_id});
    if (int length = std::stoi(prefix.substr(slash + 1)); length > 0) {
        auto* match = entry.add_match();
        match->set_field_id(2);
        match->mutable_lpm()->set_value(address);
        match->mutable_lpm()->set_prefix_len(length);
    }
    return entry;
}

p4v1::TableEntry route(uint64_t vrf_id, const std::string& prefix, uint32_t action_id, std::vector<uint64_t> params) {
    p4v1::TableEntry entry = route_key(vrf_id, prefix);
    *entry.mutable_action()->mutable_action() = action(action_id, std::move(params));
    return entry;
}

p4v1::TableEntry group(uint64_t group_id, std::vector<std::pair<uint64_t, int>> members) {
    p4v1::TableEntry entry = key_of(kGroupTable, {group_id});
    auto* set = entry.mutable_action()->mutable_action_profile_action_set();
    for (const auto& [nexthop_id, weight] : members) {
        auto* one = set->add_action_profile_actions();
        *one->mutable_action() = action(kSetMember, {nexthop_id});
        one->set_weight(weight);
    }
    return entry;
}

p4v1::Update update(p4v1::Update::Type type, const p4v1::Entity& entity) {
    p4v1::Update update;
    update.set_type(type);
    *update.mutable_entity() = entity;
    return update;
}

std::vector<p4v1::Error> errors_of(const grpc::Status& status) {
    google::rpc::Status details;
    EXPECT_TRUE(details.ParseFromString(status.error_details()));
    EXPECT_EQ(details.code(), status.error_code());
    std::vector<p4v1::Error> errors;
    for (const auto& detail : details.details()) {
        EXPECT_TRUE(detail.UnpackTo(&errors.emplace_back()));
    }
    return errors;
}

// -- a controller ----------------------------------------------------------------------------------------------------
Controller::Controller(const Device& device) : stub_(p4v1::P4Runtime::NewStub(device.connect())) {}

Controller::~Controller() {
    hang_up();
}

p4v1::MasterArbitrationUpdate Controller::arbitrate(std::optional<p4v1::Uint128> election_id, uint64_t device_id) {
    p4v1::MasterArbitrationUpdate message;
    message.set_device_id(device_id);
    if (election_id) {
        election_id_ = *election_id;
        *message.mutable_election_id() = *election_id;
    }
    send(message);
    auto answer = receive();
    return answer ? answer->arbitration() : p4v1::MasterArbitrationUpdate();
}

void Controller::send(const p4v1::MasterArbitrationUpdate& message) {
    p4v1::StreamMessageRequest request;
    *request.mutable_arbitration() = message;
    send(request);
}

void Controller::send(const p4v1::PacketOut& packet) {
    p4v1::StreamMessageRequest request;
    *request.mutable_packet() = packet;
    send(request);
}

void Controller::send(const p4v1::StreamMessageRequest& message) {
    if (!stream_) {
        context_ = std::make_unique<grpc::ClientContext>();
        stream_ = stub_->StreamChannel(context_.get());
    }
    stream_->Write(message);
}

std::optional<p4v1::StreamMessageResponse> Controller::receive() {
    p4v1::StreamMessageResponse message;
    return stream_->Read(&message) ? std::optional(message) : std::nullopt;
}

grpc::Status Controller::end() {
    grpc::Status status = stream_->Finish();
    stream_.reset();
    return status;
}

void Controller::hang_up() {
    if (stream_) {
        context_->TryCancel();
        end();
    }
}

Config Controller::pipeline_request(Config::Action action) const {
    Config request;
    request.set_device_id(kDevice);
    *request.mutable_election_id() = election_id_;
    request.set_action(action);
    if (action != Config::COMMIT) {
        *request.mutable_config()->mutable_p4info() = golden();
        request.mutable_config()->set_p4_device_config("device config");
        request.mutable_config()->mutable_cookie()->set_cookie(4711);
    }
    return request;
}

grpc::Status Controller::set_pipeline(Config::Action action) {
    return set_pipeline(pipeline_request(action));
}

grpc::Status Controller::set_pipeline(Config request) {
    grpc::ClientContext context;
    p4v1::SetForwardingPipelineConfigResponse response;
    return stub_->SetForwardingPipelineConfig(&context, request, &response);
}

p4v1::WriteRequest Controller::write_request(const std::vector<p4v1::Update>& updates) const {
    p4v1::WriteRequest request;
    request.set_device_id(kDevice);
    *request.mutable_election_id() = election_id_;
    for (const auto& one : updates) {
        *request.add_updates() = one;
    }
    return request;
}

grpc::Status Controller::write(const p4v1::WriteRequest& request) {
    grpc::ClientContext context;
    p4v1::WriteResponse response;
    return stub_->Write(&context, request, &response);
}

grpc::StatusCode Controller::write_one(const p4v1::Update& update) {
    grpc::Status status = write({update});
    if (status.ok()) {
        return grpc::OK;
    }
    EXPECT_EQ(status.error_code(), grpc::UNKNOWN) << status.error_message();
    auto errors = errors_of(status);
    EXPECT_EQ(errors.size(), 1u);
    return errors.empty() ? grpc::UNKNOWN : static_cast<grpc::StatusCode>(errors[0].canonical_code());
}

std::vector<p4v1::Entity> Controller::read(const std::vector<p4v1::Entity>& wanted, grpc::Status* status) {
    p4v1::ReadRequest request;
    request.set_device_id(kDevice);
    for (const auto& one : wanted) {
        *request.add_entities() = one;
    }
    grpc::ClientContext context;
    auto reader = stub_->Read(&context, request);
    std::vector<p4v1::Entity> entities;
    for (p4v1::ReadResponse response; reader->Read(&response);) {
        entities.insert(entities.end(), response.entities().begin(), response.entities().end());
    }
    grpc::Status ended = reader->Finish();
    if (status == nullptr) {
        EXPECT_TRUE(ended.ok()) << ended.error_message();
    } else {
        *status = ended;
    }
    return entities;
}

std::vector<p4v1::TableEntry> Controller::read_entries(const p4v1::TableEntry& wanted, grpc::Status* status) {
    std::vector<p4v1::TableEntry> entries;
    for (const auto& one : read({entity(wanted)}, status)) {
        entries.push_back(one.table_entry());
    }
    return entries;
}

std::vector<p4v1::TableEntry> Controller::read_entries(uint32_t table_id, grpc::Status* status) {
    return read_entries(key_of(table_id, {}), status);
}

void WithDevice::SetUp() {
    device = std::make_unique<Device>(folder.path(), ServerOptions{.device_id = kDevice}, rate);
    primary = std::make_unique<Controller>(*device);
    ASSERT_EQ(primary->arbitrate(election(1)).status().code(), grpc::OK);
    ASSERT_TRUE(primary->set_pipeline().ok());
}

void WithDevice::restart() {
    primary->hang_up();
    primary.reset();
    device.reset();
    device = std::make_unique<Device>(folder.path(), ServerOptions{.device_id = kDevice}, rate);
    primary = std::make_unique<Controller>(*device);
    ASSERT_EQ(primary->arbitrate(election(1)).status().code(), grpc::OK);
}

}  // namespace splitplane::testing
