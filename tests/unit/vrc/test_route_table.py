"""The route table: what is sent of what was learned."""

import pytest
from netlink_bytes import attribute, by_gateway, by_nexthop, group, multipath, nexthop, route, u32
from route_tables import UP, changes, delete, empty_table, taken

from vrc.netlink.requests import NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE
from vrc.netlink.route_messages import NLM_F_APPEND, NLM_F_MULTI, RTM_DELNEXTHOP
from vrc.routes.system_routes import never_mirrored
from vrc.routes.table import RouteTable
from wire.columns import prefix_key


@pytest.fixture
def table() -> RouteTable:
    return empty_table()


def test_a_replaced_route_is_one_change(table: RouteTable) -> None:
    scope = table.open_scope()
    table.apply(changes(route("10.0.0.0/8", by_gateway("10.1.0.2", 2))), scope)
    assert taken(table) == {prefix_key("10.0.0.0/8"): 1}
    table.apply(changes(delete("10.0.0.0/8"), route("10.0.0.0/8", by_gateway("10.1.0.3", 2))), scope)
    assert taken(table) == {prefix_key("10.0.0.0/8"): 2}
    table.apply(changes(delete("10.0.0.0/8")), scope)
    assert taken(table) == {prefix_key("10.0.0.0/8"): 0}
    table.apply(changes(delete("10.0.0.0/8")), scope)
    assert not table.pending


def test_a_repeated_route_is_no_change(table: RouteTable) -> None:
    first = changes(nexthop(5, 2, "10.1.0.2"), route("10.0.0.0/8", by_nexthop(5)))
    table.apply(first, table.open_scope())
    taken(table)
    # A new life of zebra: the same route under another nexthop id.
    again = changes(nexthop(5, 3, "10.2.0.2"), nexthop(6, 2, "10.1.0.2"), route("10.0.0.0/8", by_nexthop(6)))
    table.apply(again, table.open_scope())
    assert not table.pending


def test_an_id_used_anew_does_not_move_old_routes(table: RouteTable) -> None:
    old = table.open_scope()
    table.apply(changes(nexthop(5, 2, "10.1.0.2"), route("10.0.0.0/8", by_nexthop(5))), old)
    taken(table)
    new = table.open_scope()
    table.apply(changes(nexthop(5, 3, "10.2.0.2"), route("11.0.0.0/8", by_nexthop(5))), new)
    assert list(taken(table)) == [prefix_key("11.0.0.0/8")]
    assert table.keep_only(new) == 1
    assert taken(table) == {prefix_key("10.0.0.0/8"): 0}
    assert table.scopes == [new, table.system.scope]


def test_of_a_life_that_has_ended_only_what_its_routes_need_is_kept(table: RouteTable) -> None:
    table.open_scope().ended = True  # before it said anything
    lives = [table.open_scope()]
    way = (nexthop(5, 2, "10.1.0.2"), group(9, (5, 1)), group(8, (6, 1)), nexthop(6, 2, "10.1.0.3"))
    table.apply(changes(*way, *(route(f"1{n}.0.0.0/8", by_nexthop(9)) for n in range(2))), lives[0])
    table.sweep()
    assert set(lives[0].objects) == {5, 6, 8, 9}
    for n in range(2):
        lives[-1].ended = True
        lives.append(table.open_scope())
        table.sweep()
        assert set(lives[0].objects) == {5, 9}
        assert table.scopes == [*lives, table.system.scope]
        table.apply(changes(*way, route(f"1{n}.0.0.0/8", by_nexthop(9))), lives[-1])
    table.sweep()
    assert table.scopes == [*lives[1:], table.system.scope]
    assert len(table) == 2


def test_stale_routes_the_kernel_has_are_adopted(table: RouteTable) -> None:
    old = table.open_scope()
    table.apply(changes(*(route(f"1{n}.0.0.0/8", by_gateway("10.1.0.2", 2)) for n in range(3))), old)
    taken(table)
    new, kernel = table.open_scope(), table.open_scope(inline_first=True)
    table.apply(changes(route("10.0.0.0/8", by_gateway("10.1.0.2", 2))), new)
    dump = changes(
        route("10.0.0.0/8", by_gateway("10.2.0.9", 3), kernel=True),
        route("11.0.0.0/8", by_gateway("10.1.0.2", 2, metric=10), kernel=True),
        route("11.0.0.0/8", by_gateway("10.2.0.9", 3, metric=20), kernel=True),
        route("ff00::/8", attribute(4, u32(2)), kernel=True),
    )
    table.adopt(dump, kernel, new)
    assert table.keep_only(new, kernel) == 1
    assert taken(table) == {prefix_key("12.0.0.0/8"): 0}


