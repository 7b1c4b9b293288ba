// The pipeline on v1model, that is BMv2's simple_switch_grpc. Everything happens on ingress.

#include "arch.p4"
#include "../common/pipeline.p4"

parser SwitchParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    FrameParser() frame;

    state start {
        meta.ingress_port = standard.ingress_port;
        transition select(standard.ingress_port) {
            CPU_PORT: from_controller;
            default: from_port;
        }
    }

    // The guest's frame goes out as it is: what is behind its addresses is not looked at.
    state from_controller {
        packet.extract(hdr.packet_out);
        packet.extract(hdr.ethernet);
        transition accept;
    }

    state from_port {
        frame.apply(packet, hdr, meta);
        transition accept;
    }
}

control VerifyIpv4Checksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(
            hdr.ipv4.isValid(),
            {
                hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.dscp_ecn, hdr.ipv4.total_length, hdr.ipv4.identification,
                hdr.ipv4.flags, hdr.ipv4.fragment_offset, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst
            },
            hdr.ipv4.header_checksum,
            HashAlgorithm.csum16);
    }
}

// Of what the router sends and has routed itself, one packet of so many, at random.
control Sample(in headers_t hdr, in metadata_t meta, in standard_metadata_t standard) {
    apply {
        bit<16> chance;
        random(chance, 0, SAMPLE_ONE_IN - 1);
        if (chance == 0) {
            sample_t sample;
            sample.router_interface_id = meta.router_interface_id;
            sample.timestamp = standard.ingress_global_timestamp;
            if (hdr.ipv4.isValid()) {
                sample.ip_version = 4;
                sample.dst = (bit<128>)hdr.ipv4.dst;
            } else {
                sample.ip_version = 6;
                sample.dst = hdr.ipv6.dst;
            }
            digest<sample_t>(1, sample);
        }
    }
}

control SwitchIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    RouterPipeline() pipeline;
    Sample() sample;

    apply {
        bit<32> l2_length = 14;
        if (hdr.vlan.isValid()) {
            l2_length = 18;
        }
        meta.l3_room = (bit<16>)(standard.packet_length - l2_length);
        meta.checksum_error = standard.checksum_error;
        pipeline.apply(hdr, meta);
        if (meta.transmit == 1) {
            standard.egress_spec = meta.egress_port;
            if (standard.ingress_port != CPU_PORT && meta.keep_ttl == 0) {
                sample.apply(hdr, meta, standard);
            }
        } else if (hdr.packet_in.isValid()) {
            standard.egress_spec = CPU_PORT;
        } else {
            mark_to_drop(standard);
        }
    }
}

control SwitchEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {}
}

// The TTL's change is worked into the checksum where it is made.
control NoChecksumUpdate(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control SwitchDeparser(packet_out packet, in headers_t hdr) {
    FrameDeparser() frame;

    apply {
        frame.apply(packet, hdr);
    }
}

@pkginfo(name="splitplane", version="1.0.0", organization="Splitplane")
V1Switch(
    SwitchParser(), VerifyIpv4Checksum(), SwitchIngress(), SwitchEgress(), NoChecksumUpdate(), SwitchDeparser()
) main;
