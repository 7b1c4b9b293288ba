// SPDX-License-Identifier: Apache-2.0
//
// What the kernel gives by number: descriptors and errors.
#pragma once

#include <unistd.h>

#include <array>
#include <cstring>
#include <string>
#include <utility>

namespace splitplane {

// A file descriptor, closed at the end.
class Descriptor {
  public:
    Descriptor() = default;
    explicit Descriptor(int fd) : fd_(fd) {}
    Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
    Descriptor& operator=(Descriptor&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    ~Descriptor() {
        if (fd_ >= 0) ::close(fd_);
    }
    int get() const { return fd_; }
    int release() { return std::exchange(fd_, -1); }
    explicit operator bool() const { return fd_ >= 0; }

  private:
    int fd_ = -1;
};

// The text of an errno value, without its number. Any thread.
inline std::string error_text(int error) {
    std::array<char, 128> text{};
    return ::strerror_r(error, text.data(), text.size());
}

}  // namespace splitplane
