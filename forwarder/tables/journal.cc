// SPDX-License-Identifier: Apache-2.0
#include "tables/journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace splitplane {

namespace {

// With the version of the records. Of this machine's octet order: the file never leaves it.
constexpr char kHeader[16] = {'s', 'p', 'l', 'i', 't', 'p', 'l', 'a', 'n', 'e', ' ', 'j', 'n', 'l', '0', '1'};
constexpr size_t kFrameHead = 8;
constexpr mode_t kOwnerOnly = 0600;

using CrcTable = std::array<std::array<uint32_t, 256>, 4>;

// IEEE 802.3, reflected; four octets a step.
constexpr CrcTable crc_table() {
    CrcTable table{};
    for (uint32_t octet = 0; octet < 256; ++octet) {
        uint32_t crc = octet;
        for (int bit = 0; bit < 8; ++bit) {
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
        }
        table[0][octet] = crc;
    }
    for (uint32_t octet = 0; octet < 256; ++octet) {
        for (size_t step = 1; step < table.size(); ++step) {
            uint32_t before = table[step - 1][octet];
            table[step][octet] = before >> 8 ^ table[0][before & 0xff];
        }
    }
    return table;
}
constexpr CrcTable kCrc = crc_table();

uint32_t crc32(std::span<const uint8_t> octets) {
    uint32_t crc = ~0u;
    size_t at = 0;
    for (; at + 4 <= octets.size(); at += 4) {
        crc ^= octets[at] | octets[at + 1] << 8 | octets[at + 2] << 16 | uint32_t{octets[at + 3]} << 24;
        crc = kCrc[3][crc & 0xff] ^ kCrc[2][crc >> 8 & 0xff] ^ kCrc[1][crc >> 16 & 0xff] ^ kCrc[0][crc >> 24];
    }
    for (; at < octets.size(); ++at) {
        crc = crc >> 8 ^ kCrc[0][(crc ^ octets[at]) & 0xff];
    }
    return ~crc;
}

bool write_all(int file, const void* octets, size_t size, size_t offset) {
    const char* from = static_cast<const char*>(octets);
    while (size > 0) {
        ssize_t written = pwrite(file, from, size, static_cast<off_t>(offset));
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            return false;
        }
        from += written;
        size -= static_cast<size_t>(written);
        offset += static_cast<size_t>(written);
    }
    return true;
}

// A file that is read whole.
class Mapped {
  public:
    Mapped(int file, size_t size) : size_(size), start_(mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0)) {}
    ~Mapped() {
        if (ok()) {
            munmap(start_, size_);
        }
    }
    Mapped(const Mapped&) = delete;
    Mapped& operator=(const Mapped&) = delete;
    bool ok() const { return start_ != MAP_FAILED; }
    std::span<const uint8_t> octets() const { return {static_cast<const uint8_t*>(start_), size_}; }

  private:
    size_t size_;
    void* start_;
};

[[noreturn]] void fail(const std::filesystem::path& path, const char* what) {
    throw JournalError("cannot " + std::string(what) + " the journal " + path.string() + ": " + strerror(errno));
}

}  // namespace

Journal::Journal(std::filesystem::path path) : path_(std::move(path)) {
    if (path_.empty()) {
        return;
    }
    file_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kOwnerOnly);
    if (file_ < 0) {
        fail(path_, "open");
    }
    struct stat status {};
    if (flock(file_, LOCK_EX | LOCK_NB) != 0) {
        close(file_);
        throw JournalError("another vr-forwarder uses " + path_.string() + "; stop it, or name another state folder");
    }
    if (fstat(file_, &status) != 0) {
        close(file_);
        fail(path_, "read");
    }
    octets_ = static_cast<size_t>(status.st_size);
    std::error_code ignored;
    std::filesystem::remove(next_path(), ignored);
}

Journal::~Journal() {
    drop_rewrite();
    if (file_ >= 0) {
        close(file_);
    }
}

