// SPDX-License-Identifier: Apache-2.0
//
// Who of several controllers is primary: P4Runtime 1.4, section 5. Pure: it returns what is to be said to whom.
//
// The highest election id is kept for good, so one that is too high would lock out every controller that comes later.
// Hence a rule: the upper half of an election id is a time in milliseconds since 1970, as of vr-controller, or a smaller
// number; one of more than a day ahead of this host's clock is refused, and one that was remembered is forgotten.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "p4/v1/p4runtime.pb.h"
#include "tables/tables.h"

namespace splitplane {

class Arbitration {
  public:
    using Stream = uint64_t;
    struct Notice {
        Stream stream;
        p4::v1::MasterArbitrationUpdate update;
    };

    // Returns the time; tests set it.
    using Clock = std::function<std::chrono::system_clock::time_point()>;

    // `highest` is the largest election id that any primary ever had, none: there was none. One that the rule refuses
    // counts as none.
    Arbitration(uint64_t device_id, size_t max_streams, std::optional<ElectionId> highest,
                Clock clock = std::chrono::system_clock::now);

    // A message of a stream. An error ends the stream with it.
    Result update(Stream stream, const p4::v1::MasterArbitrationUpdate& message, std::vector<Notice>& notices);
    // A stream has ended.
    void leave(Stream stream, std::vector<Notice>& notices);

    bool is_primary(const p4::v1::Uint128& election_id) const;
    std::optional<Stream> primary() const { return primary_; }
    std::optional<ElectionId> highest() const { return highest_; }
    size_t streams() const { return controllers_.size(); }

  private:
    using Controller = std::optional<ElectionId>;  // none: it never wants to be primary

    Result check(Stream stream, bool known, const p4::v1::MasterArbitrationUpdate& message,
                 const Controller& election_id) const;
    // Empty, or why this election id would lock others out.
    std::string locks_out(const ElectionId& election_id) const;
    Notice notice(Stream stream) const;
    void tell_all(std::vector<Notice>& notices) const;

    uint64_t device_id_;
    size_t max_streams_;
    std::map<Stream, Controller> controllers_;
    std::optional<Stream> primary_;
    Clock clock_;
    std::optional<ElectionId> highest_;
};

// "HIGH.LOW".
std::string text_of(const ElectionId& election_id);

// Whether a request names no role but the default one.
inline bool default_role(const std::string& role, uint64_t role_id) {
    return role.empty() && role_id == 0;
}

}  // namespace splitplane
