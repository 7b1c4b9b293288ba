"""`vrctl top`: rates between two looks, what fits a screen, and the terminal as it was before."""

import contextlib
import json
import os
import pty
import termios
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.vrctl.client import Unreachable
from controller.vrctl.live import top
from controller.vrctl.live.rates import lines, rates
from controller.vrctl.output import Format

TEXT = """\
version: 1
planes: [{name: s1, kind: fake}]
tenants:
  - name: red
    slices: [{plane: s1, ports: {p1: [untagged]}}]
    routers: [{name: r1, plane: s1}]
"""
TABLES = {
    "ipv4_route": {"used": 995, "capacity": 1000, "source": "given"},
    "ipv6_route": {"used": 3, "capacity": None, "source": ""},
}


UNREACHABLE = {"punt_class": "unreachable", "place": "outbox"}
LONG_LOSS = {"port": "p" * 63, "place": "device", "loss": "x" * 32}


def load(time: float, *routers: tuple[str, int | None, int | None, int]) -> dict[str, Any]:
    """Routers by name, packets, packets on the link, and changes; the plane has the sum of the first of them."""
    rows = [
        {"router": name, "plane": "s1", "time": time, "packets": packets, "link_packets": link, "entries": 7}
        | {"changes": changes, "loop_s": time / 100, "lost_punts": []}
        for name, packets, link, changes in routers
    ]
    plane = {"name": "s1", "time": time, "tables": TABLES, "changes": 10 * time, "tells_lost_punts": True}
    plane |= {"lost_frames": []}
    return {
        "planes": [plane | {"packets": rows[0]["packets"], "link_packets": rows[0]["link_packets"]}],
        "routers": rows,
    }


def test_rates_are_by_second_and_the_busiest_come_first() -> None:
    before = load(10.0, ("red/r1", 1000, 100, 5), ("red/r2", 0, 0, 0))
    found = rates(before, load(12.0, ("red/r1", 1200, 150, 5), ("red/r2", 5000, 0, 8)))
    assert [(row["router"], row["packets_per_s"], row["in_hardware"]) for row in found["routers"]] == [
        ("red/r2", 2500.0, 1.0),
        ("red/r1", 100.0, 0.75),
    ]
    assert [row["changes_per_s"] for row in found["routers"]] == [4.0, 0.0]
    assert [row["loop_ms_per_s"] for row in found["routers"]] == [pytest.approx(10.0)] * 2
    assert (found["planes"][0]["packets_per_s"], found["planes"][0]["changes_per_s"]) == (100.0, 10.0)


@pytest.mark.parametrize(
    ("before", "after", "rate", "share"),
    [
        ((1000, 10), (1000, 10), 0.0, None),  # no packet is no share
        ((1000, 10), (2000, 2000), 500.0, 0.0),  # counters of two planes are not of one moment
        ((1000, 10), (500, 5), None, None),  # it has begun to count anew
        ((1000, 10), (None, None), None, None),  # it is away
        ((None, None), (1000, 10), None, None),
        ((1000, None), (3000, None), 1000.0, None),  # no fallback
    ],
)
def test_what_is_not_known_is_left_out(before: Any, after: Any, rate: float | None, share: float | None) -> None:
    (row,) = rates(load(1.0, ("r", *before, 0)), load(3.0, ("r", *after, 0)))["routers"]
    assert (row["packets_per_s"], row["in_hardware"]) == (rate, share)


def lost(packets: int, interface: str = "eth0", punt_class: str = "icmp", place: str = "policer") -> dict[str, Any]:
    return {"interface": interface, "punt_class": punt_class, "place": place, "packets": packets}


