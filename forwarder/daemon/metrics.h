// SPDX-License-Identifier: Apache-2.0
//
// Text in the OpenMetrics format (openmetrics.io, version 1.0), family by family.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace splitplane {

class OpenMetrics {
  public:
    using Labels = std::initializer_list<std::pair<std::string_view, std::string_view>>;
    enum class Type { kCounter, kGauge, kInfo };

    // Begin a family: `name` without the ending that its type asks for ("_total", "_info").
    void family(std::string_view name, Type type, std::string_view help);
    // A sample of the family begun last.
    void sample(uint64_t value, Labels labels = {});
    // The whole text, with its end mark.
    std::string text() &&;

    static constexpr const char* kContentType = "application/openmetrics-text; version=1.0.0; charset=utf-8";

  private:
    std::string text_;
    std::string sample_name_;
};

}  // namespace splitplane
