// SPDX-License-Identifier: Apache-2.0
#include "server/shares.h"

#include "server/decoding.h"
#include "server/encoding.h"

namespace splitplane {

namespace {

constexpr uint32_t kNumberBits = 32;

// Numbers of an entry by their names, in their order.
struct Layout {
    Table table;
    std::vector<FieldSchema> fields;
};

const Layout* layout_of(uint32_t extern_id) {
    const auto field = [](const char* name) { return FieldSchema{0, kNumberBits, name}; };
    static const Layout slice{Table::kSliceShare,
                              {field("slice_id"), field("weight"), field("guarantee"), field("ceiling")}};
    static const Layout router{
        Table::kRouterShare,
        {field("vrf_id"), field("slice_id"), field("weight"), field("guarantee"), field("ceiling")}};
    return extern_id == kSliceShareId ? &slice : extern_id == kRouterShareId ? &router : nullptr;
}

// The first `count` numbers of an entry.
Result decode_numbers(const Layout& layout, const p4::v1::ExternEntry& entry, size_t count,
                      std::vector<uint32_t>& numbers) {
    const char* name = traits(layout.table).name;
    p4::v1::P4Data data;
    if (!entry.entry().UnpackTo(&data) || static_cast<size_t>(data.struct_().members_size()) < count) {
        return refuse(Code::kInvalidArgument, name,
                      "its entry is a struct of " + std::to_string(layout.fields.size()) + " numbers");
    }
    for (size_t position = 0; position < count; ++position) {
        uint64_t number = 0;
        const auto& member = data.struct_().members(static_cast<int>(position));
        Result result = decode_value(layout.fields[position], member.bitstring(), number);
        if (!result.ok()) {
            return result;
        }
        numbers.push_back(static_cast<uint32_t>(number));
    }
    return {};
}

std::string most(const char* what, uint32_t value, uint32_t bound) {
    return std::string(what) + ' ' + std::to_string(value) + " is more than " + std::to_string(bound);
}

// What is wrong with a share, in a line that says what it may be; empty where nothing is.
std::string problem_of(const Share& share) {
    if (share.weight == 0 || share.weight > SP_SHARE_WEIGHTS) {
        return "weight " + std::to_string(share.weight) + " is not from 1 to " + std::to_string(SP_SHARE_WEIGHTS);
    }
    if (share.guarantee > SP_SHARE_WHOLE) {
        return most("guarantee", share.guarantee, SP_SHARE_WHOLE) + ", the whole";
    }
    if (share.ceiling > SP_SHARE_WHOLE) {
        return most("ceiling", share.ceiling, SP_SHARE_WHOLE) + ", the whole";
    }
    if (share.ceiling != 0 && share.ceiling < share.guarantee) {
        return "ceiling " + std::to_string(share.ceiling) + " is less than guarantee " +
               std::to_string(share.guarantee) + "; 0 is none";
    }
    return {};
}

void add_number(uint64_t number, p4::v1::P4Data& data) {
    encode_value(number, *data.mutable_struct_()->add_members()->mutable_bitstring());
}

void pack(uint32_t extern_id, const p4::v1::P4Data& data, p4::v1::ExternEntry& entry) {
    entry.set_extern_type_id(kSharesType);
    entry.set_extern_id(extern_id);
    entry.mutable_entry()->PackFrom(data);
}

}  // namespace

Result write_share(Tables& tables, Op op, const p4::v1::ExternEntry& entry) {
    const Layout* layout = entry.extern_type_id() == kSharesType ? layout_of(entry.extern_id()) : nullptr;
    if (layout == nullptr) {
        return {Code::kNotFound, "no extern " + std::to_string(entry.extern_id()) + " of type " +
                                     std::to_string(entry.extern_type_id()) + " can be written"};
    }
    std::vector<uint32_t> numbers;
    Result result = decode_numbers(*layout, entry, op == Op::kErase ? 1 : layout->fields.size(), numbers);
    if (!result.ok()) {
        return result;
    }
    const char* name = traits(layout->table).name;
    if (numbers[0] == 0) {
        return refuse(Code::kInvalidArgument, name, layout->fields[0].name + " 0 is nobody's");
    }
    if (op == Op::kErase) {
        return tables.write_row(op, layout->table, {numbers[0]}, {});
    }
    const size_t first = numbers.size() - 3;
    const Share share{numbers[first], numbers[first + 1], numbers[first + 2]};
    if (const std::string problem = problem_of(share); !problem.empty()) {
        return refuse(Code::kInvalidArgument, std::string(name) + ' ' + std::to_string(numbers[0]), problem);
    }
    RowWrite row;
    row.action = Action::kShare;
    row.params = share_params(share, layout->table == Table::kRouterShare ? numbers[1] : 0);
    return tables.write_row(op, layout->table, {numbers[0]}, std::move(row));
}

void encode_share(Table table, Key key, const Row& row, p4::v1::ExternEntry& entry) {
    p4::v1::P4Data data;
    const Share share = share_of(row);
    add_number(key.first, data);
    if (table == Table::kRouterShare) {
        add_number(slice_of(row), data);
    }
    for (const uint32_t number : {share.weight, share.guarantee, share.ceiling}) {
        add_number(number, data);
    }
    pack(table == Table::kRouterShare ? kRouterShareId : kSliceShareId, data, entry);
}

void encode_share_use(uint32_t vrf_id, const ShareUse& use, p4::v1::ExternEntry& entry) {
    p4::v1::P4Data data;
    for (const uint64_t number : {uint64_t{vrf_id}, use.core_ns, use.over_share_core, use.over_share_link}) {
        add_number(number, data);
    }
    pack(kShareUseId, data, entry);
}

}  // namespace splitplane
