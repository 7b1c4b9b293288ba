// SPDX-License-Identifier: Apache-2.0

#include "engine/xdp/core_clock.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace splitplane {
namespace {

alignas(8) constexpr uint8_t kClock[] = {
#include "engine/xdp/clock.inc"
};

constexpr const char* kCores = "map_cores";
constexpr const char* kTicks = "poll_ended";
constexpr const char* kUntilItIs = "-next";  // behind the pin's name while an earlier process has that

struct CloseClock {
    void operator()(bpf_object* object) const { bpf_object__close(object); }
    void operator()(bpf_link* link) const { bpf_link__destroy(link); }
};

}  // namespace

XdpCoreClock::XdpCoreClock(const XdpObject& object, std::string pins, bool wanted)
    : pin_(std::move(pins) + "/core-clock") {
    if (!wanted) return;
    const auto earlier = libbpf_set_print(nullptr);
    try {
        attach(object);
        attached_ = true;
    } catch (const EngineError& error) {
        problem_ = std::string("routers have no shares of a core: ") + error.what();
    }
    libbpf_set_print(earlier);
}

// The pinned link keeps the program, and that its map.
void XdpCoreClock::attach(const XdpObject& object) {
    const auto refuse = [](const std::string& what, int error) { throw EngineError(what + ": " + error_text(error)); };
    const std::unique_ptr<bpf_object, CloseClock> clock(bpf_object__open_mem(kClock, sizeof kClock, nullptr));
    if (!clock) refuse("the BPF object cannot be read", errno);
    bpf_map* cores = bpf_object__find_map_by_name(clock.get(), kCores);
    if (bpf_map__reuse_fd(cores, object.map(kCores)) != 0) refuse("the cores do not fit", errno);
    if (const int error = -bpf_object__load(clock.get()); error != 0) {
        refuse("the kernel does not load the program for its polls (it needs its BTF)", error);
    }
    bpf_program* program = bpf_object__find_program_by_name(clock.get(), kTicks);
    const std::unique_ptr<bpf_link, CloseClock> link(bpf_program__attach_trace(program));
    if (!link) refuse(std::string("cannot attach ") + kTicks, errno);
    const std::string pin = pin_ + kUntilItIs;
    ::unlink(pin.c_str());  // of a process that ended before it took over
    if (bpf_obj_pin(bpf_link__fd(link.get()), pin.c_str()) != 0) refuse("cannot pin " + pin, errno);
}

void XdpCoreClock::take_over() {
    if (attached_) {
        ::rename((pin_ + kUntilItIs).c_str(), pin_.c_str());
    } else {
        ::unlink(pin_.c_str());
    }
}

}  // namespace splitplane