def test_what_zebra_withdraws_during_a_dump_stays_gone(table: RouteTable) -> None:
    new, kernel = table.open_scope(), table.open_scope(inline_first=True)
    table.apply(changes(route("10.0.0.0/8", by_gateway("10.1.0.2", 2))), new)
    table.withdrawn = set()
    table.apply(changes(delete("10.0.0.0/8"), delete("11.0.0.0/8")), new)
    listed = (route(f"1{n}.0.0.0/8", by_gateway("10.1.0.2", 2), kernel=True) for n in range(3))
    table.adopt(changes(*listed), kernel, new)
    assert set(taken(table)) == {prefix_key("10.0.0.0/8"), prefix_key("12.0.0.0/8")}
    assert prefix_key("10.0.0.0/8") not in table
    assert prefix_key("12.0.0.0/8") in table


def test_links_move_routes(table: RouteTable, monkeypatch: pytest.MonkeyPatch) -> None:
    scope = table.open_scope()
    table.apply(
        changes(route("10.0.0.0/8", by_gateway("10.1.0.2", 9)), route("::/0", by_gateway("fe80::1", 2))), scope
    )
    assert taken(table) == {prefix_key("::/0"): 1}
    monkeypatch.setitem(UP, 9, 109)
    table.refresh()
    assert taken(table) == {prefix_key("10.0.0.0/8"): 2}
    monkeypatch.delitem(UP, 9)
    table.refresh()
    assert taken(table) == {prefix_key("10.0.0.0/8"): 0}


def test_prefixes_that_are_never_mirrored() -> None:
    never = [
        "127.0.0.0/8",
        "169.254.0.0/16",
        "224.0.0.0/4",
        "239.1.1.1/32",
        "255.255.255.255/32",
        "fe80::/64",
        "ff02::/16",
    ]
    assert all(never_mirrored(prefix_key(prefix)) for prefix in never)
    mirrored = [
        "0.0.0.0/0",
        "128.0.0.0/1",
        "169.0.0.0/8",
        "169.255.0.0/16",
        "::/0",
        "fc00::/7",
        "fe00::/9",
        "2001:db8::/32",
    ]
    assert not any(never_mirrored(prefix_key(prefix)) for prefix in mirrored)


def test_ignored_and_malformed_are_counted(table: RouteTable) -> None:
    scope = table.open_scope()
    table.limit = 1
    table.apply(
        changes(
            route("fe80::/64", attribute(4, u32(2))),
            route("10.0.0.0/8", by_gateway("10.1.0.2", 2)),
            route("11.0.0.0/8", by_gateway("10.1.0.2", 2)),
            route("12.0.0.0/8", attribute(5, b"abc")),
        ),
        scope,
    )
    counters = table.counters
    assert (counters.ignored_prefix, counters.full, counters.malformed) == (1, 1, 1)
    assert "gateway of 3" in table.problem
    assert len(table) == 1


def test_resend_repeats_everything_and_changes_go_between(table: RouteTable) -> None:
    scope = table.open_scope()
    prefixes = [f"20.0.{n}.0/24" for n in range(10)] + [f"2001:db8:{n}::/48" for n in range(10)]
    table.apply(changes(*(route(prefix, by_gateway("10.1.0.2", 2)) for prefix in prefixes)), scope)
    taken(table)
    table.begin_resend()
    first = table.take(3)
    assert first is not None
    table.apply(changes(delete("20.0.9.0/24"), route("30.0.0.0/8", by_gateway("10.1.0.2", 2))), scope)
    sent = dict(zip(first.keys, first.ids, strict=True)) | taken(table, 3)
    assert {key for key, set_id in sent.items() if set_id} == {
        prefix_key(prefix) for prefix in [*prefixes, "30.0.0.0/8"] if prefix != "20.0.9.0/24"
    }
    assert sent.get(prefix_key("20.0.9.0/24"), 0) == 0


def test_kernel_metrics(table: RouteTable) -> None:
    scope = table.open_scope()
    key = prefix_key("10.0.0.0/8")
    low, middle, high = (by_gateway(f"10.1.0.{metric}", 2, metric) for metric in (10, 20, 30))
    table.apply_kernel(changes(route("10.0.0.0/8", middle), route("10.0.0.0/8", high)), scope)
    assert taken(table) == {key: 1}
    table.apply_kernel(changes(route("10.0.0.0/8", low)), scope)
    assert taken(table) == {key: 3}
    table.apply_kernel(changes(delete("10.0.0.0/8", middle), delete("10.0.0.0/8", low)), scope)
    assert taken(table) == {key: 2}
    table.apply_kernel(changes(delete("10.0.0.0/8", high)), scope)
    assert taken(table) == {key: 0}
    table.sweep()
    assert len(table.sets) == 0  # nothing is held for ever
    assert not table.ambiguous


