"""What no plane has a table for is named with its line, and nothing else is."""

from pathlib import Path
from weakref import ref

import pytest

from controller.guests.suites import unforwarded as module
from controller.guests.suites.unforwarded import remark, unforwarded
from controller.model import MAX_ROUTERS, Routing, Suite

ROOT = Path(__file__).parents[3]
KERNEL = "protocol kernel { ipv4 { export all; }; }\n"


@pytest.mark.parametrize(
    ("line", "feature"),
    [
        ("ip pim", "multicast"),
        (" ip igmp version 3", "multicast"),
        ("ip mroute 10.0.0.0/8 eth0", "multicast"),
        ("mpls ldp", "MPLS"),
        ("address-family ipv4 vpn", "MPLS"),
        ("ip route 10.0.0.0/8 10.1.0.2 label 100", "MPLS"),
        ("segment-routing on", "segment routing"),
        ("vrf blue", "VRFs inside of a router"),
        ("router bgp 65001 vrf blue", "VRFs inside of a router"),
        ("interface eth1 vrf blue", "VRFs inside of a router"),
        ("vrf default-x", "VRFs inside of a router"),
        ("router bgp 65001 vrf default-x", "VRFs inside of a router"),
        ("ip route 10.0.0.0/8 10.1.0.2 nexthop-vrf default.x", "VRFs inside of a router"),
        ("address-family l2vpn evpn", "EVPN"),
        ("  advertise-all-vni", "EVPN"),
        ("address-family ipv4 flowspec", "flow specifications"),
        ("pbr-map A seq 1", "policy routing"),
        ("ip nhrp network-id 1", "NHRP"),
        ("ip route 10.0.0.0/8 10.1.0.2 table 100", "other tables than main"),
        (" set table 100", "other tables than main"),
        ("ipv6 route 2001:db8::/32 from 2001:db8:1::/64 fe80::1 eth0", "routes for packets of some sources"),
    ],
)
def test_a_line_of_frr_is_named(line: str, feature: str) -> None:
    text = f"hostname r1\n!\n{line}\n"
    assert unforwarded(Routing(Suite.FRR, text)) == [(3, f"{feature}: {line.strip()}")]


@pytest.mark.parametrize(
    "line",
    [
        "! ip pim",
        "description mpls ldp to the core",
        "router bgp 65001",
        "router bgp 65001 vrf default",
        "interface eth1 vrf default",
        "vrf default",
        "ip route 10.0.0.0/8 10.1.0.2 vrf default nexthop-vrf default",
        "ip route 10.0.0.0/8 10.1.0.2 table 254",
        "address-family ipv4 unicast",
        "ip route 10.0.0.0/8 10.1.0.2",
        "ipv6 route 2001:db8::/32 fe80::1 eth0",
        "ip prefix-list table permit 10.0.0.0/8",
        "router ospf",
        "ip ospf area 0",
    ],
)
def test_other_lines_of_frr_are_not(line: str) -> None:
    assert unforwarded(Routing(Suite.FRR, line)) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (KERNEL + "protocol bgp { vpn4 { import all; }; }\n", [(2, "MPLS")]),
        (KERNEL + "protocol bgp b {\n flow4 { import all; };\n}\n", [(3, "flow specifications")]),
        (KERNEL + 'protocol ospf {\n vrf "blue";\n}\n', [(3, "VRFs inside of a router")]),
        ("protocol kernel { kernel table 100; }\n", [(1, "other tables than main")]),
        ("protocol kernel { kernel table 254; }\n", []),
        ("protocol kernel { kernel  table\t 254 ; }\n", []),
        ("protocol kernel { kernel table  100; }\n", [(1, "other tables than main")]),
        (KERNEL + "ipv6 sadr table s;\n", [(2, "routes for packets of some sources")]),
        (KERNEL + "protocol static { ipv4;\n route 10.0.0.0/8 via 10.1.0.2 mpls 100; }\n", [(3, "MPLS")]),
        (KERNEL + "protocol static { route 10.0.0.0/8 via 10.1.0.2 mpls 1/2 via 10.1.0.3 mpls 3; }\n", [(2, "MPLS")]),
        (KERNEL + "protocol static { route 10.0.0.0/8 via 10.1.0.2\n mpls\n 100; }\n", [(3, "MPLS")]),
        (KERNEL + "protocol static { route 10.0.0.0/8 via 10.1.0.2 { gw_mpls = 100; }; }\n", [(2, "MPLS")]),
        (KERNEL + "function mpls_1() { return 1; }\nprotocol static mpls1 {}\n", []),
        (KERNEL + "# vpn4 { }\n", []),
        ("protocol device {}\n", [(1, "nothing is exported to the kernel: add a `protocol kernel`")]),
    ],
)
def test_statements_of_bird(text: str, found: list[tuple[int, str]]) -> None:
    assert unforwarded(Routing(Suite.BIRD, text)) == found


def test_one_line_names_three_and_counts_the_rest() -> None:
    text = "ip pim\nmpls ldp\nvrf blue\npbr-map A seq 1\n"
    assert remark(Routing(Suite.FRR, text)) == (
        "no plane forwards what frr asks for in line 1 (multicast: ip pim); line 2 (MPLS: mpls ldp);"
        " line 3 (VRFs inside of a router: vrf blue); and 1 more"
    )
    assert remark(Routing(Suite.IP, "route add 10.0.0.0/8 via 10.1.0.2\n")) == ""


def test_the_topologies_ask_for_nothing_of_it() -> None:
    texts = [path.read_text() for path in ROOT.glob("topologies/*/*.conf")]
    assert texts
    assert [remark(Routing(Suite.FRR, text)) for text in texts if "protocol" not in text] == [""] * len(texts)


def test_as_many_texts_as_there_may_be_routers_are_each_read_once_and_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[str] = []
    monkeypatch.setattr(module, "unforwarded", lambda routing: read.append(routing.text) or unforwarded(routing))
    texts = [Routing(Suite.FRR, f"hostname r{number}\n") for number in range(MAX_ROUTERS)]
    for routing in (*texts, *texts):
        assert remark(routing) == ""
    assert len(read) == MAX_ROUTERS
    last = ref(texts[-1])
    del texts, routing
    assert last() is None
