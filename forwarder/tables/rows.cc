// SPDX-License-Identifier: Apache-2.0
#include "tables/rows.h"

#include <algorithm>

namespace splitplane {

namespace {

constexpr uint64_t kNsPerS = 1'000'000'000;
constexpr uint32_t kLeastBurst = 10, kBurstPart = 10;  // of samples: a tenth of a second, ten packets at least

uint32_t classifier_index(Key key) {
    return sp_classifier_index(id_of(key.first), id_of(key.second));
}

void set_policer(sp_policer& policer, uint64_t interval_ns, uint64_t tolerance_ns, uint32_t shares) {
    publish(policer.tolerance_ns, sp_u64{tolerance_ns});
    publish(policer.interval_ns, static_cast<sp_u32>(interval_ns));
    publish(policer.shares, sp_u32{shares});
}

// Packets a second, and at once; without either nothing passes.
void set_rate(sp_policer& policer, int64_t rate, int64_t burst, uint32_t shares = 1) {
    bool present = rate > 0 && burst > 0;
    uint64_t interval_ns = present ? kNsPerS / rate : 0;
    auto packets = static_cast<uint64_t>(std::max<int64_t>(burst, 1) - 1);
    bool endless = interval_ns != 0 && packets > (uint64_t{1} << 62) / interval_ns;
    set_policer(policer, interval_ns, endless ? uint64_t{1} << 62 : packets * interval_ns, present ? shares : 0);
}

// The place of a reason among the counters; none for a code that no packet has.
std::optional<uint32_t> reason_index(uint64_t code) {
    bool punt = code >= SP_PUNT_CONTROL && code <= SP_PUNT_HOP_BY_HOP;
    bool drop = code >= SP_FIRST_DROP && code <= SP_DROP_MALFORMED;
    return punt || drop ? std::optional(sp_reason_index(id_of(code))) : std::nullopt;
}

}  // namespace

Rows::Rows(sp_arrays& arrays, GracePeriods& grace, Objects& objects, SampleRate rate)
    : arrays_(arrays),
      objects_(objects),
      rate_(rate),
      blocks_({reinterpret_cast<uint64_t*>(arrays.members), arrays.member_count / kGroupMembersInUnit}, grace) {}

const Row* Rows::find(Table table, Key key) const {
    const auto& table_rows = rows(table);
    auto found = table_rows.find(key);
    return found == table_rows.end() ? nullptr : &found->second;
}

std::vector<Reference> Rows::references(Table table, Key key, const Row& row) const {
    switch (table) {
        case Table::kInterfaceClassifier:
            return {{Space::kRxCounter, classifier_index(key)},
                    {Space::kInterface, id_of(row.params[0])},
                    {Space::kVrf, id_of(row.params[1])}};
        case Table::kL3Admit:
        case Table::kRouterInterface:
        case Table::kRouterInterfaceEgress:
        case Table::kFallbackLink:
            return {{Space::kInterface, id_of(key.first)}};
        case Table::kNexthop:
            return {{Space::kNexthop, id_of(key.first)}, {Space::kInterface, id_of(row.params[0])}};
        case Table::kNexthopGroup: {
            std::vector<Reference> all{{Space::kGroup, id_of(key.first)}};
            for (const auto& member : row.more().members) {
                all.push_back({Space::kNexthop, member.nexthop_id});
            }
            return all;
        }
        case Table::kReason:
        case Table::kPolicer:
            return {{Space::kVrf, id_of(key.first)}};
    }
    return {};
}

Result Rows::put(Table table, Key key, Row row) {
    auto& table_rows = rows_[static_cast<size_t>(table)];
    auto found = table_rows.find(key);
    if (found == table_rows.end() && table_rows.size() >= limit(table)) {
        return {Code::kResourceExhausted,
                std::string(traits(table).name) + " is full: " + std::to_string(limit(table)) + " entries"};
    }
    auto wanted = references(table, key, row);
    Result result = objects_.acquire(wanted);
    if (!result.ok()) {
        return result;
    }
    result = store(table, key, row);
    if (!result.ok()) {
        objects_.release(wanted);
        return result;
    }
    use(row, 1);
    share(table, row, 1);
    if (found == table_rows.end()) {
        table_rows.emplace(key, std::move(row));
    } else {
        use(found->second, -1);
        share(table, found->second, -1);
        objects_.release(references(table, key, found->second));
        found->second = std::move(row);
    }
    return {};
}

void Rows::remove(Table table, Key key) {
    auto& table_rows = rows_[static_cast<size_t>(table)];
    auto found = table_rows.find(key);
    if (found == table_rows.end()) {
        return;
    }
    clear(table, key);
    use(found->second, -1);
    share(table, found->second, -1);
    objects_.release(references(table, key, found->second));
    table_rows.erase(found);
}

// Count who uses the action profile, and which way it is used.
void Rows::use(const Row& row, int users) {
    auto id = id_of(row.params[0]);
    if (row.action == Action::kOneShot) {
        one_shots_ += users;
    } else if (row.action == Action::kProfileMember) {
        members_.at(id).users += users;
    } else if (row.action == Action::kProfileGroup) {
        groups_.at(id).users += users;
    }
}

// -- into the arrays -------------------------------------------------------------------------------------------------
Result Rows::store(Table table, Key key, const Row& row) {
    const auto& params = row.params;
    switch (table) {
        case Table::kInterfaceClassifier: {
            bool ingress = row.action == Action::kSetRouterInterface;
            publish(arrays_.classifier[classifier_index(key)],
                    sp_classifier(ingress ? SP_CLASSIFIER_INGRESS : SP_CLASSIFIER_EGRESS,
                                  objects_.slot(Space::kVrf, id_of(params[1])),
                                  objects_.slot(Space::kInterface, id_of(params[0])),
                                  objects_.slot(Space::kRxCounter, classifier_index(key))));
            return {};
        }
        case Table::kL3Admit:
            return admit(objects_.slot(Space::kInterface, id_of(key.first)), key.second);
        case Table::kRouterInterface:
            publish(arrays_.egresses[objects_.slot(Space::kInterface, id_of(key.first))].port,
                    sp_port(id_of(params[0]), id_of(params[1]), id_of(params[2])) | (samples_ ? SP_SAMPLED : 0));
            return {};
        case Table::kRouterInterfaceEgress:
            publish(arrays_.egresses[objects_.slot(Space::kInterface, id_of(key.first))].rewrite,
                    SP_PRESENT | params[0]);
            return {};
        case Table::kFallbackLink:
            publish(arrays_.interfaces[objects_.slot(Space::kInterface, id_of(key.first))].fallback,
                    SP_FALLBACK_PRESENT | id_of(params[0]) << 12 | id_of(params[1]));
            return {};
        case Table::kNexthop: {
            auto kind = row.action == Action::kSetNeighbor     ? SP_NEXTHOP_FORWARD
                        : row.action == Action::kGleanNeighbor ? SP_NEXTHOP_GLEAN
                                                               : SP_NEXTHOP_FAILED;
            publish(arrays_.nexthops[objects_.slot(Space::kNexthop, id_of(key.first))],
                    sp_nexthop(kind, objects_.slot(Space::kInterface, id_of(params[0])),
                               kind == SP_NEXTHOP_FORWARD ? params[1] : 0));
            return {};
        }
        case Table::kNexthopGroup:
            return store_groups({objects_.slot(Space::kGroup, id_of(key.first))}, nexthops(row));
        case Table::kReason:
            if (auto index = reason_index(key.second)) {
                auto& counted = arrays_.vrfs[objects_.slot(Space::kVrf, id_of(key.first))].counted;
                publish(counted, counted | 1u << *index);
            }
            return {};
        case Table::kPolicer:
            police(key, row.more().meter);
            return {};
    }
    return {};
}

void Rows::clear(Table table, Key key) {
    auto interface = [&] { return objects_.slot(Space::kInterface, id_of(key.first)); };
    switch (table) {
        case Table::kInterfaceClassifier:
            publish(arrays_.classifier[classifier_index(key)], sp_u64{0});
            break;
        case Table::kL3Admit:
            for (sp_u64* mac : macs(interface())) {
                if (*mac == key.second) {
                    publish(*mac, sp_u64{0});
                }
            }
            break;
        case Table::kRouterInterface:
            publish(arrays_.egresses[interface()].port, sp_u64{0});
            break;
        case Table::kRouterInterfaceEgress:
            publish(arrays_.egresses[interface()].rewrite, sp_u64{0});
            break;
        case Table::kFallbackLink:
            publish(arrays_.interfaces[interface()].fallback, sp_u32{0});
            break;
        case Table::kNexthop:
            publish(arrays_.nexthops[objects_.slot(Space::kNexthop, id_of(key.first))], sp_u64{0});
            break;
        case Table::kNexthopGroup: {
            auto& group = arrays_.groups[objects_.slot(Space::kGroup, id_of(key.first))];
            sp_u64 before = group;
            publish(group, sp_u64{0});
            retire_group(before);
            break;
        }
        case Table::kReason:
            if (auto index = reason_index(key.second)) {
                auto& counted = arrays_.vrfs[objects_.slot(Space::kVrf, id_of(key.first))].counted;
                publish(counted, counted & ~(1u << *index));
            }
            break;
        case Table::kPolicer: {
            auto slot = objects_.slot(Space::kVrf, id_of(key.first));
            auto& policer = arrays_.policers[sp_policer_index(slot, id_of(key.second))];
            publish(policer.shares, sp_u32{0});
            break;
        }
    }
}

// Where the MACs are that a router interface admits.
std::array<sp_u64*, SP_INTERFACE_MACS> Rows::macs(uint32_t interface) const {
    std::array<sp_u64*, SP_INTERFACE_MACS> all = {&arrays_.macs[interface]};
    for (size_t at = 1; at < all.size(); ++at) {
        all[at] = &arrays_.interfaces[interface].more_macs[at - 1];
    }
    return all;
}

Result Rows::admit(uint32_t interface, uint64_t mac) {
    auto places = macs(interface);
    auto holds = [](sp_u64 wanted) { return [wanted](const sp_u64* place) { return *place == wanted; }; };
    if (std::any_of(places.begin(), places.end(), holds(mac))) {
        return {};
    }
    auto room = std::find_if(places.begin(), places.end(), holds(0));
    if (room == places.end()) {
        return {Code::kInvalidArgument, "l3_admit: a router interface admits at most " +
                                            std::to_string(SP_INTERFACE_MACS) + " MACs"};
    }
    publish(**room, sp_u64{mac});
    return {};
}

// Only red packets are dropped, and red is what exceeds the peak rate (RFC 2698): the committed one does not matter.
void Rows::police(Key key, const std::optional<Meter>& meter) {
    auto slot = objects_.slot(Space::kVrf, id_of(key.first));
    auto& policer = arrays_.policers[sp_policer_index(slot, id_of(key.second))];
    if (!meter) {
        set_policer(policer, 0, 0, shares(slot));
    } else {
        set_rate(policer, meter->pir, meter->pburst, shares(slot));
    }
}

// A router's way in more or less divides its policers anew.
void Rows::share(Table table, const Row& row, int ways_in) {
    if (table != Table::kInterfaceClassifier || row.action != Action::kSetRouterInterface) {
        return;
    }
    const auto vrf = objects_.slot(Space::kVrf, id_of(row.params[1]));
    ways_in_[vrf] += ways_in;
    for (uint32_t each = 0; each < SP_PUNT_CLASSES; ++each) {
        auto& policer = arrays_.policers[sp_policer_index(vrf, each)];
        if (policer.shares != 0) {
            publish(policer.shares, sp_u32{shares(vrf)});
        }
    }
}

// -- samples ---------------------------------------------------------------------------------------------------------
// Every way out says whether it is sampled: what a packet reads anyway. How is said before that.
void Rows::sample(std::optional<SampleDigest> digest) {
    {
        std::lock_guard guard(samples_mutex_);
        samples_ = digest;
    }
    auto& sampling = *arrays_.sampling;
    if (digest) {
        publish(sampling.threshold, static_cast<sp_u32>((uint64_t{1} << 32) / rate_.one_in - 1));
        set_rate(sampling.policer, rate_.per_s, std::max(kLeastBurst, rate_.per_s / kBurstPart));
    }
    for (const auto& [key, row] : rows(Table::kRouterInterface)) {
        store(Table::kRouterInterface, key, row);
    }
}

// -- counters --------------------------------------------------------------------------------------------------------
const sp_counter* Rows::counters(Table table, Key key, uint32_t& stride, uint32_t& index) const {
    stride = SP_INTERFACES;
    if (table == Table::kInterfaceClassifier) {
        index = objects_.slot(Space::kRxCounter, classifier_index(key));
        return arrays_.rx;
    }
    if (table == Table::kRouterInterfaceEgress) {
        index = objects_.slot(Space::kInterface, id_of(key.first));
        return arrays_.tx;
    }
    auto reason = reason_index(key.second);
    if (table != Table::kReason || !reason) {
        return nullptr;
    }
    stride = SP_VRFS * SP_REASONS;
    index = objects_.slot(Space::kVrf, id_of(key.first)) * SP_REASONS + *reason;
    return arrays_.reasons;
}

Count Rows::sum(Table table, Key key) const {
    uint32_t stride = 0, index = 0;
    const sp_counter* counter = counters(table, key, stride, index);
    Count total;
    for (uint32_t cpu = 0; counter != nullptr && cpu < arrays_.cpus; ++cpu) {
        const sp_counter& one = counter[size_t{cpu} * stride + index];
        total.packets += __atomic_load_n(&one.packets, __ATOMIC_RELAXED);
        total.bytes += __atomic_load_n(&one.bytes, __ATOMIC_RELAXED);
    }
    return total;
}

Count Rows::count(Table table, Key key, const Row& row) const {
    Count total = sum(table, key);
    return {total.packets - row.base.packets, total.bytes - row.base.bytes};
}

Count Rows::base_for(Table table, Key key, Count count) const {
    Count total = sum(table, key);
    return {total.packets - count.packets, total.bytes - count.bytes};
}

void Rows::set_base(Table table, Key key, Count base) {
    rows_[static_cast<size_t>(table)].at(key).base = base;
}

void Rows::adopt_base(Table table, Key key) {
    Count now = sum(table, key);
    Count& base = rows_[static_cast<size_t>(table)].at(key).base;
    if (static_cast<int64_t>(now.packets - base.packets) < 0 || static_cast<int64_t>(now.bytes - base.bytes) < 0) {
        base = now;
    }
}

}  // namespace splitplane
