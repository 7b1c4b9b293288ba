"""Planes with a fallback in a document: the link, the capacity, and where a router's routes are."""

from dataclasses import replace

import pytest

from controller.errors import SpecError
from controller.model import Capacity, FallbackConfig, Placement
from controller.spec.changes import changes
from controller.spec.check import check
from controller.spec.document import PlaneOptions
from controller.spec.merge import Where, merge
from controller.spec.parse import parse
from controller.spec.planes import with_options
from controller.spec.state import Ids, State

GOOD = """\
version: 1
planes:
  - name: s1
    datapath_id: 1
    fallback: {plane: f1, port: s1-f1, peer_port: f1-s1}
    capacity: {ipv4_route: 1000}
  - {name: f1, kind: p4runtime, address: "127.0.0.1:9559", ports: {f1-s1: 1}}
tenants:
  - name: red
    slices: [{plane: s1, ports: {p1: [untagged]}}]
    routers:
      - {name: r1, plane: s1, placement: hardware, interfaces: [{name: eth0, port: p1}]}
      - {name: r2, plane: s1}
"""


def laid_over(text: str, before: State | None = None) -> State:
    state, where = merge(parse(text, "net.yaml"), before or State(), Ids(), {})
    check(state, where)
    return state


def test_a_plane_names_its_fallback() -> None:
    state = laid_over(GOOD)
    plane = state.planes["s1"]
    assert plane.fallback == FallbackConfig("f1", "s1-f1", "f1-s1")
    assert plane.capacity == Capacity(1000, 0)
    assert state.routers["red/r1"].placement is Placement.HARDWARE
    assert state.routers["red/r2"].placement is Placement.AUTO


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("plane: f1, port", "plane: f2, port", "3: fallback of plane s1: plane f2 is not declared (known: f1, s1)"),
        ("plane: f1, port", "plane: s1, port", "plane s1 cannot be the fallback of s1: it has one itself"),
        (
            "peer_port: f1-s1",
            "peer_port: f1-s2",
            "fallback link of plane s1: plane f1 has no port f1-s2; add it there",
        ),
        (
            "plane: s1, ports: {p1",
            "plane: f1, ports: {p1",
            "plane f1 is the fallback of s1; give a slice of that plane",
        ),
        ("{p1: [untagged]}", "{s1-f1: [100], p1: [untagged]}", "port s1-f1 of plane s1 is its fallback link"),
        ("ipv4_route: 1000", "ipv4_route: 0", "greater than or equal to 1"),
        ("placement: hardware", "placement: both", "'auto', 'hardware' or 'software'"),
        (
            "  - {name: f1,",
            "  - {name: s2, datapath_id: 2, fallback: {plane: f1, port: a, peer_port: f1-s1}}\n  - {name: f1,",
            "plane f1 is the fallback of s1 and of s2; give one of them another",
        ),
    ],
)
def test_what_cannot_be_is_said_in_one_line(old: str, new: str, problem: str) -> None:
    assert old in GOOD
    with pytest.raises(SpecError) as caught:
        laid_over(GOOD.replace(old, new, 1))
    assert problem in str(caught.value)


def test_software_needs_a_fallback() -> None:
    text = GOOD.replace("plane: s1, placement: hardware", "plane: s2, placement: software")
    text = text.replace("tenants:", "  - {name: s2, datapath_id: 2}\ntenants:")
    text = text.replace("[{plane: s1,", "[{plane: s1}, {plane: s2,")
    with pytest.raises(SpecError, match="red/r1 is placed in software, but plane s2 has no fallback"):
        laid_over(text)


def test_a_quota_of_hardware_needs_a_fallback() -> None:
    quota = "{p1: [untagged]}, quota: {hardware_ipv4_routes: 500, hardware_ipv6_routes: 0}}"
    text = GOOD.replace("{p1: [untagged]}}", quota)
    before = laid_over(GOOD)
    after = laid_over(text, before)
    assert {router.quota.hardware_routes(family) for router in after.routers.values() for family in (4, 6)} == {
        500,
        0,
    }
    (change,) = changes(before, after)
    assert change.details == ["quota hardware_ipv4_routes none → 500", "quota hardware_ipv6_routes none → 0"]
    text = text.replace(
        "    fallback: {plane: f1, port: s1-f1, peer_port: f1-s1}\n    capacity: {ipv4_route: 1000}\n", ""
    )
    with pytest.raises(SpecError) as caught:
        laid_over(text.replace("placement: hardware, ", ""))
    assert str(caught.value) == (
        "net.yaml:8: tenant red has a quota hardware_ipv4_routes, but plane s1 has no fallback "
        "for what is over it; leave it out, or add one"
    )


def test_a_fallback_is_not_detached_by_itself() -> None:
    state = laid_over(GOOD)
    with pytest.raises(SpecError, match="plane f1 is the fallback of s1; detach s1 instead"):
        check(replace(state, detached=frozenset({"f1"})), Where("detach"))
    check(replace(state, detached=frozenset({"f1", "s1"})), Where("detach"))


def test_diff_shows_link_capacity_and_placement() -> None:
    before = laid_over(GOOD)
    text = GOOD.replace("ipv4_route: 1000", "ipv4_route: 500").replace("placement: hardware", "placement: software")
    text = text.replace("port: s1-f1", "port: s1-f9")
    plane, router = changes(before, laid_over(text, before))
    assert plane.details == [
        "fallback f1 by s1-f1 and f1-s1 → f1 by s1-f9 and f1-s1",
        "capacity ipv4_route 1000 → 500",
    ]
    assert router.details == ["placement hardware → software"]


def test_attaching_a_plane_again_keeps_its_fallback() -> None:
    known = laid_over(GOOD).planes["s1"]
    section = with_options(known, "s1", PlaneOptions(datapath_id=2))
    assert section.fallback is not None
    assert section.fallback.plane == "f1"
    assert section.capacity is not None
    assert section.capacity.ipv4_route == 1000
