"""Declarative and idempotent: what a document names becomes as declared, what it does not name stays."""

from dataclasses import replace

import pytest
from growth import MUCH, TIMES, Growth

from controller.errors import Conflict, SpecError
from controller.model import MAX_ROUTERS, RouteSource, Routing, Suite
from controller.spec.changes import changes, show_vlans
from controller.spec.check import check
from controller.spec.document import Document
from controller.spec.merge import merge
from controller.spec.parse import Parsed, parse
from controller.spec.state import Ids, State

HEAD = "version: 1\nplanes: [{name: s1, datapath_id: 1}]\ntenants:\n"
RED = """\
  - name: red
    slices: [{plane: s1, ports: {p1: [untagged, 100-110]}}]
    routers:
      - name: r1
        plane: s1
        interfaces: [{name: eth0, port: p1, vlan: 100, addresses: [10.0.0.1/24]}, {name: to-r2}]
        frr: |
          router bgp 1
      - {name: r2, plane: s1, interfaces: [{name: to-r1}]}
    links:
      - ends: [{router: r1, interface: to-r2, port: pa}, {router: r2, interface: to-r1, port: pb}]
"""


def laid_over(state: State, text: str, ids: Ids) -> State:
    after, where = merge(parse(text, "t.yaml"), state, ids, {})
    check(after, where)
    return after


def test_applying_twice_changes_nothing_and_issues_no_ids() -> None:
    ids = Ids(identity=0xAB)
    once = laid_over(State(), HEAD + RED, ids)
    issued = ids.copy()
    assert laid_over(once, HEAD + RED, ids) == once
    assert ids == issued
    assert changes(once, once) == []


COMMAND = '{"daemons": [{"argv": ["/sbin/d", "1"], "name": "d", "reload": "restart"}], "files": {}, "user": "nobody"}'
"""The text of a command, in the one way in which it is kept."""


@pytest.mark.parametrize(
    ("keys", "routing", "source"),
    [
        ("", Routing(), RouteSource.FPM),
        ("frr: ''", Routing(), RouteSource.FPM),
        ("source: netlink", Routing(), RouteSource.NETLINK),
        ("bird: ''", Routing(Suite.BIRD), RouteSource.NETLINK),
        ("bird_file: a", Routing(Suite.BIRD, "text"), RouteSource.NETLINK),
        ("ip: ''", Routing(Suite.IP), RouteSource.NETLINK),
        ("ip: '#', source: netlink", Routing(Suite.IP, "#"), RouteSource.NETLINK),
        ("command: {daemons: [{argv: [/sbin/d, '1']}]}", Routing(Suite.COMMAND, COMMAND), RouteSource.NETLINK),
    ],
)
def test_the_text_that_is_given_names_the_suite(keys: str, routing: Routing, source: RouteSource) -> None:
    text = HEAD + f"  - {{name: red, slices: [{{plane: s1}}], routers: [{{name: r1, plane: s1, {keys}}}]}}\n"
    state, _ = merge(parse(text, "t.yaml"), State(), Ids(), {"a": "text"})
    router = state.routers["red/r1"]
    assert (router.routing, router.source) == (routing, source)


def test_a_changed_text_and_another_suite_are_told() -> None:
    ids, text = Ids(), HEAD + RED
    frr = laid_over(State(), text, ids)
    bird = laid_over(frr, text.replace("frr: |", "bird: |"), ids)
    more = laid_over(bird, text.replace("frr: |", "bird: |").replace("router bgp 1", "router bgp 2"), ids)
    (first,), (second,) = changes(frr, bird), changes(bird, more)
    assert first.details == ["source fpm → netlink", "frr → bird: its guest starts anew"]
    assert second.details == ["BIRD configuration changed"]
    assert bird.routers["red/r1"].vrf_id == frr.routers["red/r1"].vrf_id


def test_macs_come_from_ids() -> None:
    state = laid_over(State(), HEAD + RED, Ids(identity=0xAB))
    macs = [i.mac.hex(":") for router in state.routers.values() for i in router.interfaces]
    assert macs == ["02:53:ab:00:00:01", "02:53:ab:00:00:02", "02:53:ab:00:00:03"]


def test_what_a_document_does_not_name_stays() -> None:
    ids = Ids()
    state = laid_over(State(), HEAD + RED, ids)
    text = "version: 1\ntenants: [{name: red, routers: [{name: r3, plane: s1, hold_time_s: 9}]}]\n"
    after = laid_over(state, text, ids)
    assert after.routers.keys() == {"red/r1", "red/r2", "red/r3"}
    assert after.routers["red/r1"] == state.routers["red/r1"]
    assert after.links == state.links
    assert after.tenants == state.tenants


def test_a_stored_link_gives_its_interface_the_port() -> None:
    ids = Ids()
    state = laid_over(State(), HEAD + RED, ids)
    text = (
        "version: 1\ntenants: [{name: red, routers: [{name: r2, plane: s1, interfaces: [{name: to-r1, mtu: 9000}]}]}]"
    )
    after = laid_over(state, text, ids)
    (interface,) = after.routers["red/r2"].interfaces
    assert (interface.port, interface.mtu, after.links) == ("pb", 9000, state.links)


def test_leaving_a_link_names_the_end_that_stays_behind() -> None:
    state = laid_over(State(), HEAD + RED, Ids())
    text = "version: 1\ntenants: [{name: red, routers: [{name: r2, plane: s1}]}]"
    with pytest.raises(SpecError, match=r"t\.yaml:2: interface to-r2 of red/r1 loses its link"):
        laid_over(state, text, Ids())


