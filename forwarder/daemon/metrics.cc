// SPDX-License-Identifier: Apache-2.0

#include "daemon/metrics.h"

namespace splitplane {

namespace {

// Escaped as within the quotes of a label's value or in a line of help.
void append_escaped(std::string& text, std::string_view value) {
    for (const char octet : value) {
        if (octet == '\\' || octet == '"') text += '\\';
        text += octet == '\n' ? ' ' : octet;
    }
}

}  // namespace

void OpenMetrics::family(std::string_view name, Type type, std::string_view help) {
    static constexpr const char* kTypes[] = {"counter", "gauge", "info"};
    static constexpr const char* kEndings[] = {"_total", "", "_info"};
    const auto index = static_cast<size_t>(type);
    const std::string full = "vr_forwarder_" + std::string(name);
    text_ += "# TYPE " + full + " " + kTypes[index] + "\n# HELP " + full + " ";
    append_escaped(text_, help);
    text_ += '\n';
    sample_name_ = full + kEndings[index];
}

void OpenMetrics::sample(uint64_t value, Labels labels) {
    text_ += sample_name_;
    char separator = '{';
    for (const auto& [name, content] : labels) {
        text_ += separator;
        text_ += name;
        text_ += "=\"";
        append_escaped(text_, content);
        text_ += '"';
        separator = ',';
    }
    if (labels.size() != 0) text_ += '}';
    text_ += ' ' + std::to_string(value) + '\n';
}

std::string OpenMetrics::text() && { return std::move(text_) + "# EOF\n"; }

}  // namespace splitplane
