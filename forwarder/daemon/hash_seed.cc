// SPDX-License-Identifier: Apache-2.0

#include "daemon/hash_seed.h"

#include <sys/random.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "daemon/config.h"

namespace splitplane {

namespace {

[[noreturn]] void fail(const std::filesystem::path& path, const char* what) {
    throw ConfigError("cannot keep how flows are spread: " + path.string() + ": " + what +
                      "; make the state directory writable");
}

}  // namespace

uint64_t hash_seed(const std::filesystem::path& state) {
    const std::filesystem::path path = state / "hash-seed";
    uint64_t seed = 0;
    if (std::ifstream(path) >> std::hex >> seed && seed % 2 != 0) return seed;
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed) fail(path, std::strerror(errno));
    seed |= 1;
    // Whole or not at all: a process that is killed here leaves no other seed than it has used.
    const std::filesystem::path next = path.string() + ".next";
    std::ofstream file(next);
    file << std::hex << seed << '\n';
    file.close();
    std::error_code problem;
    if (file) std::filesystem::rename(next, path, problem);
    if (!file || problem) fail(next, problem ? problem.message().c_str() : std::strerror(errno));
    return seed;
}

}  // namespace splitplane