def test_lost_punts_are_shown_by_class_and_place_and_those_of_now_come_first() -> None:
    before, after = load(10.0, ("red/r1", 0, 0, 0)), load(12.0, ("red/r1", 0, 0, 0))
    before["routers"][0]["lost_punts"] = [lost(5000, "eth1", "ttl", "relay"), lost(100)]
    before["routers"][0]["lost_punts"].append(lost(4, punt_class="", place="tap"))
    after["routers"][0]["lost_punts"] = [lost(5000, "eth1", "ttl", "relay"), lost(700), lost(7, "", "arp")]
    after["routers"][0]["lost_punts"].append(lost(6, punt_class="", place="tap"))
    found = rates(before, after)
    assert [line.split() for line in lines(found, 80)[6:]] == [
        ["LOST", "PUNTS", "OF", "INTERFACE", "CLASS", "PLACE", "PACKETS/S", "PACKETS"],
        ["red/r1", "eth0", "icmp", "policer", "300", "700"],
        ["red/r1", "?", "arp", "policer", "4", "7"],
        ["red/r1", "eth0", "?", "tap", "1", "6"],
        ["red/r1", "eth1", "ttl", "relay", "0", "5000"],
    ]
    after["planes"][0]["tells_lost_punts"] = False
    assert lines(rates(before, after), 80)[-1] == "plane s1 does not tell what its policers drop"
    after["routers"][0]["lost_punts"] = [lost(3)]
    assert rates(before, after)["lost_punts"][0]["packets_per_s"] is None, "it counts anew"


def test_what_routers_have_of_cores_and_links_is_shown_where_it_is_told() -> None:
    routers = [("red/r1", 0, 0, 0), ("red/r2", 0, 0, 0), ("red/r3", 0, 0, 0)]
    before, after = load(10.0, *routers), load(12.0, *routers)
    assert len(lines(rates(before, after), 80)) == 7, "this plane has no shares"
    for number, (core_ns, core, link) in enumerate(((10**9, 400, 20), (2 * 10**9, 7, 0), (0, 0, 0))):
        used = {"core_ns": core_ns, "over_share_core": core, "over_share_link": link}
        after["routers"][number]["shares"] = used
        before["routers"][number]["shares"] = dict.fromkeys(used, 0)
    assert [line.split() for line in lines(rates(before, after), 80)[8:]] == [
        ["SHARE", "OF", "PLANE", "CORE", "MS/S", "OVER", "CORE/S", "OVER", "LINK/S", "OVER", "SHARE"],
        ["red/r2", "s1", "1000.0", "4", "0", "7"],
        ["red/r1", "s1", "500.0", "200", "10", "420"],
    ]
    before["routers"][0]["shares"] = None
    told = {row["router"]: row["core_ms_per_s"] for row in rates(before, after)["shares"]}
    assert told == {"red/r1": None, "red/r2": 1000.0, "red/r3": 0.0}, "of the first nothing was known"


def lost_by_port(frames: int, port: str = "p1", place: str = "egress", loss: str = "ring_full") -> dict[str, Any]:
    return {"port": port, "place": place, "loss": loss, "frames": frames}


def test_lost_frames_are_shown_by_port_and_those_of_now_come_first() -> None:
    before, after = load(10.0, ("red/r1", 0, 0, 0)), load(12.0, ("red/r1", 0, 0, 0))
    before["planes"][0]["lost_frames"] = [lost_by_port(9000, place="device", loss="rx_dropped"), lost_by_port(50)]
    after["planes"][0]["lost_frames"] = [
        lost_by_port(9000, place="device", loss="rx_dropped"),
        lost_by_port(60),
        lost_by_port(400, "p2", loss="down"),
    ]
    found = rates(before, after)
    assert [line.split() for line in lines(found, 80)[6:]] == [
        ["LOST", "FRAMES", "OF", "PORT", "PLACE", "LOSS", "FRAMES/S", "FRAMES"],
        ["s1", "p2", "egress", "down", "200", "400"],
        ["s1", "p1", "egress", "ring_full", "5", "60"],
        ["s1", "p1", "device", "rx_dropped", "0", "9000"],
    ]
    before["planes"][0] |= {"packets": None, "lost_frames": []}
    assert [row["frames_per_s"] for row in rates(before, after)["lost_frames"]] == [None] * 3, "it was away"


