// SPDX-License-Identifier: Apache-2.0

#include "engine/xdp/egress_losses.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <vector>

namespace splitplane {
namespace {

alignas(8) constexpr uint8_t kLosses[] = {
#include "engine/xdp/losses.inc"
};

constexpr const char* kCounted = "map_losses";
constexpr const char* kOwner = "map_losses_owner";
constexpr std::array<std::pair<const char*, const char*>, 2> kPrograms{{
    {"redirect_lost", "losses-redirect"},
    {"queue_lost", "losses-queue"},
}};
constexpr const char* kNext = "-next";  // behind the name of a pin until it is the one
constexpr uint32_t kFirst = 0;

std::string with_layout(const std::string& name) { return name + "-" + std::to_string(SP_LAYOUT); }

int no_complaint(enum libbpf_print_level, const char*, va_list) { return 0; }

bpf_map* find(bpf_object* object, const char* name) {
    bpf_map* map = bpf_object__find_map_by_name(object, name);
    if (map == nullptr) throw EngineError(std::string("the BPF object has no map ") + name);
    return map;
}

[[noreturn]] void fail(const std::string& what, int error) { throw EngineError(what + ": " + error_text(error)); }

uint32_t id_of(int map) {
    bpf_map_info facts{};
    uint32_t size = sizeof facts;
    if (bpf_obj_get_info_by_fd(map, &facts, &size) != 0) fail("no id of the map of ports", errno);
    return facts.id;
}

}  // namespace

void XdpEgressLosses::Close::operator()(bpf_object* object) const { bpf_object__close(object); }

XdpEgressLosses::XdpEgressLosses(const XdpObject& object, std::string pins) : pins_(std::move(pins)) {
    const auto earlier = libbpf_set_print(no_complaint);
    try {
        load(object);
        for (const auto& [program, name] : kPrograms) attach(program, pin(name) + kNext);
    } catch (const EngineError& error) {
        object_.reset();
        problem_ = std::string("what ports cannot send is not counted: ") + error.what();
    }
    libbpf_set_print(earlier);
}

XdpEgressLosses::~XdpEgressLosses() = default;

void XdpEgressLosses::load(const XdpObject& object) {
    object_.reset(bpf_object__open_mem(kLosses, sizeof kLosses, nullptr));
    if (!object_) fail("the BPF object cannot be read", errno);
    ports_map_id_ = id_of(object.map("map_ports"));
    const auto id = static_cast<uint32_t>(ports_map_id_);
    bpf_map* constants = find(object_.get(), ".rodata");
    if (bpf_map__set_initial_value(constants, &id, sizeof id) != 0) fail("its constants do not fit", errno);
    bpf_map* counted = find(object_.get(), kCounted);
    bpf_map__set_max_entries(counted, static_cast<uint32_t>(libbpf_num_possible_cpus()));
    if (bpf_map__reuse_fd(find(object_.get(), ".bss"), object.map(".bss")) != 0) fail("the tables do not fit", errno);
    for (const char* name : {kCounted, kOwner}) {
        // Whatever is pinned is of this layout, and so as long; a host may have other CPUs after a reboot alone.
        const Descriptor kept(bpf_obj_get(pin(with_layout(name)).c_str()));
        if (kept) bpf_map__reuse_fd(find(object_.get(), name), kept.get());
    }
    if (const int error = -bpf_object__load(object_.get()); error != 0) {
        fail("the kernel does not load the programs for tracepoints (they need its BTF)", error);
    }
    for (const char* name : {kCounted, kOwner}) {
        const std::string path = pin(with_layout(name));
        if (bpf_obj_pin(map(name), path.c_str()) != 0 && errno != EEXIST) fail("cannot pin " + path, errno);
    }
}

void XdpEgressLosses::attach(const char* program, const std::string& pin) {
    bpf_program* found = bpf_object__find_program_by_name(object_.get(), program);
    const std::unique_ptr<bpf_link, int (*)(bpf_link*)> link(bpf_program__attach_trace(found), bpf_link__destroy);
    if (!link) fail(std::string("cannot attach ") + program, errno);
    ::unlink(pin.c_str());  // of a process that ended before it took over
    if (bpf_obj_pin(bpf_link__fd(link.get()), pin.c_str()) != 0) fail("cannot pin " + pin, errno);
}

// In one word counting goes from one to the other; then what was pinned before is nobody's.
void XdpEgressLosses::take_over() {
    if (!object_) return;
    bpf_map_update_elem(map(kOwner), &kFirst, &ports_map_id_, BPF_ANY);
    for (const auto& [program, name] : kPrograms) ::rename((pin(name) + kNext).c_str(), pin(name).c_str());
    for (const auto& entry : std::filesystem::directory_iterator(pins_)) {
        const std::string name = entry.path().filename();
        const bool ours = name == with_layout(kCounted) || name == with_layout(kOwner);
        if (name.starts_with(kCounted) && !ours) ::unlink(entry.path().c_str());
    }
}

int XdpEgressLosses::map(const char* name) const { return bpf_map__fd(find(object_.get(), name)); }

std::vector<EgressLosses> XdpEgressLosses::read() const {
    std::vector<EgressLosses> sums(SP_PORTS);
    if (!object_) return sums;
    std::vector<EgressLosses> counted(SP_PORTS);
    const uint32_t cpus = bpf_map__max_entries(find(object_.get(), kCounted));
    for (uint32_t cpu = 0; cpu < cpus; ++cpu) {
        if (bpf_map_lookup_elem(map(kCounted), &cpu, counted.data()) != 0) continue;
        for (size_t port = 0; port < SP_PORTS; ++port) {
            for (size_t loss = 0; loss < SP_LOSSES; ++loss) sums[port][loss] += counted[port][loss];
        }
    }
    return sums;
}

}  // namespace splitplane
