// SPDX-License-Identifier: Apache-2.0
//
// A large array of which little may ever be used: zeros, whose pages come when they are first written. Unlike
// ReservedArray it is malloc's, so that sanitizers see what goes beyond its end.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>

namespace splitplane {

// `T` is such that zeros are what it begins as, and nothing has to be done at its end.
template <typename T>
class ZeroedArray {
    static_assert(std::is_trivially_copyable_v<T>);

  public:
    explicit ZeroedArray(size_t count) : items_(static_cast<T*>(std::calloc(count, sizeof(T)))), count_(count) {
        if (items_ == nullptr) {
            throw std::bad_alloc();
        }
    }

    T& operator[](size_t at) { return items_[at]; }
    const T& operator[](size_t at) const { return items_[at]; }
    size_t size() const { return count_; }

  private:
    struct Free {
        void operator()(T* items) const { std::free(items); }
    };

    std::unique_ptr<T[], Free> items_;
    size_t count_;
};

}  // namespace splitplane
