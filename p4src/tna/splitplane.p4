// The pipeline on TNA, that is Tofino 1. Everything happens on ingress; egress is bypassed.

#include "arch.p4"
#include "../common/pipeline.p4"

parser SwitchParser(
    packet_in packet, out headers_t hdr, out metadata_t meta, out ingress_intrinsic_metadata_t intrinsic
) {
    FrameParser() frame;

    state start {
        packet.extract(intrinsic);
        packet.advance(PORT_METADATA_SIZE);
        meta.ingress_port = intrinsic.ingress_port;
        // Ingress is not told how long a frame is: an IP packet that says more than its frame holds is forwarded.
        meta.l3_room = 0xffff;
        transition select(intrinsic.ingress_port) {
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

// All metadata starts at 0, as it does on v1model by itself.
@pa_auto_init_metadata
control SwitchIngress(
    inout headers_t hdr,
    inout metadata_t meta,
    in ingress_intrinsic_metadata_t intrinsic,
    in ingress_intrinsic_metadata_from_parser_t from_parser,
    inout ingress_intrinsic_metadata_for_deparser_t for_deparser,
    inout ingress_intrinsic_metadata_for_tm_t for_tm
) {
    RouterPipeline() pipeline;

    apply {
        pipeline.apply(hdr, meta);
        for_tm.bypass_egress = 1;
        if (meta.transmit == 1) {
            for_tm.ucast_egress_port = meta.egress_port;
        } else if (hdr.packet_in.isValid()) {
            for_tm.ucast_egress_port = CPU_PORT;
        } else {
            for_deparser.drop_ctl = 1;
        }
    }
}

control SwitchDeparser(
    packet_out packet,
    inout headers_t hdr,
    in metadata_t meta,
    in ingress_intrinsic_metadata_for_deparser_t for_deparser
) {
    FrameDeparser() frame;

    apply {
        frame.apply(packet, hdr);
    }
}

struct no_headers_t {}

struct no_metadata_t {}

parser NoEgressParser(
    packet_in packet, out no_headers_t hdr, out no_metadata_t meta, out egress_intrinsic_metadata_t intrinsic
) {
    state start {
        packet.extract(intrinsic);
        transition accept;
    }
}

control NoEgress(
    inout no_headers_t hdr,
    inout no_metadata_t meta,
    in egress_intrinsic_metadata_t intrinsic,
    in egress_intrinsic_metadata_from_parser_t from_parser,
    inout egress_intrinsic_metadata_for_deparser_t for_deparser,
    inout egress_intrinsic_metadata_for_output_port_t for_port
) {
    apply {}
}

control NoEgressDeparser(
    packet_out packet,
    inout no_headers_t hdr,
    in no_metadata_t meta,
    in egress_intrinsic_metadata_for_deparser_t for_deparser
) {
    apply {}
}

Pipeline(
    SwitchParser(), SwitchIngress(), SwitchDeparser(), NoEgressParser(), NoEgress(), NoEgressDeparser()
) pipe;

@pkginfo(name="splitplane", version="1.0.0", organization="Splitplane")
Switch(pipe) main;
