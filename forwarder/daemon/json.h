// SPDX-License-Identifier: Apache-2.0
//
// Writes JSON (RFC 8259) as it goes, two spaces for each level.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace splitplane {

class JsonWriter {
  public:
    // With a key inside an object, without inside an array and for the whole.
    JsonWriter& object(std::string_view key = {}) { return open(key, '{', '}'); }
    JsonWriter& array(std::string_view key = {}) { return open(key, '[', ']'); }
    JsonWriter& end();
    JsonWriter& text(std::string_view key, std::string_view value);
    JsonWriter& number(std::string_view key, uint64_t value) { return raw(key, std::to_string(value)); }
    JsonWriter& boolean(std::string_view key, bool value) { return raw(key, value ? "true" : "false"); }
    JsonWriter& item(std::string_view value) { return text({}, value); }

    std::string take() && { return std::move(text_) + "\n"; }

    static std::string quoted(std::string_view value);

  private:
    struct Level {
        char closing;
        bool empty;
    };
    JsonWriter& open(std::string_view key, char opening, char closing);
    JsonWriter& raw(std::string_view key, std::string_view value);
    void begin(std::string_view key);
    void new_line() { text_ += '\n' + std::string(2 * levels_.size(), ' '); }

    std::string text_;
    std::vector<Level> levels_;
};

}  // namespace splitplane
