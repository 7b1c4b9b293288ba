// SPDX-License-Identifier: Apache-2.0
//
// Runs a libFuzzer target without libFuzzer, which only clang has: random inputs for so many seconds.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* octets, size_t size);

int main(int argc, char** argv) {
    auto end = std::chrono::steady_clock::now() + std::chrono::seconds(argc > 1 ? std::atoi(argv[1]) : 5);
    auto seed = argc > 2 ? static_cast<uint32_t>(std::atoi(argv[2])) : std::random_device()();
    std::printf("seed %u\n", seed);
    std::fflush(stdout);
    std::mt19937 random(seed);
    size_t inputs = 0;
    for (; std::chrono::steady_clock::now() < end; ++inputs) {
        std::vector<uint8_t> octets(random() % 2048);
        for (auto& octet : octets) {
            octet = static_cast<uint8_t>(random());
        }
        LLVMFuzzerTestOneInput(octets.data(), octets.size());
    }
    std::printf("%zu inputs\n", inputs);
    return 0;
}
