// SPDX-License-Identifier: Apache-2.0
//
// A file that holds every entry in force, for the process that comes after this one.
//
//     header │ frame │ frame │ …        frame: length, CRC-32, records of one request
//
// It lies where a reboot clears it (tmpfs): what is written survives the process, and nothing is synced. A frame that
// was not written whole is cut off. When most of the file is superseded, a new one is written beside it, a part with
// each request, and takes its place; requests meanwhile go to both.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace splitplane {

// What is wrong with the journal, in one line that names the file and the remedy.
class JournalError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

class Journal {
  public:
    using Replay = std::function<void(std::span<const uint8_t> records)>;

    // Open or make the file, alone; JournalError. Without a path nothing is kept.
    explicit Journal(std::filesystem::path path);
    ~Journal();
    Journal(const Journal&) = delete;
    Journal& operator=(const Journal&) = delete;

    // Give every whole frame to `replay`, in order, and cut off what follows. Returns the octets cut off.
    size_t replay(const Replay& replay);

    // Add a frame. False where the file cannot be written: it is then as before, and broken() until it is rewritten.
    bool append(std::span<const uint8_t> records);
    bool broken() const { return broken_; }
    size_t octets() const { return octets_; }

    // Begin a new file; frames go to both from now on. False, with nothing begun, where it cannot be written.
    bool begin_rewrite();
    bool rewriting() const { return next_ >= 0; }
    // A frame for the new file alone. False where it cannot be written: the rewriting has ended, the old file stays.
    bool append_rewrite(std::span<const uint8_t> records);
    // The new file holds all: it takes the old one's place.
    bool finish_rewrite();

  private:
    bool write_frame(int file, size_t& octets, std::span<const uint8_t> records);
    void drop_rewrite();
    std::filesystem::path next_path() const;

    std::filesystem::path path_;
    int file_ = -1;
    size_t octets_ = 0;
    int next_ = -1;
    size_t next_octets_ = 0;
    bool broken_ = false;
    std::vector<uint8_t> frame_;
};

}  // namespace splitplane
