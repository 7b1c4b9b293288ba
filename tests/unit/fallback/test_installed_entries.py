"""What is known of the small tables of two planes, and what an update becomes on the one that differs."""

import pytest

from controller.fallback import pace
from controller.fallback.installed_entries import Barred, Groups, InstalledEntries, KeptOut, merging
from controller.planes.base import (
    LOCAL,
    FallbackLink,
    GroupMember,
    Installed,
    Nexthop,
    NexthopGroup,
    NexthopState,
    Op,
    Policer,
    Refused,
    RouteKind,
    RouterInterface,
    Update,
    WriteBatch,
    route_action,
)


def nexthop(number: int, port: int = 1) -> Nexthop:
    return Nexthop(number, port, bytes((2, 0, 0, 0, 0, number)), NexthopState.FORWARD)


def group(number: int, *nexthops: int) -> NexthopGroup:
    return NexthopGroup(number, tuple(GroupMember(one, 1, 1) for one in nexthops))


def interface(number: int, fallback: FallbackLink | None = None) -> RouterInterface:
    return RouterInterface(number, 7, number, 0, bytes((2, 0, 0, 0, 1, number)), 1500, (), True, fallback)


def test_an_update_becomes_what_fits_what_is_there() -> None:
    there = InstalledEntries.of(Installed(nexthops={1: nexthop(1)}, damaged={("nexthop", 2), ("policer", 7)}))
    updates = [
        *(Update(Op.INSERT, nexthop(number)) for number in (1, 2, 3)),
        *(Update(Op.DELETE, nexthop(number)) for number in (1, 4)),
        *(Update(Op.MODIFY, nexthop(number)) for number in (1, 5)),
    ]
    assert [(one.op, one.entry.id) for one in there.fit("nexthop", updates)] == [
        (Op.MODIFY, 1),
        (Op.MODIFY, 2),
        (Op.INSERT, 3),
        (Op.DELETE, 1),
        (Op.INSERT, 1),
        (Op.INSERT, 5),
    ]
    assert [one.op for one in there.fit("policer", [Update(Op.INSERT, Policer(7, ()))])] == [Op.MODIFY]


def test_what_was_refused_did_not_happen() -> None:
    there = InstalledEntries()
    there.fit("nexthop", [Update(Op.INSERT, nexthop(1)), Update(Op.INSERT, nexthop(2))])
    there.refused(Refused("nexthop", 7, 1, Op.INSERT, "", full=True))
    there.refused(Refused("nexthop", 7, 2, Op.MODIFY, "", full=False))
    assert there.nexthop == {2}
    there.fit("nexthop", [Update(Op.DELETE, nexthop(2))])
    there.refused(Refused("nexthop", 7, 2, Op.DELETE, "", full=False))
    assert there.nexthop == {2}


@pytest.mark.parametrize("table", ["nexthop", "nexthop_group"])
def test_routes_to_what_is_barred_are_told(table: str) -> None:
    barred = Barred()
    to_nexthop, to_group = (route_action(kind, 5) for kind in (RouteKind.NEXTHOP, RouteKind.GROUP))
    assert to_nexthop not in barred
    barred.ids(table).add(5)
    assert (to_nexthop in barred, to_group in barred) == (table == "nexthop", table == "nexthop_group")
    assert route_action(RouteKind.NEXTHOP, 6) not in barred
    assert LOCAL not in barred
    barred.clear()
    assert (to_nexthop in barred, to_group in barred) == (False, False)


