// SPDX-License-Identifier: Apache-2.0
//
//     load_program OBJECT     0 where the kernel takes the XDP program of a BPF object, else what it said
//
// In how many steps its verifier came through is printed, and too many are refused (engine/README.md).
#include <bpf/bpf.h>

#include <fstream>
#include <iostream>
#include <iterator>
#include <vector>

#include "engine/xdp/object.h"

namespace {

constexpr uint32_t kMostSteps = 250'000;  // it takes 137,000 to 192,000; the kernel's own limit is 1,000,000

uint32_t steps_of(int program) {
    bpf_prog_info info{};
    uint32_t size = sizeof info;
    return bpf_obj_get_info_by_fd(program, &info, &size) == 0 ? info.verified_insns : UINT32_MAX;
}

}  // namespace

int main(int count, char** words) {
    using namespace splitplane;
    std::ifstream file(count == 2 ? words[1] : "", std::ios::binary);
    const std::vector<uint8_t> elf{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    if (elf.empty()) {
        std::cerr << "usage: load_program OBJECT\n";
        return 2;
    }
    try {
        constexpr Capacity kCapacity{.words = 1u << 18, .members = 1u << 10};
        // The verifier goes through it in the same steps with and without `frags`; differential_test loads it without.
        const XdpObject object(elf, kCapacity, {}, /*frags=*/true);
        const uint32_t steps = steps_of(object.program("forward"));
        std::cout << steps << " steps of the verifier\n";
        if (steps > kMostSteps) {
            std::cerr << "more than " << kMostSteps << ": see engine/README.md, Steps of the verifier\n";
            return 1;
        }
        return 0;
    } catch (const VerifierRefused& refused) {
        std::cerr << refused.log() << refused.what() << "\n";
    } catch (const EngineError& error) {
        std::cerr << error.what() << "\n";
    }
    return 1;
}
