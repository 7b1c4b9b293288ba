// SPDX-License-Identifier: Apache-2.0

#include "engine/xdp/object.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <utility>

#include "engine/xdp/privileges.h"

namespace splitplane {
namespace {

alignas(8) constexpr uint8_t kProgram[] = {
#include "engine/xdp/program.inc"
};

constexpr std::array kCounters = {"map_rx", "map_tx", "map_reasons", "map_engine", "map_core_routers"};
// As long as these, but they begin anew with each process.
constexpr std::array kByCpu = {"map_cores", "map_core_slices"};
// BTF names a section's map after the object, cut to the kernel's 15 characters.
constexpr const char* kFixed = ".bss";

// What libbpf complains of while one thread loads: its first line, and all that the kernel's verifier said.
std::mutex loading;
std::string complaint, verifier_log;

int take_complaint(enum libbpf_print_level level, const char* format, va_list arguments) {
    char* text = nullptr;
    if (level != LIBBPF_WARN || ::vasprintf(&text, format, arguments) < 0) return 0;
    const std::string said = text;
    std::free(text);
    if (said.find("BEGIN PROG LOAD LOG") != std::string::npos) {
        verifier_log = said;
    } else if (complaint.empty()) {
        complaint = said.substr(0, said.find('\n'));
    }
    return 0;
}

// The line before the verifier's statistics; none where this is not its log.
std::string verdict_in(const std::string& log) {
    const size_t end = log.find("\nprocessed ");
    if (end == std::string::npos || end == 0) return {};
    const size_t before = log.rfind('\n', end - 1);
    return before == std::string::npos ? std::string() : log.substr(before + 1, end - before - 1);
}

std::string remedy(int error) {
    if (error == EPERM || error == EACCES) {
        return permission_remedy();
    }
    if (error == ENOMEM) return "there is not enough memory: lower the capacity";
    return "it needs kernel 6.1 or later";
}

std::string pin_path(const std::string& pins, const char* name) {
    return pins + "/" + name + "-" + std::to_string(SP_LAYOUT);
}

}  // namespace

void XdpObject::Close::operator()(bpf_object* object) const { bpf_object__close(object); }

void XdpObject::Unmap::operator()(void* memory) const { ::munmap(memory, octets); }

std::span<const uint8_t> XdpObject::forwarding_program() { return kProgram; }

XdpObject::XdpObject(std::span<const uint8_t> elf, const Capacity& capacity, const std::string& pins, bool frags)
    : pins_(pins) {
    const std::lock_guard guard(loading);
    const auto earlier = libbpf_set_print(take_complaint);
    complaint.clear();
    verifier_log.clear();
    bpf_object_open_opts options{};
    options.sz = sizeof options;
    options.object_name = "vr_forwarder";
    object_.reset(bpf_object__open_mem(elf.data(), elf.size(), &options));
    int error = object_ ? 0 : errno;
    if (error == 0) {
        size_maps(capacity);
        if (frags) take_frags();
        counters_taken_over_ = !pins_.empty() && take_over();
        error = -bpf_object__load(object_.get());
    }
    libbpf_set_print(earlier);
    if (const std::string verdict = verdict_in(verifier_log); error != 0 && !verdict.empty()) {
        // Without CAP_PERFMON it is stricter.
        throw VerifierRefused(verdict + (privileged() ? "" : "; " + permission_remedy()), std::move(verifier_log));
    }
    if (error != 0) {
        throw EngineError("the kernel does not load the XDP program: " + error_text(error) + "; " + remedy(error) +
                          (complaint.empty() ? "" : " (" + complaint + ")"));
    }
    if (!pins_.empty() && !counters_taken_over_) pin_counters();
    fixed_ = static_cast<sp_fixed*>(map_memory(kFixed));
    arrays_.classifier = static_cast<sp_u64*>(map_memory("map_classifier"));
    arrays_.words = static_cast<sp_u32*>(map_memory("map_words"));
    arrays_.members = static_cast<sp_u16*>(map_memory("map_members"));
    arrays_.policers = static_cast<sp_policer*>(map_memory("map_policers"));
    arrays_.share_dues = static_cast<sp_u64*>(map_memory("map_shares"));
    arrays_.punt_drops = static_cast<sp_u64*>(map_memory("map_punt_drops"));
    arrays_.rx = static_cast<sp_counter*>(map_memory("map_rx"));
    arrays_.tx = static_cast<sp_counter*>(map_memory("map_tx"));
    arrays_.reasons = static_cast<sp_counter*>(map_memory("map_reasons"));
    arrays_.engine_counters = static_cast<sp_u64*>(map_memory("map_engine"));
    arrays_.cores = static_cast<sp_core*>(map_memory("map_cores"));
    arrays_.core_routers = static_cast<sp_core_router*>(map_memory("map_core_routers"));
    arrays_.core_slices = static_cast<sp_core_slice*>(map_memory("map_core_slices"));
    arrays_.links = static_cast<sp_link*>(map_memory("map_links"));
    arrays_.link_slices = static_cast<sp_link_slice*>(map_memory("map_link_slices"));
    arrays_.link_routers = static_cast<sp_link_router*>(map_memory("map_link_routers"));
    arrays_.link_credits = static_cast<sp_link_credit*>(map_memory("map_link_credits"));
    arrays_.macs = fixed_->macs;
    arrays_.egresses = fixed_->egresses;
    arrays_.interfaces = fixed_->interfaces;
    for (size_t family = 0; family < SP_FAMILIES; ++family) arrays_.roots[family] = fixed_->roots[family];
    arrays_.vrfs = fixed_->vrfs;
    arrays_.groups = fixed_->groups;
    arrays_.nexthops = fixed_->nexthops;
    arrays_.router_shares = fixed_->router_shares;
    arrays_.slice_shares = fixed_->slice_shares;
    arrays_.link_modes = fixed_->link_modes;
    arrays_.link_slots = fixed_->link_slots;
    arrays_.sampling = &fixed_->sampling;
    arrays_.ports_down = fixed_->ports_down;
    arrays_.hash_seed = &fixed_->hash_seed;
    arrays_.word_count = capacity.words;
    arrays_.member_count = bpf_map__max_entries(find("map_members")) * SP_MEMBERS_TOGETHER;
    arrays_.cpus = bpf_map__max_entries(find("map_rx"));
}

XdpObject::~XdpObject() = default;

bpf_map* XdpObject::find(const char* name) const {
    if (bpf_map* map = bpf_object__find_map_by_name(object_.get(), name)) return map;
    throw EngineError(std::string("the BPF object has no map ") + name);
}

int XdpObject::program(const char* name) const {
    const bpf_program* program = bpf_object__find_program_by_name(object_.get(), name);
    if (program == nullptr) throw EngineError(std::string("the BPF object has no program ") + name);
    return bpf_program__fd(program);
}

int XdpObject::map(const char* name) const { return bpf_map__fd(find(name)); }

int XdpObject::fixed_map() const { return map(kFixed); }

void XdpObject::take_frags() {
    bpf_program* program = nullptr;
    bpf_object__for_each_program(program, object_.get()) {
        bpf_program__set_flags(program, bpf_program__flags(program) | BPF_F_XDP_HAS_FRAGS);
    }
}

void XdpObject::size_maps(const Capacity& capacity) {
    const auto cpus = static_cast<uint32_t>(libbpf_num_possible_cpus());
    for (const char* name : kCounters) bpf_map__set_max_entries(find(name), cpus);
    for (const char* name : kByCpu) bpf_map__set_max_entries(find(name), cpus);
    bpf_map__set_max_entries(find("map_link_credits"), cpus);
    bpf_map__set_max_entries(find("map_words"), (capacity.words + SP_WORDS_CHUNK - 1) / SP_WORDS_CHUNK);
    bpf_map__set_max_entries(find("map_members"), (capacity.members + SP_MEMBERS_TOGETHER - 1) / SP_MEMBERS_TOGETHER);
}

// All of them or none: counters of different ages would not add up.
bool XdpObject::take_over() {
    std::array<Descriptor, kCounters.size()> found;
    for (size_t index = 0; index < kCounters.size(); ++index) {
        const bpf_map* map = find(kCounters[index]);
        found[index] = Descriptor(bpf_obj_get(pin_path(pins_, kCounters[index]).c_str()));
        bpf_map_info facts{};
        uint32_t size = sizeof facts;
        if (!found[index] || bpf_obj_get_info_by_fd(found[index].get(), &facts, &size) != 0 ||
            facts.value_size != bpf_map__value_size(map) || facts.max_entries != bpf_map__max_entries(map)) {
            return false;
        }
    }
    for (size_t index = 0; index < kCounters.size(); ++index) {
        if (bpf_map__reuse_fd(find(kCounters[index]), found[index].get()) != 0) return false;
    }
    return true;
}

void XdpObject::pin_counters() const {
    for (const char* name : kCounters) {
        const std::string path = pin_path(pins_, name);
        ::unlink(path.c_str());
        if (bpf_obj_pin(map(name), path.c_str()) != 0) {
            throw EngineError("cannot pin counters as " + path + ": " + error_text(errno));
        }
    }
}

void XdpObject::drop_other_counters() const {
    if (pins_.empty()) return;
    for (const auto& entry : std::filesystem::directory_iterator(pins_)) {
        const std::string path = entry.path();
        for (const char* name : kCounters) {
            if (path.starts_with(pins_ + "/" + name + "-") && path != pin_path(pins_, name)) ::unlink(path.c_str());
        }
    }
}

void* XdpObject::map_memory(const char* name) {
    const bpf_map* map = find(name);
    const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    size_t octets = (size_t{bpf_map__value_size(map)} + 7) / 8 * 8 * bpf_map__max_entries(map);
    octets = (octets + page - 1) / page * page;
    void* memory = ::mmap(nullptr, octets, PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(map), 0);
    if (memory == MAP_FAILED) {
        throw EngineError(std::string("cannot map the table ") + name + " into memory: " + error_text(errno));
    }
    memory_.emplace_back(memory, Unmap{octets});
    return memory;
}

}  // namespace splitplane
