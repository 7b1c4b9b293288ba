"""The supervisor's static routes: what `ip` is told, and what it complains about."""

from vrc.guest.suites.static import StaticRoute, batch, refusals

ROUTES = [
    StaticRoute(2, "10.0.0.0/8 metric 0", "unicast 10.0.0.0/8 proto static via 192.0.2.1"),
    StaticRoute(5, "::/0 metric 1024", "unicast ::/0 proto static via fe80::1 dev eth0"),
]


def test_routes_are_written_in_order_and_those_that_are_gone_deleted_backwards() -> None:
    assert batch(ROUTES[:1], ROUTES[1:]).splitlines() == [
        "route replace unicast 10.0.0.0/8 proto static via 192.0.2.1",
        "route del unicast ::/0 proto static via fe80::1 dev eth0",
    ]
    assert [line.split()[2:4] for line in batch([], ROUTES).splitlines()] == [
        ["unicast", "::/0"],
        ["unicast", "10.0.0.0/8"],
    ]


def test_a_complaint_names_the_line_of_the_text_and_deletions_may_fail() -> None:
    said = [
        "Error: Nexthop has invalid gateway.",
        "Command failed -:1",
        'Cannot find device "eth0"',
        "Command failed -:2",
        "RTNETLINK answers: No such process",
        "Command failed -:3",
    ]
    assert refusals(said, ROUTES) == ["line 2: nexthop has invalid gateway", 'line 5: cannot find device "eth0"']
    assert refusals([], ROUTES) == []
    assert refusals(["Command failed -:1"], ROUTES) == ["line 2: no reason given"]