def test_a_port_of_its_own_ends_a_link() -> None:
    ids = Ids()
    state = laid_over(State(), HEAD + RED, ids)
    text = HEAD + RED[: RED.index("    links:")].replace("to-r2}", "to-r2, port: p1, vlan: 101}").replace(
        "to-r1}", "to-r1, port: p1, vlan: 102}"
    )
    after = laid_over(state, text, ids)
    assert after.links == frozenset()
    assert after.routers["red/r2"].interfaces[0].port == "p1"


def test_no_link_is_compared_with_each_of_thousands() -> None:
    growth = Growth()
    for count in (160, 160 * TIMES):
        for _ in range(2):
            with growth.of(count):
                lay_a_ring(count)
    assert growth.times < MUCH


def lay_a_ring(count: int) -> None:
    """Declare a ring of so many links, again, and without them."""
    ring = [{"name": f"r{n}", "plane": "s1", "interfaces": [{"name": "in"}, {"name": "out"}]} for n in range(count)]
    links = [
        {
            "ends": [
                {"router": f"r{n}", "interface": "out", "port": f"a{n}"},
                {"router": f"r{(n + 1) % count}", "interface": "in", "port": f"b{n}"},
            ]
        }
        for n in range(count)
    ]
    state, ids = laid_over(State(), HEAD + RED, Ids()), Ids()

    def of(tenant: dict[str, object]) -> Parsed:
        document = Document.model_validate({"version": 1, "tenants": [{"name": "red", **tenant}]})
        return Parsed("t.yaml", (document,), ({},))

    first, _ = merge(of({"routers": ring, "links": links}), state, ids, {})
    assert len(first.links) == count
    assert merge(of({"routers": ring, "links": links}), first, ids, {})[0] == first
    assert merge(of({"routers": ring}), first, ids, {})[0] == first


def test_link_ports_belong_to_the_tenants_slice() -> None:
    blue = "  - {name: blue, slices: [{plane: s1, ports: {pa: [untagged]}}]}\n"
    with pytest.raises(SpecError, match="port pa untagged of plane s1 is in the slices of tenants blue and red"):
        laid_over(State(), HEAD + RED + blue, Ids())


def test_a_vlan_changes_hands_in_one_document() -> None:
    ids = Ids()
    before = laid_over(State(), HEAD + RED, ids)
    taken = RED.replace("100-110", "101-110").replace("vlan: 100", "vlan: 101")
    blue = """\
  - name: blue
    slices: [{plane: s1, ports: {p1: [100]}}]
    routers: [{name: r1, plane: s1, interfaces: [{name: eth0, port: p1, vlan: 100}]}]
"""
    after = laid_over(before, HEAD + taken + blue, ids)
    said = {(c.verb.value, c.kind, c.name): c.details for c in changes(before, after)}
    assert said["change", "router", "red/r1"] == ["interface eth0 changed (vlan 100 → 101)"]
    assert said["change", "slice", "red@s1"] == ["port p1: untagged 100-110 → untagged 101-110"]
    assert ("create", "router", "blue/r1") in said


def test_a_router_on_another_plane_is_another_router() -> None:
    ids = Ids()
    before = laid_over(State(), HEAD + RED.replace("100-110", "100"), ids)
    text = HEAD.replace("}]", "}, {name: s2, datapath_id: 2}]") + RED.replace("s1", "s2").replace("100-110", "100")
    after = laid_over(before, text, ids)
    vrfs = {router.vrf_id for router in before.routers.values()}
    assert vrfs.isdisjoint(router.vrf_id for router in after.routers.values())


def test_a_quota_reaches_the_routers_of_its_slice_without_naming_them() -> None:
    ids = Ids()
    state = laid_over(State(), HEAD + RED, ids)
    text = "version: 1\ntenants: [{name: red, slices: [{plane: s1, ports: {p1: [100]}, quota: {groups: 7}}]}]"
    assert {router.quota.groups for router in laid_over(state, text, ids).routers.values()} == {7}


def test_router_ids_wrap_to_the_lowest_free_one() -> None:
    ids = Ids(next_vrf=MAX_ROUTERS, taken=frozenset({1, 3}))
    assert [ids.vrf(), ids.vrf(), ids.vrf()] == [MAX_ROUTERS, 2, 4]
    full = Ids(next_vrf=MAX_ROUTERS + 1, taken=frozenset(range(1, MAX_ROUTERS + 1)))
    with pytest.raises(
        Conflict, match=f"^a controller has {MAX_ROUTERS} routers at most, .*; declare fewer, or delete"
    ):
        full.vrf()


def test_a_tried_out_issuer_leaves_the_real_one_alone() -> None:
    ids = Ids()
    ids.copy().vrf()
    assert ids == Ids()


def test_vlans_are_shown_as_written() -> None:
    assert show_vlans(frozenset({0, 1, 2, 3, 9})) == "untagged 1-3 9"
    assert show_vlans(frozenset()) == ""


def test_a_detached_plane_is_attached_by_declaring_it() -> None:
    state = replace(laid_over(State(), HEAD + RED, Ids()), detached=frozenset({"s1"}))
    assert laid_over(state, HEAD + RED, Ids()).detached == frozenset()