def test_a_router_that_has_just_come_has_no_rates_yet() -> None:
    new = load(2.0, ("red/r1", 5, 0, 0))
    (row,) = rates({"planes": [], "routers": []}, new)["routers"]
    assert (row["packets_per_s"], row["changes_per_s"], row["entries"]) == (None, None, 7)
    assert rates(new, new)["routers"][0]["packets_per_s"] is None


def test_long_names_and_large_numbers_fit_a_line() -> None:
    long = "a" * 31
    tables = {name: {"used": 16_000_000, "capacity": 16_000_000, "source": ""} for name in TABLES}
    rate = {"packets_per_s": 123_456_789.4, "in_hardware": 1.0, "changes_per_s": 99_999.0, "loop_ms_per_s": 999.9}
    found = {
        "planes": [{"plane": long, "tables": tables, "tells_lost_punts": False} | rate],
        "routers": [{"router": f"{long}/{long}", "plane": long, "entries": 16_000_000} | rate],
        "shares": [
            {"router": f"{long}/{long}", "plane": long, "core_ms_per_s": 63_999.9, "over_share": 16_000_000_000}
            | {"over_core_per_s": 99_999_999.0, "over_link_per_s": 99_999_999.0}
        ],
        "lost_punts": [
            {"router": f"{long}/{long}", "interface": long, "packets": 16_000_000_000} | UNREACHABLE | rate
        ],
        "lost_frames": [{"plane": long, "frames": 16_000_000_000, "frames_per_s": 123_456_789.4} | LONG_LOSS],
    }
    shown = lines(found, 80)
    assert max(map(len, shown)) <= 80
    assert shown[1].split() == ["aaaaaa…", "123456789", "100.0", "%", *["16000000/16000000"] * 2, "99999"]
    assert shown[4].split()[2:] == ["123456789", "100.0", "%", "16000000", "99999", "999.9"]
    assert shown[7].split()[2:] == ["63999.9", "99999999", "99999999", "16000000000"]
    assert shown[10].split()[2:] == ["unreachable", "outbox", "123456789", "16000000000"]
    assert shown[13].split()[-2:] == ["123456789", "16000000000"]
    assert {len(line) for line in lines(found, 200) if line} <= {len(line) for line in lines(found, 300) if line}


def test_names_are_whole_where_there_is_no_screen() -> None:
    long = "a" * 40
    found = rates(load(1.0, (f"{long}/{long}", 1, 0, 0)), load(2.0, (f"{long}/{long}", 5, 0, 0)))
    assert f"{long}/{long}" in lines(found)[4].split()


def test_what_does_not_fit_the_screen_is_counted() -> None:
    many = [(f"red/r{number}", number, 0, 0) for number in range(30)]
    shown = lines(rates(load(1.0, *many), load(2.0, *many)), 80, 20)
    assert len(shown) == 20
    assert shown[-1] == "… 15 more lines"
    assert len(lines(rates(load(1.0, *many), load(2.0, *many)), 80, 34)) == 34


@pytest.fixture
def applied(tmp_path: Path) -> str:
    path = tmp_path / "net.yaml"
    path.write_text(TEXT)
    return str(path)


