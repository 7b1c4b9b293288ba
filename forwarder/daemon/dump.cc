// SPDX-License-Identifier: Apache-2.0

#include "daemon/dump.h"

#include <arpa/inet.h>
#include <grpcpp/grpcpp.h>

#include <map>
#include <memory>
#include <vector>

#include "daemon/json.h"
#include "p4/v1/p4runtime.grpc.pb.h"

namespace splitplane {

namespace {

using p4::config::v1::MatchField;
using p4::config::v1::P4Info;
using p4::v1::TableEntry;

constexpr const char* kNoPipeline = "no controller has set the pipeline yet, so there are no tables";

struct Name {
    std::string text;
    int bits = 0;
};

// What the ids of a P4Info are called.
class Schema {
  public:
    explicit Schema(const P4Info& info) {
        for (const auto& table : info.tables()) {
            names_[table.preamble().id()] = table.preamble().alias();
            ids_[table.preamble().alias()] = table.preamble().id();
            for (const MatchField& field : table.match_fields()) {
                fields_[{table.preamble().id(), field.id()}] = {field.name(), field.bitwidth()};
            }
        }
        for (const auto& action : info.actions()) {
            names_[action.preamble().id()] = action.preamble().alias();
            for (const auto& parameter : action.params()) {
                fields_[{action.preamble().id(), parameter.id()}] = {parameter.name(), parameter.bitwidth()};
            }
        }
        for (const auto& counter : info.direct_counters()) counted_[counter.direct_table_id()] = true;
    }

    std::string name(uint32_t id) const { return names_.contains(id) ? names_.at(id) : std::to_string(id); }
    Name field(uint32_t owner, uint32_t id) const {
        const auto found = fields_.find({owner, id});
        return found == fields_.end() ? Name{std::to_string(id)} : found->second;
    }
    const std::map<std::string, uint32_t>& tables() const { return ids_; }
    bool counted(uint32_t table) const { return counted_.contains(table); }

