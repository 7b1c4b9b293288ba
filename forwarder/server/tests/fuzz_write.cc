// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer: WriteRequests. What they leave must be what the journal restores, and what a read gives must be accepted
// again. The input's first octet says whether the others are a request as a controller sends it, or choices from which
// requests are made that are nearly right: few ids, so that updates meet each other's entries, and now and then a wrong
// value, field or kind.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "engine/memory_engine.h"
#include "server/reading.h"
#include "server/schema.h"
#include "server/shares.h"
#include "server/writing.h"

namespace {

using namespace splitplane;

class Grace : public GracePeriods {
  public:
    void synchronize() override {}
};

constexpr Capacity kCapacity{.words = 1u << 14, .members = 1u << 12};

// The arrays are large: they are made once, and are left as they were found.
MemoryEngine& engine() {
    static MemoryEngine the_engine{kCapacity, 1};
    return the_engine;
}

struct Process {
    explicit Process(const std::filesystem::path& journal) : tables(engine().arrays(), grace, journal) {}
    ~Process() { tables.clear(); }
    Grace grace;
    Tables tables;
};

// Tables without a journal, which go on from one input to the next: these are cleared in between.
struct Kept {
    MemoryEngine engine{kCapacity, 1};
    Grace grace;
    Tables tables{engine.arrays(), grace};
};

const Schema& schema() {
    static const Schema the_schema;
    return the_schema;
}

// Everything that a controller can have written, members and groups first.
std::vector<p4::v1::Entity> everything(Tables& tables) {
    std::vector<p4::v1::Entity> entities;
    Reading reading(tables, schema(), engine(), [&](const p4::v1::ReadResponse& part) {
        entities.insert(entities.end(), part.entities().begin(), part.entities().end());
        return true;
    });
    p4::v1::Entity members, groups, samples, slices, routers;
    members.mutable_action_profile_member();
    groups.mutable_action_profile_group();
    samples.mutable_digest_entry();
    for (auto [entity, id] : {std::pair(&slices, kSliceShareId), std::pair(&routers, kRouterShareId)}) {
        entity->mutable_extern_entry()->set_extern_type_id(kSharesType);
        entity->mutable_extern_entry()->set_extern_id(id);
    }
    std::vector<p4::v1::Entity> all{members, groups, samples, slices, routers};
    for (const auto& table : schema().tables()) {
        if (table.kind != TableSchema::Kind::kConst) {
            auto& entries = *all.emplace_back().mutable_table_entry();
            entries.set_table_id(table.id);
            if (table.metered) {
                entries.mutable_meter_config();
            }
        }
    }
    for (const auto& wanted : all) {
        if (!reading.read(wanted).ok()) {
            std::abort();
        }
    }
    return entities;
}

bool same(const std::vector<p4::v1::Entity>& left, const std::vector<p4::v1::Entity>& right) {
    return left.size() == right.size() &&
           std::equal(left.begin(), left.end(), right.begin(), [](const auto& one, const auto& other) {
               return one.SerializeAsString() == other.SerializeAsString();
           });
}

// -- requests from choices -------------------------------------------------------------------------------------------
class Choices {
  public:
    Choices(const uint8_t* octets, size_t size) : at_(octets), end_(octets + size) {}
    bool more() const { return at_ != end_; }
    uint32_t below(uint32_t bound) { return more() ? *at_++ % bound : 0; }
    bool rarely() { return below(32) == 31; }

    std::string value() {
        static const char* const kOdd[] = {"", "\xff\xff\xff\xff\xff\xff\xff", "\x01\xff\xff\xff\xff"};
        if (rarely()) {
            return kOdd[below(3)];
        }
        return std::string(below(8) == 0, '\0') + static_cast<char>(1 + below(5));
    }

