"""P4Runtime planes in a document: which keys each kind has, ports that are declared, and what changes."""

import pytest

from controller.errors import SpecError
from controller.model import PlaneConfig, PlaneKind, PlanePort
from controller.spec.changes import changes
from controller.spec.check import check
from controller.spec.document import PlaneOptions
from controller.spec.merge import merge
from controller.spec.parse import parse
from controller.spec.planes import reached_at, with_options
from controller.spec.state import Ids, State

GOOD = """\
version: 1
planes:
  - {name: s1, datapath_id: 1}
  - name: b1
    kind: p4runtime
    address: "127.0.0.1:9559"
    device_id: 1
    ports:
      p1: 1
      p2: {number: 2, device: b1-eth2}
tenants:
  - name: red
    slices: [{plane: b1, ports: {p1: [untagged], p2: [100]}}]
    routers:
      - name: r1
        plane: b1
        interfaces:
          - {name: eth0, port: p1}
          - {name: eth1, port: p2, vlan: 100}
"""


def laid_over(text: str, before: State | None = None) -> State:
    state, where = merge(parse(text, "net.yaml"), before or State(), Ids(), {})
    check(state, where)
    return state


def test_a_device_and_its_ports_are_declared() -> None:
    plane = laid_over(GOOD).planes["b1"]
    ports = (PlanePort("p1", 1), PlanePort("p2", 2, "b1-eth2"))
    assert plane == PlaneConfig("b1", PlaneKind.P4RUNTIME, 0, "127.0.0.1:9559", 1, ports)
    assert reached_at(plane) == "127.0.0.1:9559 device 1"


@pytest.mark.parametrize("address", ["switch-1.example:9559", "[2001:db8::1]:9559", "unix:/run/bmv2/s1.sock"])
def test_where_a_device_may_listen(address: str) -> None:
    assert laid_over(GOOD.replace("127.0.0.1:9559", address)).planes["b1"].address == address


