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


class Bird:
    """One BIRD with a static protocol, ``feed``, and a BGP session for each (local, neighbor) pair of addresses."""

    def __init__(self, host: Node, sessions: Sequence[tuple[str, str]], theirs: int) -> None:
        self._host, self._sessions, self._theirs = host, sessions, theirs
        self._directory = _RUN / f"bird-{host.name}"

    def start(self, announced: Iterable[Announcement]) -> None:
        """Start it with everything in its configuration and nothing announced."""
        self._directory.mkdir(parents=True, exist_ok=True)
        config = self._directory / "bird.conf"
        with config.open("w") as file:
            file.write(_HEAD.format(router_id=self._sessions[0][0], log=self._log))
            file.writelines(
                f"    route {one.text} blackhole {{ bgp_path.prepend({one.origin}); }};\n" for one in announced
            )
            file.write("}\n")
            for number, (local, neighbor) in enumerate(self._sessions, 1):
                file.write(
                    _SESSION.format(
                        name=f"session{number}", local=local, neighbor=neighbor, ours=AS_NUMBER, theirs=self._theirs
                    )
                )
        pid = self._directory / "bird.pid"
        command = inside(self._host, ["bird", "-c", str(config), "-s", self._socket, "-P", str(pid)])
        checked(command, where=self._host.name, logs=[self._log])

    def wait_established(self, timeout_s: float = 60) -> None:
        """Wait until every session is up."""
        wanted = len(self._sessions)
        wait_for("BIRD's BGP sessions", lambda: self.established() == wanted, timeout_s, 0.2, [self._log])

    def established(self) -> int:
        """Return how many sessions are up."""
        return self._ask("show", "protocols").count("Established")

    def announce(self) -> None:
        """Enable ``feed``: BIRD begins to announce before this returns."""
        if "enabled" not in (said := self._ask("enable", "feed")):
            raise NetworkError(f"birdc enable feed: {said.strip()}")

    def stop(self) -> None:
        """End it in order."""
        self._ask("down")

    @property
    def _log(self) -> Path:
        return self._directory / "bird.log"

    @property
    def _socket(self) -> str:
        return str(self._directory / "bird.ctl")

    def _ask(self, *words: str) -> str:
        return output(["birdc", "-s", self._socket, *words], where=self._host.name, logs=[self._log])