  private:
    std::map<uint32_t, std::string> names_;
    std::map<std::string, uint32_t> ids_;
    std::map<std::pair<uint32_t, uint32_t>, Name> fields_;
    std::map<uint32_t, bool> counted_;
};

// A value as a person writes it: addresses, MACs, and numbers for the rest.
std::string shown(const Name& field, const std::string& value) {
    const size_t octets = static_cast<size_t>(field.bits + 7) / 8;
    std::string whole(octets > value.size() ? octets - value.size() : 0, '\0');
    whole += value;
    const bool address = field.text.ends_with("_dst") || field.text.starts_with("ip_");
    char text[INET6_ADDRSTRLEN] = "";
    if (address && (field.bits == 32 || field.bits == 128)) {
        inet_ntop(field.bits == 32 ? AF_INET : AF_INET6, whole.data(), text, sizeof(text));
        return text;
    }
    if (field.bits == 48) {
        std::string mac;
        for (const char octet : whole) {
            std::snprintf(text, sizeof(text), "%s%02x", mac.empty() ? "" : ":", static_cast<unsigned char>(octet));
            mac += text;
        }
        return mac;
    }
    uint64_t number = 0;
    for (const char octet : whole) number = number << 8 | static_cast<unsigned char>(octet);
    return std::to_string(number);
}

using Values = std::vector<std::pair<std::string, std::string>>;

// One entry in words.
struct EntryText {
    std::string table;
    Values match;
    std::vector<std::pair<std::string, Values>> actions;  // several of a one-shot group, each with its weight
    Values counted;
};

std::pair<std::string, Values> action_of(const Schema& schema, const p4::v1::Action& action) {
    Values values;
    for (const auto& parameter : action.params()) {
        const Name name = schema.field(action.action_id(), parameter.param_id());
        values.emplace_back(name.text, shown(name, parameter.value()));
    }
    return {schema.name(action.action_id()), values};
}

EntryText text_of(const Schema& schema, const TableEntry& entry) {
    EntryText text;
    text.table = schema.name(entry.table_id());
    for (const auto& match : entry.match()) {
        const Name name = schema.field(entry.table_id(), match.field_id());
        std::string value;
        if (match.has_exact()) value = shown(name, match.exact().value());
        if (match.has_lpm()) value = shown(name, match.lpm().value()) + "/" + std::to_string(match.lpm().prefix_len());
        if (match.has_ternary()) {
            value = shown(name, match.ternary().value()) + "&" + shown(name, match.ternary().mask());
        }
        text.match.emplace_back(name.text, value);
    }
    if (entry.priority() != 0) text.match.emplace_back("priority", std::to_string(entry.priority()));
    const auto& action = entry.action();
    if (action.has_action()) text.actions.push_back(action_of(schema, action.action()));
    for (const auto& one : action.action_profile_action_set().action_profile_actions()) {
        text.actions.push_back(action_of(schema, one.action()));
        text.actions.back().second.emplace_back("weight", std::to_string(one.weight()));
    }
    if (action.action_profile_member_id() != 0) {
        text.actions.push_back({"member", {{"id", std::to_string(action.action_profile_member_id())}}});
    }
    if (action.action_profile_group_id() != 0) {
        text.actions.push_back({"group", {{"id", std::to_string(action.action_profile_group_id())}}});
    }
    if (entry.has_counter_data()) {
        text.counted = {{"packets", std::to_string(entry.counter_data().packet_count())},
                       {"octets", std::to_string(entry.counter_data().byte_count())}};
    }
    return text;
}

std::string words(const Values& values) {
    std::string text;
    for (const auto& [name, value] : values) text += " " + name + "=" + value;
    return text;
}

std::string line_of(const EntryText& entry) {
    std::string text = entry.table + words(entry.match);
    const char* separator = " -> ";
    for (const auto& [name, values] : entry.actions) {
        text += separator + name + words(values);
        separator = " | ";
    }
    return entry.counted.empty() ? text : text + " ;" + words(entry.counted);
}

Json json_of(const Values& values) {
    Json::object_t object;
    for (const auto& [name, value] : values) add_key(object, name, value);
    return object;
}

Json json_of(const EntryText& entry) {
    Json actions = Json::array();
    for (const auto& [name, values] : entry.actions) {
        actions.push_back(Json{{"name", name}, {"parameters", json_of(values)}});
    }
    return {
        {"table", entry.table},
        {"match", json_of(entry.match)},
        {"actions", std::move(actions)},
        {"counter", entry.counted.empty() ? Json() : json_of(entry.counted)},
    };
}

// A connection to the forwarder of this machine.
class Client {
  public:
    Client(const std::string& address, uint64_t device_id) : device_id_(device_id) {
        grpc::ChannelArguments arguments;
        arguments.SetMaxReceiveMessageSize(-1);
        arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
        stub_ = p4::v1::P4Runtime::NewStub(
            grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
    }

    Schema schema() {
        grpc::ClientContext context;
        p4::v1::GetForwardingPipelineConfigRequest request;
        request.set_device_id(device_id_);
        request.set_response_type(p4::v1::GetForwardingPipelineConfigRequest::P4INFO_AND_COOKIE);
        p4::v1::GetForwardingPipelineConfigResponse response;
        checked(stub_->GetForwardingPipelineConfig(&context, request, &response));
        if (response.config().p4info().tables().empty()) throw DumpError(kNoPipeline);
        return Schema(response.config().p4info());
    }

    // Routes are counted by a forwarder that was told to, whatever the P4Info says; another one refuses all at once.
    template <typename Each>
    void read(uint32_t table, bool counted, const Each& each) {
        grpc::ClientContext context;
        p4::v1::ReadRequest request;
        request.set_device_id(device_id_);
        TableEntry* entry = request.add_entities()->mutable_table_entry();
        entry->set_table_id(table);
        if (counted) entry->mutable_counter_data();
        const auto reader = stub_->Read(&context, request);
        p4::v1::ReadResponse response;
        while (reader->Read(&response)) {
            for (const auto& entity : response.entities()) each(entity.table_entry());
        }
        const grpc::Status status = reader->Finish();
        if (counted && status.error_code() == grpc::StatusCode::UNIMPLEMENTED) return read(table, false, each);
        checked(status);
    }

  private:
    static void checked(const grpc::Status& status) {
        if (status.ok()) return;
        if (status.error_code() == grpc::StatusCode::FAILED_PRECONDITION) {
            throw DumpError(kNoPipeline);
        }
        throw DumpError("the forwarder refused: " + status.error_message());
    }

    uint64_t device_id_;
    std::unique_ptr<p4::v1::P4Runtime::Stub> stub_;
};

}  // namespace

void dump(const std::string& address, uint64_t device_id, const std::string& table, bool json, std::ostream& output) {
    Client client(address, device_id);
    const Schema schema = client.schema();
    if (!table.empty() && !schema.tables().contains(table)) {
        std::string known;
        for (const auto& [name, id] : schema.tables()) known += (known.empty() ? "" : ", ") + name;
        throw DumpError("there is no table `" + table + "`; there are " + known);
    }
    const char* separator = "[";
    for (const auto& [name, id] : schema.tables()) {
        if (!table.empty() && name != table) continue;
        client.read(id, schema.counted(id), [&](const TableEntry& entry) {
            const EntryText text = text_of(schema, entry);
            if (json) {
                output << separator << "\n" << json_text(json_of(text), -1);
                separator = ",";
            } else {
                output << line_of(text) << "\n";
            }
        });
    }
    if (json) output << (*separator == '[' ? "[" : "\n") << "]\n";
}

}  // namespace splitplane
