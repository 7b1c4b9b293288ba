// SPDX-License-Identifier: Apache-2.0
//
// One update of a WriteRequest: decoded, and done in the tables.
#pragma once

#include "server/schema.h"
#include "tables/tables.h"

namespace splitplane {

// The caller has the tables' lock, and commits.
Result write_update(Tables& tables, const Schema& schema, const p4::v1::Update& update);

// The status of a WriteRequest's updates: OK where all are; else UNKNOWN, with google.rpc.Status as its details, an
// error for each update in their order (P4Runtime 1.4, section 12.3). Trailers have limits, 8 KiB in gRPC unless the
// client asks for more: so texts are left out where they would make more than some 32 KiB, and type URLs are short.
struct WriteStatus {
    bool ok = true;
    std::string message;
    std::string details;
};
WriteStatus write_status(const std::vector<std::pair<size_t, Result>>& refused, size_t updates);

}  // namespace splitplane
