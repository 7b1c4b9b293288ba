// SPDX-License-Identifier: Apache-2.0
//
// Tables over an engine without packets, and everything that they hold as text, to compare.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "engine/memory_engine.h"
#include "tables/tables.h"

namespace splitplane::testing {

class Grace : public GracePeriods {
  public:
    explicit Grace(Engine& engine) : engine_(engine) {}
    void synchronize() override { engine_.synchronize(); }

  private:
    Engine& engine_;
};

// One process: the arrays are its own, the journal is that of the process before.
class Process {
  public:
    explicit Process(const std::filesystem::path& journal = {}, const TableLimits& limits = {});

    MemoryEngine engine{Capacity{.words = 1u << 19, .members = 1u << 16}};
    Grace grace{engine};
    Tables tables;

    // Every entry with its slots and counters, sorted.
    std::string dump();

  private:
    void dump_rows(std::string& text);
    void dump_routes(std::string& text);
};

class Folder {
  public:
    Folder();
    ~Folder();
    std::filesystem::path operator/(const char* name) const { return path_ / name; }

  private:
    std::filesystem::path path_;
};

Prefix prefix4(uint32_t address, uint8_t length);
Prefix prefix6(uint64_t high, uint8_t length);

}  // namespace splitplane::testing
