"""A BIRD in a host's network namespace that holds its routes back until it is told to announce them."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from mininet.node import Node

from lab.commands import NetworkError, checked, output, wait_for
from lab.network import inside
from lab.prefixes import Announcement

AS_NUMBER = 65000

_HEAD = """router id {router_id};
log "{log}" all;
protocol device {{ }}
protocol static feed {{
    disabled;
    ipv4;
"""
_SESSION = """protocol bgp {name} {{
    local {local} as {ours};
    neighbor {neighbor} as {theirs};
    connect retry time 1;
    connect delay time 1;
    error wait time 1, 2;
    hold time 180;
    ipv4 {{ import none; export where source = RTS_STATIC; next hop self; }};
}}
"""

_RUN = Path("/run")


def logs() -> Iterable[Path]:
    """Return the logs of every one of this enclosure."""
    return _RUN.glob("bird-*/*.log")


class BirdDaemon:
    """One BIRD in a network namespace, with a text of its own."""

    def __init__(self, directory: Path, name: str, enter: Sequence[str]) -> None:
        """``enter`` begins its command: the namespace of the host ``name``."""
        self._directory, self._name, self._enter = directory, name, enter

    @property
    def log(self) -> Path:
        """What it is to write to."""
        return self._directory / "bird.log"

    def launch(self, text: Iterable[str]) -> None:
        """Start it with this configuration; returns when it answers."""
        self._directory.mkdir(parents=True, exist_ok=True)
        config = self._directory / "bird.conf"
        with config.open("w") as file:
            file.writelines(text)
        pid = self._directory / "bird.pid"
        command = [*self._enter, "bird", "-c", str(config), "-s", self._socket, "-P", str(pid)]
        checked(command, where=self._name, logs=[self.log])

    def announce(self, feed: str = "feed") -> None:
        """Enable a static protocol: BIRD begins to announce its routes before this returns. NetworkError."""
        self._order("enable", feed)

    def withdraw(self, feed: str = "feed") -> None:
        """Disable a static protocol: BIRD begins to withdraw its routes before this returns. NetworkError."""
        self._order("disable", feed)

    def established(self) -> int:
        """Return how many BGP sessions are up."""
        return self.ask("show", "protocols").count("Established")

    def stop(self) -> None:
        """End it in order."""
        self.ask("down")

    def ask(self, *words: str) -> str:
        """Return what birdc prints."""
        return output(["birdc", "-s", self._socket, *words], where=self._name, logs=[self.log])

    def _order(self, verb: str, protocol: str) -> None:
        if f"{verb}d" not in (said := self.ask(verb, protocol)):
            raise NetworkError(f"birdc {verb} {protocol}: {said.strip()}")

    @property
    def _socket(self) -> str:
        return str(self._directory / "bird.ctl")


class Bird(BirdDaemon):
    """One BIRD with a static protocol, ``feed``, and a BGP session for each (local, neighbor) pair of addresses."""

    def __init__(self, host: Node, sessions: Sequence[tuple[str, str]], theirs: int) -> None:
        super().__init__(_RUN / f"bird-{host.name}", host.name, inside(host, []))
        self._sessions, self._theirs = sessions, theirs

    def start(self, announced: Iterable[Announcement]) -> None:
        """Start it with everything in its configuration and nothing announced."""
        self.launch(self._text(announced))

    def _text(self, announced: Iterable[Announcement]) -> Iterable[str]:
        yield _HEAD.format(router_id=self._sessions[0][0], log=self.log)
        for one in announced:
            yield f"    route {one.text} blackhole {{ bgp_path.prepend({one.origin}); }};\n"
        yield "}\n"
        for number, (local, neighbor) in enumerate(self._sessions, 1):
            fields = {"name": f"session{number}", "local": local, "neighbor": neighbor, "theirs": self._theirs}
            yield _SESSION.format(**fields, ours=AS_NUMBER)

    def wait_established(self, timeout_s: float = 60) -> None:
        """Wait until every session is up."""
        wanted = len(self._sessions)
        what = f"{wanted} BGP sessions of {self._name}'s BIRD"
        wait_for(what, lambda: self.established() == wanted, timeout_s, 0.2, [self.log])
