"""What a topology waits for in vain is named with its router, what that one does instead, and where to read why."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from lab import control, topology
from lab.commands import NetworkError
from lab.control import LOG, guest_logs
from lab.planes.catalog import DEFAULT, PLANES
from lab.topology import Lab
from topologies import proofs
from topologies.checks import Claim, run_checks
from topologies.fallback import claims as fallback_claims
from topologies.fallback.topology import TOPOLOGY as FALLBACK
from topologies.two_tenants.topology import LAN, TOPOLOGY


def view(router: str, state: str = "up", reason: str = "") -> dict[str, object]:
    return {"router": router, "state": state, "reason": reason, "pending": 0, "ipv4_routes": 100_002}


class Told(control.Controller):
    """Answers questions with what it was given."""

    def __init__(self, **answers: object) -> None:
        super().__init__()
        self.answers = answers

    def get(self, *parts: str) -> object:
        """Return what was given of a resource."""
        return self.answers[parts[0]]

    def fib(self, router: str) -> list[dict[str, object]]:
        """Return the entries that were given."""
        return self.answers["fib"]


@pytest.fixture
def guests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A controller's state with a guest of red/r1 and a machine of red/r2."""
    for number, (router, log) in enumerate((("red/r1", "guest.log"), ("red/r2", "console.log")), 1):
        directory = tmp_path / f"guests/{number}"
        directory.mkdir(parents=True)
        (directory / "guest.json").write_text(json.dumps({"router": router}))
        (directory / log).touch()
    monkeypatch.setattr(topology, "guest_logs", lambda routers: guest_logs(routers, tmp_path))
    return tmp_path / "guests"


def two_tenants(*ailing: dict[str, object]) -> Lab:
    lab = Lab(TOPOLOGY, PLANES[DEFAULT]())
    named = {one["router"] for one in ailing}
    lab.controller = Told(
        routers=[*ailing, *(view(router) for router in TOPOLOGY.routers if router not in named)], interfaces=[]
    )
    return lab


def nothing(*_: object) -> list[str]:
    return []


def test_the_logs_of_a_guest_and_of_a_machine_are_found(guests: Path) -> None:
    assert guest_logs({"red/r1"}, guests.parent) == [guests / "1/guest.log"]
    assert guest_logs({"red/r2", "blue/r1"}, guests.parent) == [guests / "2/console.log"]


def test_routers_that_do_not_come_up_are_named_with_their_states_and_logs(guests: Path) -> None:
    lab = two_tenants(view("red/r1", "degraded", "bgpd: did not answer"), view("red/r2", "starting"))
    with pytest.raises(NetworkError) as caught:
        proofs.settle(lab, lambda _: None, 0.0)
    seen = "router red/r1 (bgpd: did not answer, 0 pending); router red/r2 (starting, 0 pending)"
    logs = [LOG, guests / "1/guest.log", guests / "2/console.log"]
    assert str(caught.value) == f"every router up: not within 0 s; {seen}; log: {', '.join(map(str, logs))}"
    assert caught.value.logs == tuple(logs)


def test_what_does_not_converge_shows_the_guest_s_log(guests: Path) -> None:
    lab = two_tenants(view("red/r1", "degraded", "zebra: did not answer"))
    lab.network.mininet.hosts = []
    for step in ("_sessions_missing", "_paths_missing", "_ends_missing"):
        setattr(lab, step, nothing)
    with pytest.raises(NetworkError) as caught:
        lab.converge(lambda _: None, -1.0)
    assert caught.value.logs == (LOG, guests / "1/guest.log")


def test_a_session_that_does_not_come_up_is_told_with_its_state_and_what_is_down(guests: Path) -> None:
    lab = two_tenants()
    lab.network.mininet.hosts = []
    lab.controller.answers["interfaces"] = [
        {"router": "blue/r1", "name": "n1", "up": True, "port_up": True},
        {"router": "blue/r1", "name": "r2", "up": True, "port_up": False},
        {"router": "red/r1", "name": "n1", "up": False, "port_up": False},
    ]
    shown = {
        "10.0.1.2": {"bgpState": "Established"},
        "r2": {"bgpState": "Active", "lastResetDueTo": "Waiting for NHT"},
    }
    lab.controller.exec = lambda router, *argv: json.dumps(shown if "neighbors" in argv[-1] else {})
    for step in ("_paths_missing", "_ends_missing"):
        setattr(lab, step, nothing)
    of_blue = {"blue/r1": ["BGP of blue/r1 (1 of 2)"]}
    lab._sessions_missing = lambda name: of_blue.get(name, [])  # type: ignore[method-assign]
    with pytest.raises(NetworkError) as caught:
        lab.converge(lambda _: None, -1.0)
    seen = "blue/r1: r2 Active (Waiting for NHT); blue/r1: interface r2 is down"
    missing = "not converged within -1 s; missing: BGP of blue/r1 (1 of 2)"
    assert str(caught.value) == f"{missing}; seen: {seen}; log: {LOG}"


