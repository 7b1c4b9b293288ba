"""The supervisor's static routes: what `ip` is told, what it complains about, and what it did not do."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_machine_control import run_until

from vrc.guest.children import Children
from vrc.guest.suites import static
from vrc.guest.suites.static import StaticRoute, StaticRoutes, batch, refusals

ROUTES = [
    StaticRoute(2, "10.0.0.0/8 metric 0", "unicast 10.0.0.0/8 proto static via 192.0.2.1"),
    StaticRoute(5, "::/0 metric 1024", "unicast ::/0 proto static via fe80::1 dev eth0"),
]


def test_routes_are_written_in_order_and_those_that_are_gone_deleted_backwards() -> None:
    assert batch(ROUTES[:1], ROUTES[1:]).splitlines() == [
        "route replace unicast 10.0.0.0/8 proto static via 192.0.2.1",
        "route del ::/0 metric 1024 proto static",
    ]
    assert [line.split()[2] for line in batch([], ROUTES).splitlines()] == ["::/0", "10.0.0.0/8"]


def test_what_is_left_of_a_prefix_is_written_again_as_no_metric_is_any_to_a_deletion() -> None:
    left = StaticRoute(1, "10.0.0.0/8 metric 7", "unicast 10.0.0.0/8 proto static metric 7 via 192.0.2.2")
    assert batch([left, ROUTES[1]], ROUTES[:1]).splitlines() == [
        f"route replace {left.text}",
        f"route replace {ROUTES[1].text}",
        "route del 10.0.0.0/8 metric 0 proto static",
        f"route replace {left.text}",
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


BOTH = {"ids": [os.getuid(), os.getgid()], "routes": [[1, "A m", "192.0.2.0/24"], [2, "B m", "198.51.100.0/24"]]}
ONE = BOTH | {"routes": BOTH["routes"][:1]}
HANGS = ["/bin/sleep", "600"]


@pytest.fixture
def routes(family: Children, monkeypatch: pytest.MonkeyPatch) -> Iterator[StaticRoutes]:
    """The suite with two routes, which no link's change has written again."""
    monkeypatch.setattr(static, "SETTLED_S", 0.0)
    monkeypatch.setattr(static, "RETRY_S", 0.01)
    suite = StaticRoutes(family, BOTH)
    yield suite
    suite.stop()
    run_until(family.reactor, lambda: not suite.running)
    suite._links.close()


def takes(folder: Path) -> list[str]:
    """Return an `ip` that does all that it is told, and notes that."""
    return ["/bin/sh", "-c", f"cat >{folder}/new && mv {folder}/new {folder}/told"]


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (["/bin/sh", "-c", "kill -9 $$"], "killed by SIGKILL"),
        (["/bin/sh", "-c", "echo setpriv: no ip; exit 127"], "exit status 127: setpriv: no ip"),
        (HANGS, "ip did not end within 0.2 s"),
        (["/no/ip"], "/no/ip: No such file or directory"),
    ],
)
def test_what_an_ip_did_not_do_is_told_and_done_by_the_next(
    family: Children,
    routes: StaticRoutes,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    command: list[str],
    why: str,
) -> None:
    limit_s = static.JOB_LIMIT_S
    if command is HANGS:
        monkeypatch.setattr(static, "JOB_LIMIT_S", 0.2)
    routes._command, replies = command, list[str]()
    routes.change(ONE, replies.append)
    run_until(family.reactor, lambda: bool(replies))
    assert (replies, routes.tell_states()) == ([""], {"ip": f"failed: {why}"})
    monkeypatch.setattr(static, "JOB_LIMIT_S", limit_s)
    routes._command = takes(tmp_path)
    run_until(family.reactor, lambda: (tmp_path / "told").exists() and not routes.running)
    assert (tmp_path / "told").read_text() == "route replace 192.0.2.0/24\nroute del B m proto static\n"
    assert (routes.tell_states(), routes._gone) == ({"ip": "up"}, [])


def test_a_route_that_is_wanted_again_is_not_deleted(
    family: Children, routes: StaticRoutes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    limit_s = static.JOB_LIMIT_S
    monkeypatch.setattr(static, "JOB_LIMIT_S", 0.2)
    routes._command, replies = HANGS, list[str]()
    routes.change(ONE, replies.append)
    monkeypatch.setattr(static, "JOB_LIMIT_S", limit_s)
    routes._command = takes(tmp_path)
    routes.change(BOTH, replies.append)
    run_until(family.reactor, lambda: len(replies) == 2)
    assert (tmp_path / "told").read_text() == "route replace 192.0.2.0/24\nroute replace 198.51.100.0/24\n"


def test_an_ip_that_complains_of_deletions_alone_has_done_its_work(family: Children, routes: StaticRoutes) -> None:
    said = "RTNETLINK answers: No such process\nCommand failed -:2"
    routes._command, replies = ["/bin/sh", "-c", f"echo '{said}'; exit 1"], list[str]()
    routes.change(ONE, replies.append)
    run_until(family.reactor, lambda: bool(replies))
    assert (routes.tell_states(), routes._gone) == ({"ip": "up"}, [])
