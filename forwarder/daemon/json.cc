// SPDX-License-Identifier: Apache-2.0

#include "daemon/json.h"

namespace splitplane {

std::string JsonWriter::quoted(std::string_view value) {
    static constexpr char kDigits[] = "0123456789abcdef";
    std::string text = "\"";
    for (const char octet : value) {
        if (octet == '"' || octet == '\\') {
            text += '\\';
            text += octet;
        } else if (static_cast<unsigned char>(octet) < 0x20) {
            text += std::string("\\u00") + kDigits[octet >> 4] + kDigits[octet & 15];
        } else {
            text += octet;
        }
    }
    return text + '"';
}

void JsonWriter::begin(std::string_view key) {
    if (!levels_.empty()) {
        if (!levels_.back().empty) text_ += ',';
        levels_.back().empty = false;
        new_line();
    }
    if (!key.empty()) text_ += quoted(key) + ": ";
}

JsonWriter& JsonWriter::open(std::string_view key, char opening, char closing) {
    begin(key);
    text_ += opening;
    levels_.push_back({closing, true});
    return *this;
}

JsonWriter& JsonWriter::end() {
    const Level level = levels_.back();
    levels_.pop_back();
    if (!level.empty) new_line();
    text_ += level.closing;
    return *this;
}

JsonWriter& JsonWriter::raw(std::string_view key, std::string_view value) {
    begin(key);
    text_ += value;
    return *this;
}

JsonWriter& JsonWriter::text(std::string_view key, std::string_view value) { return raw(key, quoted(value)); }

}  // namespace splitplane
