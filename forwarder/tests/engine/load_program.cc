// SPDX-License-Identifier: Apache-2.0
//
//     load_program OBJECT     0 where the kernel takes the XDP program of a BPF object, else what it said
#include <fstream>
#include <iostream>
#include <iterator>
#include <vector>

#include "engine/xdp/object.h"

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
        for (const bool frags : {false, true}) {
            const XdpObject object(elf, kCapacity, {}, frags);
            if (object.program("forward") < 0) return 1;
        }
        return 0;
    } catch (const VerifierRefused& refused) {
        std::cerr << refused.log() << refused.what() << "\n";
    } catch (const EngineError& error) {
        std::cerr << error.what() << "\n";
    }
    return 1;
}