async def test_one_round_for_scripts(
    vrctl: Callable[..., Awaitable[tuple[int, str, str]]], applied: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(top.time, "sleep", lambda _seconds: None)
    assert (await vrctl("apply", "-f", applied))[0] == 0
    status, out, err = await vrctl("top", "--once")
    assert (status, err) == (0, "")
    assert [line.split() for line in out.splitlines()[1:]] == [
        ["PLANE", "PACKETS/S", "IN", "HARDWARE", "IPV4", "TABLE", "IPV6", "TABLE", "CHANGES/S"],
        ["s1", "1000", "90.0", "%", "3/1000", "0", "5"],
        [],
        ["ROUTER", "PLANE", "PACKETS/S", "IN", "HARDWARE", "ENTRIES", "CHANGES/S", "LOOP", "MS/S"],
        ["red/r1", "s1", "1000", "90.0", "%", "3", "5", "10.0"],
        [],
    ]
    found = json.loads((await vrctl("top", "--once", "-o", "json"))[1])
    assert found["routers"][0]["packets_per_s"] == 1000.0
    assert (await vrctl("top", "--interval", "0"))[0] == 2


class Looks:
    """A controller whose load grows, and that is away now and then: what `Looks` is called with says when."""

    def __init__(self, *away: int) -> None:
        self.number, self.away = 0, away

    def get(self, what: str) -> dict[str, Any]:
        assert what == "load"
        self.number += 1
        if self.number in self.away:
            raise Unreachable(Path("/api.sock"))
        if self.number > 5:
            raise KeyboardInterrupt
        return load(float(self.number), ("red/r1", 1000 * self.number, 0, 0))


def test_a_pipe_gets_round_after_round(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks(3, 4)
    monkeypatch.setattr(top, "client", lambda: looks)
    monkeypatch.setattr(top.time, "sleep", lambda _seconds: None)
    with pytest.raises(KeyboardInterrupt):
        top._print_rounds(2.0, False, Format.JSON)
    said = capsys.readouterr()
    assert [json.loads(line)["routers"][0]["packets_per_s"] for line in said.out.splitlines()] == [1000.0, 1000.0]
    assert said.err == "vrctl: no controller at /api.sock; start vr-controller or give --socket; waiting for it\n"


class Terminal:
    """The other end of a terminal of 24 lines and 80 columns; what is written to it is read at once, and ``keys`` are
    pressed when it says how to end.
    """

    def __init__(self, end: int, keys: bytes) -> None:
        self.end, self.text, self._keys = end, b"", keys
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while not self.text.endswith(b"\x1b[?1049l"):
                self.text += os.read(self.end, 4096)
                if self._keys and b"q ends" in self.text:
                    os.write(self.end, self._keys)
                    self._keys = b""

    def until_left(self) -> str:
        self._thread.join(5)
        assert not self._thread.is_alive(), self.text
        return self.text.decode()


@contextlib.contextmanager
def terminal(keys: bytes = b"") -> Iterator[Terminal]:
    """Run in a terminal. No fixture: pytest puts its own output back between set-up and test."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    with (
        os.fdopen(ours, "rb", buffering=0) as end,
        os.fdopen(os.dup(theirs), "r") as keyboard,
        os.fdopen(theirs, "w") as screen,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr("sys.stdin", keyboard)
        patch.setattr("sys.stdout", screen)
        patch.setattr("sys.__stdout__", screen)  # of which shutil takes the size
        yield Terminal(end.fileno(), keys)


def test_q_ends_it_and_the_terminal_is_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top, "client", lambda: Looks())
    with terminal(b"xq") as ours:
        before = termios.tcgetattr(ours.end)
        top._keep_true(3.0)
        text = ours.until_left()
        assert termios.tcgetattr(ours.end) == before
    assert text.rpartition("\x1b[?1049h")[2].startswith("\x1b[?25l")
    assert "red/r1" in text
    assert "every 3 s; q ends" in text


def test_ctrl_c_ends_it_and_a_controller_that_is_away_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks(3)
    monkeypatch.setattr(top, "client", lambda: looks)
    with terminal() as ours:
        before = termios.tcgetattr(ours.end)
        with pytest.raises(KeyboardInterrupt):
            top._keep_true(0.001)
        text = ours.until_left()
        assert termios.tcgetattr(ours.end) == before
    frames = text.split("\x1b[H")[1:]
    assert len(frames) == 5
    assert "no controller at /api.sock" in frames[2]
    assert " 1000 " in frames[2]  # what was there last
    assert max(len(line) for frame in frames for line in frame.replace("\x1b[K", "").split("\r\n")) <= 80
    assert max(frame.count("\n") for frame in frames) < 24
