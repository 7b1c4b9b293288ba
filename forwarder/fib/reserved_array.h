// SPDX-License-Identifier: Apache-2.0
//
// An array of fixed address and capacity whose pages come when they are first written.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <span>

namespace splitplane {

template <typename T>
class ReservedArray {
  public:
    // All zeros. std::bad_alloc where the address space is not to be had.
    explicit ReservedArray(size_t count) : count_(count) {
        void* memory = mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) {
            throw std::bad_alloc();
        }
        items_ = static_cast<T*>(memory);
    }
    ~ReservedArray() { munmap(items_, count_ * sizeof(T)); }
    ReservedArray(const ReservedArray&) = delete;
    ReservedArray& operator=(const ReservedArray&) = delete;

    T& operator[](size_t at) { return items_[at]; }
    const T& operator[](size_t at) const { return items_[at]; }
    size_t size() const { return count_; }
    std::span<T> all() { return {items_, count_}; }

  private:
    T* items_;
    size_t count_;
};

}  // namespace splitplane