def test_what_was_kept_out_is_tried_until_it_was_written() -> None:
    kept, batch = KeptOut(), WriteBatch()
    batch.nexthops = [Update(Op.INSERT, nexthop(number)) for number in (1, 2)]
    batch.groups = [Update(Op.INSERT, group(number, 1)) for number in (1, 2)]
    refused = [("nexthop", 1), ("nexthop_group", 2)]
    kept.refused(batch, [Refused(table, 7, key, Op.INSERT, "", full=True) for table, key in refused])
    again = kept.once_more()
    assert (again.nexthops, again.groups) == ([batch.nexthops[0]], [batch.groups[1]])
    kept.took(WriteBatch(nexthops=[Update(Op.MODIFY, nexthop(1))]))
    assert (kept.nexthops, kept.groups) == ({}, {2: batch.groups[1]})
    kept.took(WriteBatch(groups=[Update(Op.DELETE, group(2))]))
    assert not kept.once_more()


def test_what_a_plane_lacks_or_has_otherwise_is_kept_out() -> None:
    kept = KeptOut()
    wanted = Installed(
        nexthops={number: nexthop(number) for number in (1, 2, 3)}, groups={1: group(1, 1), 2: group(2, 2)}
    )
    kept.lost(Installed(nexthops={1: nexthop(1), 2: nexthop(2, port=9)}, groups={2: group(2, 2)}), wanted)
    again = kept.once_more()
    assert again.nexthops == [Update(Op.INSERT, nexthop(number)) for number in (2, 3)]
    assert again.groups == [Update(Op.INSERT, group(1, 1))]


def test_groups_are_found_by_their_nexthops() -> None:
    groups = Groups()
    groups.follow([Update(Op.INSERT, group(1, 1, 2)), Update(Op.INSERT, group(2, 3)), Update(Op.INSERT, group(3, 2))])
    groups.follow([Update(Op.DELETE, group(3, 2)), Update(Op.MODIFY, group(2, 2, 3)), Update(Op.DELETE, group(9))])
    assert groups.having([2]) == [group(1, 1, 2), group(2, 2, 3)]
    assert groups.having({1}) == [group(1, 1, 2)]
    assert groups.having([]) == []
    assert groups.having([7]) == []


def test_what_two_planes_do_not_have_alike_is_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "STEP_ROUTES", 1)
    link = FallbackLink(4, 411)
    hard = Installed(
        router_interfaces={1: interface(1, link), 2: interface(2, link)},
        policers={7: Policer(7, (1,)), 8: Policer(8, (1,))},
        nexthops={1: nexthop(1), 2: nexthop(2), 3: nexthop(3, port=2)},
        groups={1: group(1, 1)},
        damaged={("nexthop", 9)},
        foreign=2,
    )
    soft = Installed(
        router_interfaces={1: interface(1), 3: interface(3)},
        policers={7: Policer(7, (1,)), 8: Policer(8, (2,))},
        nexthops={1: nexthop(1), 3: nexthop(3), 4: nexthop(4), 5: nexthop(5)},
        groups={1: group(1, 1), 2: group(2, 4)},
        routes={7: {}},
        damaged={("policer", 9)},
        foreign=1,
    )
    barred = Barred(nexthops={2, 4}, groups={2})
    ends = {number: (interface(number, link), interface(number)) for number in (1, 2)}
    both, steps = Installed(), 0
    for _ in merging(both, hard, soft, barred, lambda one: ends.get(one.id)):
        steps += 1
        barred.clear()  # what the hardware takes meanwhile is not what was read
    assert steps == 3 + 2 + 5 + 2
    assert both.router_interfaces == {number: interface(number) for number in (1, 2, 3)}
    assert both.damaged == {
        ("nexthop", 9),
        ("policer", 9),
        ("router_interface", 2),  # which the other lacks; of the third it is not known how it should be
        ("policer", 8),
        ("nexthop", 2),  # barred from the hardware, and not even in the fallback
        ("nexthop", 3),
        ("nexthop", 5),
    }
    assert (both.foreign, both.routes, set(both.nexthops), set(both.groups)) == (3, {7: {}}, {1, 2, 3, 4, 5}, {1, 2})
    assert both.nexthops[3] == nexthop(3)  # as the fallback has it
    assert both.hardware is not None
    assert both.hardware.links == {1: link, 2: link}
