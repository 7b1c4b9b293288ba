// SPDX-License-Identifier: Apache-2.0
#include "tables/tests/fixture.h"

#include <cstdlib>
#include <sstream>

namespace splitplane::testing {

Process::Process(const std::filesystem::path& journal, const TableLimits& limits)
    : tables(engine.arrays(), grace, journal, {}, limits) {}

Folder::Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "sp-tables-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) {
        throw std::runtime_error("no folder for tests");
    }
    path_ = name;
}

Folder::~Folder() {
    std::filesystem::remove_all(path_);
}

std::string Process::dump() {
    std::string text;
    dump_rows(text);
    dump_routes(text);
    if (tables.samples()) {
        text += "samples " + std::to_string(tables.samples()->max_timeout_ns) + ' ' +
                std::to_string(tables.samples()->max_list_size) + '\n';
    }
    text += "pipeline " + tables.pipeline() + " election " + std::to_string(tables.election().low);
    return text;
}

void Process::dump_rows(std::string& text) {
    std::ostringstream out;
    const Objects& objects = tables.objects();
    for (size_t table = 0; table < kTables; ++table) {
        for (const auto& [key, row] : tables.rows().of(static_cast<Table>(table)).rows()) {
            out << traits(static_cast<Table>(table)).name << ' ' << key.first << ' ' << key.second << " → "
                << static_cast<int>(row.action);
            for (uint64_t param : row.params) {
                out << ' ' << param;
            }
            for (const auto& member : row.more().members) {
                out << " member " << member.nexthop_id << '*' << member.weight;
            }
            if (row.more().meter) {
                out << " pir " << row.more().meter->pir;
            }
            Count count = tables.rows().of(static_cast<Table>(table)).count(key, row);
            out << " notes " << row.notes().metadata << ' ' << row.notes().controller_metadata << " count "
                << count.packets << '\n';
        }
    }
    for (const auto& [id, member] : tables.rows().profile().members()) {
        out << "member " << id << " → " << member.nexthop_id << " users " << member.users << '\n';
    }
    for (const auto& [id, group] : tables.rows().profile().groups()) {
        out << "group " << id << " size " << group.max_size << " users " << group.users;
        for (const auto& part : group.parts) {
            out << ' ' << part.member_id << '*' << part.weight;
        }
        out << '\n';
    }
    for (const auto& [key, row] : tables.rows().of(Table::kInterfaceClassifier).rows()) {
        out << "classifier word " << engine.arrays().classifier[sp_classifier_index(key.first, key.second)] << '\n';
    }
    for (const auto& [name, shares] : {std::pair("router", engine.arrays().router_shares),
                                       std::pair("slice", engine.arrays().slice_shares)}) {
        for (uint32_t slot = 0; slot < SP_VRFS; ++slot) {
            const sp_share& share = shares[slot];
            if (share.weight | share.guarantee | share.ceiling | share.slice) {
                out << name << " in slot " << slot << " has " << share.weight << ' ' << share.guarantee << ' '
                    << share.ceiling << " of slice " << share.slice << '\n';
            }
        }
    }
    for (size_t space = 0; space < kSpaces; ++space) {
        std::map<uint32_t, uint32_t> slots;
        objects.of(static_cast<Space>(space)).each([&](uint32_t slot, uint32_t id) { slots[slot] = id; });
        for (const auto& [slot, id] : slots) {
            out << objects.of(static_cast<Space>(space)).name() << ' ' << slot << " is " << id << '\n';
        }
    }
    text += out.str();
}

void Process::dump_routes(std::string& text) {
    std::ostringstream out;
    for (Family family : {Family::kIpv4, Family::kIpv6}) {
        Routes::Cursor cursor;
        tables.routes().visit(family, cursor, SIZE_MAX, [&](uint32_t vrf, const Prefix& prefix, uint32_t leaf) {
            RouteAction action = tables.routes().action_of(leaf);
            const Notes* notes = tables.routes().notes(vrf, family, prefix);
            out << "route " << vrf << ' ';
            for (uint8_t octet : prefix.address) {
                out << static_cast<int>(octet) << '.';
            }
            out << '/' << static_cast<int>(prefix.length) << " → " << action.kind << ' ' << action.object_id << ' '
                << (notes != nullptr ? notes->metadata : "") << '\n';
        });
    }
    text += out.str();
}

Prefix prefix4(uint32_t address, uint8_t length) {
    Prefix prefix;
    prefix.length = length;
    address &= length == 0 ? 0 : ~0u << (32 - length);
    for (int octet = 0; octet < 4; ++octet) {
        prefix.address[octet] = static_cast<uint8_t>(address >> (24 - 8 * octet));
    }
    return prefix;
}

Prefix prefix6(uint64_t high, uint8_t length) {
    Prefix prefix;
    prefix.length = length;
    high &= length == 0 ? 0 : ~uint64_t{0} << (64 - std::min<int>(length, 64));
    for (int octet = 0; octet < 8; ++octet) {
        prefix.address[octet] = static_cast<uint8_t>(high >> (56 - 8 * octet));
    }
    return prefix;
}

}  // namespace splitplane::testing
