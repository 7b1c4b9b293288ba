"""Carrier of host interfaces: the state of a software switch's ports, which P4Runtime does not tell.

A NETLINK_ROUTE socket says that some link changed; what is true then is asked of the kernel for every watched
interface. So nothing is lost where the socket overruns, and interfaces may appear, vanish and come back. sysfs would
show the interfaces of the namespace that mounted it, the sockets see those of the namespace they were made in.
"""

import asyncio
import contextlib
import errno
import fcntl
import socket
import struct
from collections.abc import Callable, Iterable

from controller.errors import PlaneError

_RTMGRP_LINK = 1  # linux/rtnetlink.h
_SIOCGIFFLAGS = 0x8913  # linux/sockios.h
_IFF_RUNNING = 0x40  # linux/if.h: up, with carrier
_IFREQ = struct.Struct("16sH22x")
_MESSAGES_AT_ONCE = 256

Changed = Callable[[str, bool], None]
"""Called with an interface and whether it is up now."""


class LinkWatch:
    """Watches interfaces of the network namespace in which it is made. `up` is what was last told of each."""

    def __init__(self, devices: Iterable[str]) -> None:
        self._probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._news = link_news()
        except OSError as problem:
            self._probe.close()
            raise PlaneError(f"cannot watch links: {problem.strerror}") from problem
        self.up = dict.fromkeys(devices, False)
        self._changed: Changed = lambda _device, _up: None

    def start(self, changed: Changed) -> None:
        """Look at every interface now, and from then on call ``changed`` from the event loop for each change.

        The first look fills `up` and tells nothing.
        """
        self.up = {device: has_carrier(self._probe, device) for device in self.up}
        self._changed = changed
        asyncio.get_running_loop().add_reader(self._news, self._look)

    def close(self) -> None:
        """Stop watching; harmless when repeated."""
        if self._news.fileno() >= 0:
            with contextlib.suppress(RuntimeError):  # it was never started, and there is no loop
                asyncio.get_running_loop().remove_reader(self._news)
        self._news.close()
        self._probe.close()

    def _look(self) -> None:
        self._drain()
        for device, before in list(self.up.items()):
            now = has_carrier(self._probe, device)
            if now != before:
                self.up[device] = now
                self._changed(device, now)

    def _drain(self) -> None:
        """Take what has come; many changes at once are one look."""
        for _ in range(_MESSAGES_AT_ONCE):
            try:
                self._news.recv(1)  # the rest of the message is cut off: what it says is asked anew
            except BlockingIOError:
                return
            except OSError as problem:
                if problem.errno != errno.ENOBUFS:  # an overrun: the look that follows repairs it
                    raise


def link_news() -> socket.socket:
    """Return a socket that has something to read when a link of this namespace has changed."""
    news = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE)
    try:
        news.bind((0, _RTMGRP_LINK))
    except OSError:
        news.close()
        raise
    return news


def has_carrier(probe: socket.socket, device: str) -> bool:
    """Tell whether an interface of the socket's namespace is up and has carrier; one that is missing has none."""
    try:
        answer = fcntl.ioctl(probe, _SIOCGIFFLAGS, _IFREQ.pack(device.encode(), 0))
    except OSError as problem:
        if problem.errno not in (errno.ENODEV, errno.ENXIO):
            raise
        return False
    return bool(_IFREQ.unpack(answer)[1] & _IFF_RUNNING)