def test_the_device_id_is_1_where_it_is_left_out() -> None:
    assert laid_over(GOOD.replace("    device_id: 1\n", "")) == laid_over(GOOD)
    assert laid_over(GOOD.replace("device_id: 1", "device_id: 0")).planes["b1"].device_id == 0


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("p2: {number: 2", "p2: {number: 1", 10, "ports p1 and p2 of plane b1 have the number 1"),
        ("p1: 1\n", "p1: {number: 1, device: b1-eth2}\n", 10, "ports p1 and p2 of plane b1 have the device b1-eth2"),
        ("device_id: 1", "datapath_id: 1", 7, "plane b1 of kind p4runtime has no datapath_id; leave it out"),
        ("datapath_id: 1", "datapath_id: 1, address: 'h:1'", 3, "plane s1 of kind openflow has no address; leave it"),
        ("datapath_id: 1", "datapath_id: 1, device_id: 0", 3, "plane s1 of kind openflow has no device_id"),
        ('    address: "127.0.0.1:9559"\n', "", 4, "plane b1 of kind p4runtime needs an address"),
        ("    ports:\n      p1: 1\n      p2: {", "    ports: {}\n    x: {", 9, "unknown key 'x'; known here: name"),
        ("address: \"127.0.0.1:9559\"", "address: localhost", 6, "'localhost' should be HOST:PORT, [IPV6]"),
        ("127.0.0.1:9559", "127.0.0.1:70000", 6, "'127.0.0.1:70000' has no port from 1 to 65535"),
        ("127.0.0.1:9559", "unix:bmv2.sock", 6, "should be HOST:PORT, [IPV6]:PORT or unix:/PATH"),
        ("device_id: 1", "device_id: -1", 7, "greater than or equal to 0"),
        ("p1: 1\n", "p1: 0\n", 9, "greater than or equal to 1"),
        ("p1: 1\n", "p1: one\n", 9, "'one' should be a valid integer"),
        ("number: 2", "numbr: 2", 10, "unknown key 'numbr'; known here: number, device"),
        ("device: b1-eth2", "device: a-name-of-16-let", 10, "at most 15 characters (IFNAMSIZ)"),
        ("port: p1}", "port: p3}", 18, "plane b1 has no port p3 (known: p1, p2); add it under its ports:"),
        ("{name: s1, datapath_id: 1}", '{name: b2, kind: p4runtime, address: "127.0.0.1:9559", ports: {p1: 1}}', 4,
         "planes b2 and b1 have the same address and device_id"),
        ("device_id: 1", "shared_meters: [[ttl, mtu]]", 7, "plane b1 of kind p4runtime has no shared_meters; l"),
        ("datapath_id: 1", "datapath_id: 1, shared_meters: [[ttl]]", 3, "shared by two punt classes at least"),
        ("datapath_id: 1", "datapath_id: 1, shared_meters: [[ttl, x]]", 3, "no punt class is called x; there are"),
        ("datapath_id: 1", "datapath_id: 1, shared_meters: [[ttl, mtu], [arp, ttl]]", 3, "class ttl twice; keep"),
        ("datapath_id: 1}", "datapath_id: 1, shared_meters:\n    [[ttl, mtu],\n    [arp, arp]]}", 5, "arp twice"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_line(old: str, new: str, line: int, words: str) -> None:
    assert old in GOOD
    with pytest.raises(SpecError) as caught:
        laid_over(GOOD.replace(old, new, 1))
    assert words in str(caught.value)
    assert str(caught.value).startswith(f"net.yaml:{line}: ")


def test_a_device_needs_ports() -> None:
    text = 'version: 1\nplanes: [{name: b1, kind: p4runtime, address: "h:1"}]\n'
    with pytest.raises(SpecError, match=r"^net\.yaml:2: plane b1 of kind p4runtime needs ports, which"):
        laid_over(text)


def test_one_server_may_serve_two_devices() -> None:
    other = '  - {name: b2, kind: p4runtime, address: "127.0.0.1:9559", device_id: 2, ports: {p1: 1}}\ntenants:'
    assert len(laid_over(GOOD.replace("tenants:", other)).planes) == 3


def test_a_change_is_told_port_by_port_and_the_order_of_ports_is_none() -> None:
    before = laid_over(GOOD)
    swapped = GOOD.replace("      p1: 1\n", "").replace("tenants:", "      p1: 1\ntenants:")
    assert laid_over(swapped, before) == before
    text = GOOD.replace("device: b1-eth2", "device: b1-eth9").replace("p1: 1\n", "p1: 1\n      p3: 3\n")
    (change,) = changes(before, laid_over(text.replace("127.0.0.1", "127.0.0.2"), before))
    assert change.details == [
        "address 127.0.0.1:9559 → 127.0.0.2:9559",
        "port p2: 2 device b1-eth2 → 2 device b1-eth9",
        "port p3: none → 3",
    ]


def test_classes_that_share_a_meter_are_sets_whose_order_is_none() -> None:
    before = laid_over(GOOD)
    shared = GOOD.replace("datapath_id: 1", "datapath_id: 1, shared_meters: [[options, glean, ttl], [bgp, bfd]]")
    after = laid_over(shared, before)
    assert after.planes["s1"].shared_meters == (("bfd", "bgp"), ("glean", "ttl", "options"))
    (change,) = changes(before, after)
    assert change.details == ["shared_meters none → bfd+bgp, glean+ttl+options"]
    turned = GOOD.replace("datapath_id: 1", "datapath_id: 1, shared_meters: [[bfd, bgp], [ttl, options, glean]]")
    assert laid_over(turned, after) == after
    assert laid_over(GOOD, after) == before, "a document that names the plane says all of it"
    assert with_options(after.planes["s1"], "s1", PlaneOptions(datapath_id=9)).shared_meters == [
        ["bfd", "bgp"],
        ["glean", "ttl", "options"],
    ]


def test_a_port_in_use_stays() -> None:
    before = laid_over(GOOD)
    text = 'version: 1\nplanes: [{name: b1, kind: p4runtime, address: "h:1", ports: {p2: 2}}]\n'
    with pytest.raises(SpecError, match="interface eth0 of red/r1: plane b1 has no port p1"):
        laid_over(text, before)