def test_one_is_asked_for_its_sessions_until_it_has_them_and_then_the_next(
    guests: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topology.time, "sleep", nothing)
    lab, asked, waited = two_tenants(), [], []
    for step in ("unsettled", "_paths_missing", "_ends_missing"):
        setattr(lab, step, nothing)

    def sessions_of(name: str) -> dict[str, int]:
        asked.append(name)
        return {**TOPOLOGY.sessions[name], **({"OSPFv2": 0} if asked.count(name) < 3 and name == "red-n1" else {})}

    lab.sessions_of = sessions_of  # type: ignore[method-assign]
    lab.converge(waited.append)
    hosts, routers = ([name for name in TOPOLOGY.sessions if ("/" in name) is inside] for inside in (False, True))
    assert asked == [name for name in hosts + routers for _ in range(3 if name == "red-n1" else 1)]
    assert waited == 2 * ["waiting for OSPFv2 of red-n1 (0 of 1)"]


def test_paths_and_what_sessions_have_brought_are_awaited(guests: Path) -> None:
    lab, looked = two_tenants(), []
    lab.network.mininet.hosts = []
    for step in ("_sessions_missing", "_ends_missing"):
        setattr(lab, step, nothing)
    both = [{"prefix": prefix, "nexthops": ["n2-a", "n2-b"]} for prefix in LAN]
    one = [{"prefix": prefix, "nexthops": ["n2-a"]} for prefix in LAN]
    lab.controller.answers["fib"] = one
    with pytest.raises(NetworkError, match=rf"missing: {LAN[0]} of red/r2 \(1 of 2 nexthops\); "):
        lab.converge(lambda _: None, -1.0)
    lab.controller.answers["fib"] = both
    lab.unsettled = lambda: looked.append(1) or (["router red/r2"] if len(looked) == 2 else [])  # type: ignore[method-assign]
    with pytest.raises(NetworkError, match="missing: router red/r2"):
        lab.converge(lambda _: None, -1.0)


def test_a_claim_that_waits_in_vain_shows_the_ends_of_the_logs(guests: Path) -> None:
    (guests / "1/guest.log").write_text("bgpd: cannot bind\n")
    lab = two_tenants(view("red/r1", "starting"))
    claim = Claim("all is well", lambda lab, progress: proofs.settle(lab, progress, 0.0) or [])
    output = io.StringIO()
    assert not run_checks(lab, [claim], Console(file=output))
    assert f"\n{guests}/1/guest.log:\n  bgpd: cannot bind\n" in output.getvalue()


def test_a_controller_that_does_not_answer_any_more_is_what_is_said(guests: Path) -> None:
    lab = two_tenants()

    def unsettled() -> list[str]:
        if lab.controller.answers.pop("routers", None) is None:
            raise NetworkError("vrctl get routers: no controller")
        return ["router red/r1"]

    lab.unsettled = unsettled  # type: ignore[method-assign]
    with pytest.raises(NetworkError, match=r"^every router up: not within 0 s; vrctl get routers: no controller$"):
        proofs.settle(lab, lambda _: None, 0.0)


def test_routes_that_do_not_move_are_named_with_their_router_and_where_they_are(
    guests: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fallback_claims, "_MOVE_S", 0.0)
    monkeypatch.setattr(fallback_claims, "_FOLLOWED_S", 0.0)
    lab = Lab(FALLBACK, FALLBACK.planes())
    planes = [{"name": "s1", "entries": {"hardware ipv4_route": 900}}]
    fib = [{"prefix": "192.0.2.0/24", "where": "hardware"}]
    lab.controller = Told(routers=[view("red/r1")], planes=planes, fib=fib)
    with pytest.raises(NetworkError) as caught:
        fallback_claims._wait_moved(lab, "software")
    seen = "900 entries in hardware with room for 1000; red/r1 is up"
    logs = f"log: {LOG}, {guests}/1/guest.log"
    assert str(caught.value) == f"routes of red/r1 in software: not within 0 s; {seen}; {logs}"
    with pytest.raises(NetworkError) as caught:
        fallback_claims._wait_in_hardware(lab, {"192.0.2.0/24", "198.51.100.0/24"})
    seen = "in software: 198.51.100.0/24"
    assert str(caught.value) == f"what is asked for of red/r1 in hardware: not within 0 s; {seen}; {logs}"
