// SPDX-License-Identifier: Apache-2.0

#include "engine/xdp/carrier.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "engine/descriptor.h"

namespace splitplane {
namespace {

constexpr uint8_t kCarrierPrograms[] = {
#include "carrier.inc"
};

constexpr std::array<const char*, 2> kOnCarrier{"link_lost", "link_back"};

// Which network namespace this process is in, as the kernel numbers them; 0 where it does not say.
uint64_t namespace_inode() {
    struct stat facts {};
    return ::stat("/proc/self/ns/net", &facts) == 0 ? facts.st_ino : 0;
}

}  // namespace

void Carrier::Close::operator()(bpf_object* object) const { bpf_object__close(object); }

void Carrier::refuse(int error) {
    object_.reset();
    remark_ = "a port that loses its link is taken out of groups by this process alone, and late: the kernel takes no "
              "program on netif_carrier_off (" + error_text(error) + ")";
}

Carrier::Carrier(XdpObject& object) {
    bpf_object_open_opts options{};
    options.sz = sizeof options;
    options.object_name = "vr_carrier";
    const auto silent = libbpf_set_print(nullptr);
    object_.reset(bpf_object__open_mem(kCarrierPrograms, sizeof kCarrierPrograms, &options));
    int error = object_ ? 0 : errno;
    bpf_map* map = nullptr;
    bpf_object__for_each_map(map, object_.get()) {
        // It has the tables of the other object, and of these only what has a fixed size.
        if (error == 0 && bpf_map__is_internal(map)) error = -bpf_map__reuse_fd(map, object.fixed_map());
        if (!bpf_map__is_internal(map)) bpf_map__set_autocreate(map, false);
    }
    if (error == 0) error = -bpf_object__load(object_.get());
    libbpf_set_print(silent);
    if (error != 0) refuse(error);
    object.fixed().namespace_inode = namespace_inode();
}

void Carrier::attach(const std::string& directory) {
    for (const char* name : kOnCarrier) {
        const std::string path = directory + "/" + name;
        ::unlink(path.c_str());
        if (!object_) continue;
        const bpf_program* program = bpf_object__find_program_by_name(object_.get(), name);
        const Descriptor link(bpf_link_create(bpf_program__fd(program), 0, BPF_TRACE_FENTRY, nullptr));
        if (!link || bpf_obj_pin(link.get(), path.c_str()) != 0) refuse(errno);
    }
}

}  // namespace splitplane
