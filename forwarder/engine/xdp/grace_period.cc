// SPDX-License-Identifier: Apache-2.0

#include "engine/xdp/grace_period.h"

#include <bpf/bpf.h>

#include <cerrno>

#include "engine/xdp/privileges.h"

namespace splitplane {
namespace {

constexpr uint32_t kWord = sizeof(uint32_t);

[[noreturn]] void fail(int error) {
    throw EngineError("cannot wait for packets that are under way: " + error_text(error) +
                      (error == EPERM ? "; " + permission_remedy() : ""));
}

}  // namespace

GracePeriod::GracePeriod()
    : inner_(bpf_map_create(BPF_MAP_TYPE_ARRAY, "grace_inner", kWord, kWord, 1, nullptr)) {
    if (!inner_) fail(errno);
    bpf_map_create_opts options{};
    options.sz = sizeof options;
    options.inner_map_fd = static_cast<uint32_t>(inner_.get());
    outer_ = Descriptor(bpf_map_create(BPF_MAP_TYPE_ARRAY_OF_MAPS, "grace_outer", kWord, kWord, 1, &options));
    if (!outer_) fail(errno);
    wait();  // what is not possible is better known now than when a table changes
}

void GracePeriod::wait() const {
    const uint32_t first = 0;
    const int inner = inner_.get();
    if (bpf_map_update_elem(outer_.get(), &first, &inner, BPF_ANY) != 0) fail(errno);
}

}  // namespace splitplane
