// SPDX-License-Identifier: Apache-2.0
//
// Samples as P4Runtime knows them: the pipeline's one digest (P4Runtime 1.4, section 9.8; p4src/common/headers.p4).
#pragma once

#include <optional>
#include <span>

#include "server/schema.h"
#include "tables/tables.h"

namespace splitplane {

Result write_samples(Tables& tables, const Schema& schema, Op op, const p4::v1::DigestEntry& entry);
// kNotFound where a read wants another digest than the one there is.
Result check_digest(const Schema& schema, uint32_t digest_id);
void encode_samples(const Schema& schema, const SampleDigest& digest, p4::v1::DigestEntry& entry);

// Of a frame that a router (its slot) has routed, by its head: where it went, and its octets. None where that is no IP.
std::optional<RoutedPacket> routed_packet(uint32_t vrf, std::span<const uint8_t> head);

// What is told of a packet that came in by a router interface, and leaves with this head, untagged; `timestamp` makes no
// two of them alike. False where the head has no destination.
bool encode_sample(uint32_t router_interface_id, std::span<const uint8_t> head, uint64_t timestamp,
                   p4::v1::P4Data& data);

}  // namespace splitplane
