// What may not be forwarded as it is, now that the route is known: it goes to the guest instead, unchanged.

control Ttl(inout headers_t hdr, inout metadata_t meta) {
    apply {
        bit<8> ttl = hdr.ipv6.hop_limit;
        if (hdr.ipv4.isValid()) {
            ttl = hdr.ipv4.ttl;
        }
        // Own addresses take any TTL, a blackhole has dropped the packet; whatever else is not forwarded expires first.
        if (meta.reason == NO_REASON || meta.reason == PUNT_GLEAN || meta.reason == PUNT_UNREACHABLE) {
            if (ttl <= 1) {
                meta.reason = PUNT_TTL_EXPIRED;
            } else if (meta.link_local_source == 1) {
                meta.reason = PUNT_UNREACHABLE;
            } else if (meta.reason == NO_REASON && meta.path != path_t.FALLBACK) {
                // RFC 1812 section 4.2.2.6, RFC 8200 section 4.3: not a switch's work.
                if (hdr.ipv4.isValid() && hdr.ipv4.ihl != 5) {
                    meta.reason = PUNT_IP_OPTIONS;
                } else if (hdr.ipv6.isValid() && hdr.ipv6.next_header == PROTOCOL_HOP_BY_HOP) {
                    meta.reason = PUNT_HOP_BY_HOP;
                }
            }
        }
    }
}