std::filesystem::path Journal::next_path() const {
    return path_.string() + ".next";
}

size_t Journal::replay(const Replay& replay) {
    if (path_.empty()) {
        return 0;
    }
    size_t whole = sizeof kHeader;
    if (octets_ < whole) {
        size_t cut = octets_;
        if (ftruncate(file_, 0) != 0 || !write_all(file_, kHeader, sizeof kHeader, 0)) {
            fail(path_, "write");
        }
        octets_ = whole;
        return cut;
    }
    Mapped mapped(file_, octets_);
    if (!mapped.ok()) {
        fail(path_, "read");
    }
    std::span<const uint8_t> rest = mapped.octets();
    if (memcmp(rest.data(), kHeader, sizeof kHeader) != 0) {
        throw JournalError("the journal " + path_.string() +
                           " is not one of this version; remove it to start with empty tables");
    }
    rest = rest.subspan(whole);
    while (rest.size() >= kFrameHead) {
        uint32_t length = 0, crc = 0;
        memcpy(&length, rest.data(), sizeof length);
        memcpy(&crc, rest.data() + sizeof length, sizeof crc);
        if (rest.size() - kFrameHead < length || crc32(rest.subspan(kFrameHead, length)) != crc) {
            break;
        }
        replay(rest.subspan(kFrameHead, length));
        rest = rest.subspan(kFrameHead + length);
        whole += kFrameHead + length;
    }
    size_t cut = octets_ - whole;
    if (cut > 0 && ftruncate(file_, static_cast<off_t>(whole)) != 0) {
        fail(path_, "write");
    }
    octets_ = whole;
    return cut;
}

bool Journal::write_frame(int file, size_t& octets, std::span<const uint8_t> records) {
    uint32_t head[2] = {static_cast<uint32_t>(records.size()), crc32(records)};
    frame_.resize(kFrameHead + records.size());
    memcpy(frame_.data(), head, kFrameHead);
    memcpy(frame_.data() + kFrameHead, records.data(), records.size());
    if (!write_all(file, frame_.data(), frame_.size(), octets)) {
        return false;
    }
    octets += frame_.size();
    return true;
}

bool Journal::append(std::span<const uint8_t> records) {
    if (path_.empty() || records.empty()) {
        return true;
    }
    if (rewriting()) {
        append_rewrite(records);
    }
    // A frame that is missing would make what follows wrong: nothing more until the file is rewritten.
    if (!broken_ && !write_frame(file_, octets_, records)) {
        broken_ = true;
        // What is there of it has no right CRC, and is cut off by whoever replays, if this does not do it.
        [[maybe_unused]] int ignored = ftruncate(file_, static_cast<off_t>(octets_));
    }
    return !broken_;
}

bool Journal::begin_rewrite() {
    if (path_.empty()) {
        return false;
    }
    drop_rewrite();
    next_ = open(next_path().c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, kOwnerOnly);
    if (next_ < 0) {
        return false;
    }
    next_octets_ = sizeof kHeader;
    if (flock(next_, LOCK_EX | LOCK_NB) != 0 || !write_all(next_, kHeader, sizeof kHeader, 0)) {
        drop_rewrite();
        return false;
    }
    return true;
}

bool Journal::append_rewrite(std::span<const uint8_t> records) {
    if (!records.empty() && !write_frame(next_, next_octets_, records)) {
        drop_rewrite();
        return false;
    }
    return true;
}

bool Journal::finish_rewrite() {
    if (rename(next_path().c_str(), path_.c_str()) != 0) {
        drop_rewrite();
        return false;
    }
    close(file_);
    file_ = next_;
    octets_ = next_octets_;
    next_ = -1;
    broken_ = false;
    return true;
}

void Journal::drop_rewrite() {
    if (next_ >= 0) {
        close(next_);
        next_ = -1;
        std::error_code ignored;
        std::filesystem::remove(next_path(), ignored);
    }
}

}  // namespace splitplane
