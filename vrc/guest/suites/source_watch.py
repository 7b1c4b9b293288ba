"""Sees whether a guest's daemons hand their routes on, and has them do so again where they do not.

Somebody may say `no fpm address` in vtysh, or `disable kernel1` in birdc, and nothing else would tell: daemons are
up, they have their routes, and none reaches the plane.
"""

import time
from collections.abc import Callable

from vrc.guest.reactor import Reactor

LOOK_S = 2.0
SILENT_S = 10.0
"""How long a silence may last: zebra connects three seconds after it is told to, and tries again as often."""
AGAIN_S = 30.0
UNTOLD_S = 60.0
"""A silence that has ended is kept for so long at most for the controller to hear of it. It asks every ten seconds,
and in an emulated machine on a busy host the answer may take as long again."""

_PORT = f":{2620:04X}"
_ESTABLISHED, _LISTEN = "01", "0A"
_MAX_BYTES = 1 << 20

Tell = Callable[[bool], None]


class SourceWatch:
    """Has ``look`` called every LOOK_S, which says, at once or later, whether routes are missing that could be there;
    ``bring_back`` has the daemon send them again."""

    def __init__(self, reactor: Reactor, look: Callable[[Tell], None], bring_back: Callable[[], None]) -> None:
        self._silent = self._told = False
        self._reactor, self._look_at, self._bring_back = reactor, look, bring_back
        self._since_s: float | None = None  # since when they are missing
        self._kept_until_s = 0.0
        self._not_before_s = 0.0  # when they may be brought back again
        self._look()

    def tell(self) -> bool:
        """Return whether it was silent when it was seen last, or had been and nobody was told."""
        self._told = self._silent
        return self._silent

    def _look(self) -> None:
        self._reactor.call_later(LOOK_S, self._look)
        self._look_at(lambda missing: self.see(missing, time.monotonic()))

    def see(self, missing: bool, now_s: float) -> None:
        """Take in whether routes are missing at a time of the monotonic clock."""
        if not missing:
            self._since_s = None
            self._silent = self._silent and not self._told and now_s < self._kept_until_s
            return
        if self._since_s is None:
            self._since_s = now_s
        if now_s - self._since_s < SILENT_S:
            return
        if not self._silent:
            self._silent, self._told = True, False
        self._kept_until_s = now_s + UNTOLD_S
        if now_s >= self._not_before_s:
            self._not_before_s = now_s + AGAIN_S
            self._bring_back()


def fpm_is_missing(path: str = "/proc/net/tcp") -> bool:
    """Return whether a VRC listens for FPM and nobody is connected."""
    with open(path) as file:
        lines = [line.split() for line in file.read(_MAX_BYTES).splitlines()[1:]]
    sockets = [(line[1], line[2], line[3]) for line in lines if len(line) > 3]
    listens = any(local.endswith(_PORT) and state == _LISTEN for local, _, state in sockets)
    return listens and not any(remote.endswith(_PORT) and state == _ESTABLISHED for _, remote, state in sockets)
