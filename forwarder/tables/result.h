// SPDX-License-Identifier: Apache-2.0
//
// What became of one operation on a table.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace splitplane {

// google.rpc.Code, as far as tables give such answers.
enum class Code : uint8_t {
    kOk = 0,
    kUnknown = 2,
    kInvalidArgument = 3,
    kNotFound = 5,
    kAlreadyExists = 6,
    kPermissionDenied = 7,
    kResourceExhausted = 8,
    kFailedPrecondition = 9,
    kOutOfRange = 11,
    kUnimplemented = 12,
    kInternal = 13,
};
inline constexpr size_t kCodes = 17;

// A code and, unless it is kOk, one line that names the thing and what is wrong with it.
struct Result {
    Code code = Code::kOk;
    std::string text;

    Result() = default;
    Result(Code refused, std::string why) : code(refused), text(std::move(why)) {}
    bool ok() const { return code == Code::kOk; }
};

enum class Op : uint8_t { kInsert = 1, kModify = 2, kErase = 3 };

}  // namespace splitplane