def test_what_only_a_dump_can_tell(table: RouteTable) -> None:
    scope = table.open_scope()
    one, two = by_gateway("10.1.0.2", 2), by_gateway("10.1.0.3", 2)
    table.apply_kernel(changes(route("10.0.0.0/8", one), route("10.0.0.0/8", two, flags=NLM_F_APPEND)), scope)
    assert table.ambiguous
    assert taken(table) == {prefix_key("10.0.0.0/8"): 1}
    table.ambiguous = False
    table.apply_kernel(changes(nexthop(4, 2)), scope)
    assert not table.ambiguous
    table.apply_kernel([(RTM_DELNEXTHOP, b"", nexthop(4)[16:], 0)], scope)
    assert table.ambiguous


def test_of_equal_metric_a_dump_lists_the_one_in_force_first(table: RouteTable) -> None:
    first, second = by_gateway("10.1.0.2", 2), by_gateway("10.2.0.2", 3)
    for prefix in ("10.0.0.0/8", "2001:db8::/32"):
        key, dump = prefix_key(prefix), [route(prefix, ways, flags=NLM_F_MULTI) for ways in (first, second)]
        scope = table.open_scope(inline_first=True)
        table.apply_kernel(changes(*dump), scope)
        assert table.sets.content(table.find(key))[1][0][0] == 102
        assert not table.ambiguous
        taken(table)
        table.apply_kernel(changes(delete(prefix, first)), scope)
        assert table.ambiguous  # the second is left
        assert not table.pending
        table.ambiguous = False
        again = table.open_scope(inline_first=True)
        table.apply_kernel(changes(dump[1]), again)
        assert table.sets.content(table.find(key))[1][0][0] == 103
        table.apply_kernel(changes(delete(prefix, second)), again)
        assert (table.find(key), table.ambiguous) == (0, False)


@pytest.mark.parametrize("metric", [10, 30])
def test_one_more_of_a_metric_is_looked_for_in_a_dump_wherever_it_stands(table: RouteTable, metric: int) -> None:
    scope, key = table.open_scope(), prefix_key("10.0.0.0/8")
    one, two = (by_gateway(f"10.1.0.{number}", 2, metric) for number in (2, 3))
    first = NLM_F_CREATE | NLM_F_EXCL
    table.apply_kernel(
        changes(*(route("10.0.0.0/8", way, flags=first) for way in (by_gateway("10.1.0.9", 2), one))), scope
    )
    before = table.find(key)
    table.apply_kernel(changes(route("10.0.0.0/8", one), route("10.0.0.0/8", two, flags=NLM_F_REPLACE)), scope)
    table.apply_kernel(changes(route("10.0.0.0/8", one, flags=first)), scope)
    assert (table.find(key), table.ambiguous) == (before, False)
    table.apply_kernel(changes(route("10.0.0.0/8", two, flags=NLM_F_CREATE)), scope)
    assert (table.find(key), table.ambiguous) == (before, True)
    table.ambiguous = False
    table.apply_kernel(changes(route("10.0.0.0/8", one, flags=NLM_F_REPLACE)), scope)
    assert not table.ambiguous  # said again
    table.apply_kernel(changes(delete("10.0.0.0/8", two)), scope)
    assert (table.find(key), table.ambiguous) == (before, True)


def test_a_way_that_an_ipv6_route_gets_is_of_that_route_and_one_that_goes_is_looked_for(table: RouteTable) -> None:
    prefix, scope = "2001:db8::/32", table.open_scope()
    old, new = ("fe80::2", 2), ("fe80::3", 3)
    table.apply_kernel(changes(route(prefix, by_gateway(*old))), scope)
    table.apply_kernel(changes(route(prefix, multipath(new, old), flags=NLM_F_CREATE | NLM_F_APPEND)), scope)
    assert len(table.sets.content(table.find(prefix_key(prefix)))[1]) == 2
    assert not table.ambiguous
    table.apply_kernel(changes(delete(prefix, by_gateway(*old))), scope)
    assert table.ambiguous
    table.ambiguous = False
    table.apply_kernel(changes(delete(prefix, multipath(old, new))), scope)
    assert (table.find(prefix_key(prefix)), table.ambiguous) == (0, False)


def test_what_is_said_to_go_is_not_another_that_came_since(table: RouteTable) -> None:
    scope, key = table.open_scope(), prefix_key("10.0.0.0/8")
    table.apply_kernel(changes(route("10.0.0.0/8", by_gateway("10.1.0.3", 2))), scope)
    table.apply_kernel(changes(delete("10.0.0.0/8", by_gateway("10.1.0.2", 2))), scope)
    assert table.find(key)
    assert table.ambiguous