  private:
    const uint8_t* at_;
    const uint8_t* end_;
};

void choose_action(Choices& choices, const TableSchema& table, p4::v1::Action& action) {
    const auto& schemas = table.actions;
    const ActionSchema& schema = *schemas[choices.below(static_cast<uint32_t>(schemas.size()))].first;
    action.set_action_id(choices.rarely() ? 0x01000001 + choices.below(30) : schema.id);
    for (const auto& field : schema.params) {
        if (!choices.rarely()) {
            action.add_params()->set_param_id(field.id);
            action.mutable_params(action.params_size() - 1)->set_value(choices.value());
        }
    }
}

void choose_group_action(Choices& choices, const TableSchema& table, p4::v1::TableAction& action) {
    switch (choices.below(8)) {
        case 0:
            action.set_action_profile_member_id(choices.below(4));
            break;
        case 1:
            action.set_action_profile_group_id(choices.below(4));
            break;
        case 2:
            choose_action(choices, table, *action.mutable_action());
            break;
        default:
            for (uint32_t members = choices.below(5); members > 0; --members) {
                auto* one = action.mutable_action_profile_action_set()->add_action_profile_actions();
                choose_action(choices, table, *one->mutable_action());
                one->set_weight(static_cast<int32_t>(choices.below(130)) - choices.rarely());
            }
            action.mutable_action_profile_action_set();
    }
}

void choose_entry(Choices& choices, p4::v1::TableEntry& entry) {
    const auto& tables = schema().tables();
    const TableSchema& table = tables[choices.below(static_cast<uint32_t>(tables.size()))];
    entry.set_table_id(table.id);
    for (const auto& field : table.fields) {
        if (choices.rarely()) {
            continue;
        }
        auto* match = entry.add_match();
        match->set_field_id(field.id);
        if (table.kind == TableSchema::Kind::kRoutes && field.id == 2) {
            match->mutable_lpm()->set_value(choices.value() + std::string(choices.below(field.bits / 8), '\0'));
            match->mutable_lpm()->set_prefix_len(static_cast<int32_t>(choices.below(field.bits + 2)));
        } else {
            match->mutable_exact()->set_value(choices.value());
        }
    }
    if (table.selector) {
        choose_group_action(choices, table, *entry.mutable_action());
    } else if (!choices.rarely()) {
        choose_action(choices, table, *entry.mutable_action()->mutable_action());
    }
    if (choices.below(4) == 0) {
        entry.set_metadata(choices.value());
    }
    if (table.metered && choices.below(2) == 0) {
        entry.mutable_meter_config()->set_pir(choices.below(100));
        entry.mutable_meter_config()->set_pburst(static_cast<int64_t>(choices.below(100)) << choices.below(64));
    }
    entry.set_is_default_action(choices.rarely());
    entry.set_priority(choices.rarely());
}

void choose_share(Choices& choices, p4::v1::ExternEntry& entry) {
    entry.set_extern_type_id(kSharesType);
    entry.set_extern_id(kSliceShareId + choices.below(2 + choices.rarely()));
    p4::v1::P4Data data;
    for (uint32_t numbers = 4 + choices.below(2) - choices.rarely(); numbers > 0; --numbers) {
        data.mutable_struct_()->add_members()->set_bitstring(choices.value());
    }
    entry.mutable_entry()->PackFrom(data);
}

void choose_entity(Choices& choices, p4::v1::Entity& entity) {
    switch (choices.below(11)) {
        case 0: {
            auto& member = *entity.mutable_action_profile_member();
            member.set_action_profile_id(schema().profile_id());
            member.set_member_id(choices.below(4));
            choose_action(choices, schema().table(Table::kNexthopGroup), *member.mutable_action());
            break;
        }
        case 1: {
            auto& group = *entity.mutable_action_profile_group();
            group.set_action_profile_id(schema().profile_id());
            group.set_group_id(choices.below(4));
            group.set_max_size(static_cast<int32_t>(choices.below(4) * 100));
            for (uint32_t members = choices.below(4); members > 0; --members) {
                group.add_members()->set_member_id(choices.below(4));
                group.mutable_members(group.members_size() - 1)->set_weight(static_cast<int32_t>(choices.below(20)));
            }
            break;
        }
        case 2:
            choose_entry(choices, *entity.mutable_direct_counter_entry()->mutable_table_entry());
            entity.mutable_direct_counter_entry()->mutable_data()->set_packet_count(choices.below(100));
            break;
        case 3:
            choose_entry(choices, *entity.mutable_direct_meter_entry()->mutable_table_entry());
            entity.mutable_direct_meter_entry()->mutable_config()->set_pir(choices.below(100));
            break;
        case 4:
            choose_share(choices, *entity.mutable_extern_entry());
            break;
        default:
            choose_entry(choices, *entity.mutable_table_entry());
    }
}

p4::v1::WriteRequest choose_request(Choices choices) {
    p4::v1::WriteRequest request;
    while (choices.more() && request.updates_size() < 200) {
        auto* update = request.add_updates();
        update->set_type(static_cast<p4::v1::Update::Type>(1 + choices.below(3)));
        choose_entity(choices, *update->mutable_entity());
    }
    return request;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* octets, size_t size) {
    p4::v1::WriteRequest request;
    if (size > 0 && octets[0] % 8 != 0) {
        request = choose_request(Choices(octets + 1, size - 1));
    } else if (size == 0 || !request.ParseFromArray(octets + 1, static_cast<int>(size - 1))) {
        return 0;
    }
    static const std::filesystem::path journal =
        std::filesystem::temp_directory_path() / ("sp-fuzz-" + std::to_string(getpid()));
    std::filesystem::remove(journal);
    std::vector<p4::v1::Entity> before;
    {
        Process process(journal);
        std::vector<std::pair<size_t, Result>> refused;
        for (int position = 0; position < request.updates_size(); ++position) {
            Result result = write_update(process.tables, schema(), request.updates(position));
            if (!result.ok()) {
                refused.emplace_back(position, std::move(result));
            }
        }
        write_status(refused, static_cast<size_t>(request.updates_size()));
        process.tables.commit();
        before = everything(process.tables);
    }
    {
        Process after(journal);
        if (!same(everything(after.tables), before)) {
            std::fprintf(stderr, "the journal restores something else\n");
            std::abort();
        }
    }
    std::filesystem::remove(journal);
    static Kept again;
    for (const auto& entity : before) {
        p4::v1::Update update;
        update.set_type(p4::v1::Update::INSERT);
        *update.mutable_entity() = entity;
        Result result = write_update(again.tables, schema(), update);
        if (!result.ok() && result.code != Code::kResourceExhausted) {
            std::fprintf(stderr, "what was read is refused: %s\n", result.text.c_str());
            std::abort();
        }
    }
    again.tables.clear();
    again.tables.commit();
    return 0;
}
