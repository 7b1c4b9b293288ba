// SPDX-License-Identifier: Apache-2.0
//
// JSON (RFC 8259), by nlohmann/json.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

namespace splitplane {

// Keys stay in the order in which they are added. `[]` looks through all of them: see add_key().
using Json = nlohmann::ordered_json;

// Add a key that is not there yet, without looking for it: an object may have a key for each of 16,384 interfaces.
inline void add_key(Json::object_t& object, std::string key, Json value) {
    object.emplace_back(std::move(key), std::move(value));
}

// As text; `indent` -1: in one line. Names come from outside: octets that are not UTF-8 become U+FFFD.
inline std::string json_text(const Json& value, int indent) {
    return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace splitplane
