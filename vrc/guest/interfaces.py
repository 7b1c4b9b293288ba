"""Makes the guest's interfaces, each whole when it appears, and keeps them while the VRC comes and goes.

    start, a new declaration:   what is not there yet is made, in a network namespace of its own with name, MAC and
                                MTU, and moved from there: daemons that copy a MAC never see another one. A thread
                                does that which began before the guest was refused the calls for it (`Worker`)
                                then, once the kernel knows that it has no carrier, it gets its addresses and is up
    a link of the guest goes:   if it was one of these, it is made again
    another MAC is declared:    the interface is removed, and made again with it
    the suite:                  starts when all are there, or SUITE_WAIT_S after the first attempt with the reason

A TAP lives as long as one of its queues is open. Here is a detached one of each; the VRC opens another and mirrors
the state of the plane's port to its carrier, without which a TAP is made. What else a declaration changes on an
interface that is there already is the VRC's affair.

Linux notes a missing carrier up to a second late (net/core/link_watch.c). A TAP that is up before that counts as
running for so long, and zebra writes routes over it, which the kernel refuses and zebra does not write again.
"""

import contextlib
import errno
import os
import socket
import struct
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from vrc.guest.kernel import EnclosureError
from vrc.guest.namespaces import other_network
from vrc.guest.reactor import Reactor, Timer
from vrc.guest.worker import Worker
from vrc.netlink.requests import (
    IFF_UP,
    NLM_F_ACK,
    NLM_F_CREATE,
    NLM_F_EXCL,
    NLM_F_REQUEST,
    RTM_DELLINK,
    RTM_GETLINK,
    RTM_NEWADDR,
    RTM_NEWLINK,
    address_request,
    link_request,
)
from vrc.tun import detach_queue, open_queue, set_carrier

SUITE_WAIT_S = 10.0
"""How long the suite waits for interfaces that cannot be made."""
RETRY_S = 1.0
"""How long before an interface is made that could not be, or that was deleted in the guest."""
SETTLE_LIMIT_S = 2.0
"""How long an interface stays down until the kernel has noted its carrier."""

_INT, _U16, _ATTRIBUTE = struct.Struct("=i"), struct.Struct("=H"), struct.Struct("=HH")
_HEADER = struct.Struct("=IHHII")
_RTMGRP_LINK = 0x1
_NLMSG_ERROR, _IFLA_OPERSTATE, _IF_OPER_UNKNOWN = 2, 16, 0
_ATTRIBUTES_AT = 16 + 16  # in RTM_NEWLINK
_SETTLE_POLL_S = 0.02
_MAX_READS = 64  # at one wake-up
_ANSWER_LIMIT_S = 5.0


class LinkError(Exception):
    """The kernel refused a part of an interface; the text says which and why."""


@dataclass(frozen=True, slots=True)
class GuestInterface:
    """What an interface is to be when it appears."""

    name: str
    mac: bytes
    mtu: int
    addresses: tuple[tuple[bytes, int], ...]  # with prefix length
    admin_up: bool

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> "GuestInterface":
        """Take one of guest.json's; KeyError, TypeError or ValueError where it is none."""
        name, mac, mtu = fields["name"], bytes.fromhex(fields["mac"]), int(fields["mtu"])
        if not isinstance(name, str) or not 0 < len(name.encode()) < 16 or "/" in name or len(mac) != 6:
            raise ValueError(f"interface {name!r}: not a name, or not a MAC")
        return cls(name, mac, mtu, tuple(map(_address, fields["addresses"])), bool(fields["admin_up"]))


def _address(text: str) -> tuple[bytes, int]:
    address, _, bits = text.partition("/")
    try:
        return socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address), int(bits)
    except OSError as error:
        raise ValueError(f"{text!r} is not an address with its prefix length") from error


@dataclass(frozen=True, slots=True)
class _Held:
    fd: int  # a detached queue
    ifindex: int


class GuestInterfaces:
    """The interfaces of one guest. ``say`` is told, a line each, what the operator should know."""

    def __init__(self, reactor: Reactor, declared: Iterable[GuestInterface], say: Callable[[str], None]) -> None:
        self._reactor, self._say, self._worker = reactor, say, Worker()
        self._declared = {interface.name: interface for interface in declared}
        self._held: dict[str, _Held] = {}
        self._settling: dict[str, float] = {}  # those that are down until then, of the monotonic clock, or sooner
        self._refused: dict[str, str] = {}  # why one is not there, by name
        self._ready: Callable[[], None] | None = None
        self._retry: Timer | None = None
        self._requests = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self._requests.settimeout(_ANSWER_LIMIT_S)
        self._links = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE)
        self._links.bind((0, _RTMGRP_LINK))
        reactor.add_reader(self._links.fileno(), self._links_changed)

    @property
    def states(self) -> dict[str, str]:
        """Nothing while all are there; else ``interfaces``: ``starting``, or ``failed: …`` with the first reason."""
        if self._ready is not None or (self._settling and not self._refused):
            return {"interfaces": "starting"}
        if not self._refused:
            return {}
        name, why = next(iter(self._refused.items()))
        more = f" (and {len(self._refused) - 1} more)" if len(self._refused) > 1 else ""
        return {"interfaces": f"failed: {name}: {why}{more}"}

    def start(self, ready: Callable[[], None]) -> None:
        """Make all; ``ready`` is called once they are there, and after SUITE_WAIT_S even where some are not."""
        self._ready = ready
        self._reactor.call_later(SUITE_WAIT_S, self._call_ready)
        self._make_missing()

    def change(self, declared: Iterable[GuestInterface]) -> None:
        """Let go of those that are not declared any more, and make those that are new or have another MAC."""
        former, self._declared = self._declared, {interface.name: interface for interface in declared}
        for name in self._held.keys() - self._declared.keys():
            self._let_go(name)
        for name, held in list(self._held.items()):
            if former[name].mac != self._declared[name].mac:
                self._remove(name, held.ifindex)
        self._make_missing()

    def _remove(self, name: str, ifindex: int) -> None:
        """Remove an interface: the VRC has a queue of it, too."""
        try:
            _ask(self._requests, "remove", RTM_DELLINK, 0, link_request(ifindex))
        except (LinkError, OSError) as error:  # it went by itself, or is in the way of the new one, which says so
            self._say(f"interface {name}: {_reason(error)}")
        self._let_go(name)

    def _let_go(self, name: str) -> None:
        os.close(self._held.pop(name).fd)
        self._settling.pop(name, None)

    def close(self) -> None:
        """Let go of all: they end with the VRC's queues."""
        self._reactor.remove_reader(self._links.fileno())
        if self._retry:
            self._retry.cancel()
        self._links.close()
        self._requests.close()
        for held in self._held.values():
            os.close(held.fd)
        self._held.clear()

    def _call_ready(self) -> None:
        ready, self._ready = self._ready, None
        if ready is not None:
            ready()

    def _links_changed(self) -> None:
        with contextlib.suppress(OSError):  # nothing left, or more than the socket holds, which says as much
            for _ in range(_MAX_READS):
                self._links.recv(1)
        for name, held in list(self._held.items()):
            if _ifindex(name) != held.ifindex:
                self._let_go(name)
                self._say(f"interface {name} was deleted or renamed in the guest; it is made again")
                self._retry_later()

    def _retry_later(self) -> None:
        if self._retry is None:
            self._retry = self._reactor.call_later(RETRY_S, self._make_missing)

    def _make_missing(self) -> None:
        if self._retry:
            self._retry.cancel()
            self._retry = None
        missing = [interface for name, interface in self._declared.items() if name not in self._held]
        refused = self._worker.do(lambda: self._make(missing)) if missing else {}
        for name, why in refused.items():
            if self._refused.get(name) != why:
                self._say(f"interface {name}: {why}")
        self._refused = refused
        if refused:
            self._retry_later()
        self._settle()

    def _settle(self) -> None:
        """Set up what the kernel knows the carrier of; look again soon where some is left."""
        now = time.monotonic()
        for name, until_s in list(self._settling.items()):
            try:
                if now < until_s and not _has_state(self._requests, self._held[name].ifindex):
                    continue
                self._set_up(self._declared[name], self._held[name].ifindex)
            except (LinkError, OSError) as error:  # the VRC will try it once more
                self._say(f"interface {name}: {_reason(error)}")
            del self._settling[name]
        if self._settling:
            self._reactor.call_later(_SETTLE_POLL_S, self._settle)
        elif not self._refused:
            self._call_ready()

    def _make(self, missing: list[GuestInterface]) -> dict[str, str]:
        """Make interfaces; return why not for those that could not be."""
        refused = {}
        made: dict[str, int] = {}
        try:
            with other_network() as own, _netlink() as requests:
                for interface in missing:
                    try:
                        made[interface.name] = self._make_one(interface, requests, own)
                    except (LinkError, OSError) as error:
                        refused[interface.name] = _reason(error)
        except (EnclosureError, OSError) as error:
            refused = dict.fromkeys((interface.name for interface in missing), _reason(error))
        for name, fd in made.items():
            self._held[name] = _Held(fd, _ifindex(name))
            self._settling[name] = time.monotonic() + SETTLE_LIMIT_S
        return refused

    def _make_one(self, interface: GuestInterface, requests: socket.socket, own: int) -> int:
        """Make one in the network namespace that this process is in, and move it; return its detached queue."""
        fd = open_queue(interface.name, carrier=False)
        try:
            set_carrier(fd, False)  # before Linux 6.0 a TAP is born with it
            detach_queue(interface.name, fd)
            index = _ifindex(interface.name)
            _ask(requests, "MAC and MTU", RTM_NEWLINK, 0, link_request(index, mac=interface.mac, mtu=interface.mtu))
            _ask(requests, "move", RTM_NEWLINK, 0, link_request(index, namespace=own))
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _set_up(self, interface: GuestInterface, ifindex: int) -> None:
        for address, bits in interface.addresses:
            flags = NLM_F_CREATE | NLM_F_EXCL
            try:
                _ask(self._requests, "address", RTM_NEWADDR, flags, address_request(ifindex, address, bits))
            except OSError as error:
                if error.errno != errno.EEXIST:  # by the VRC, which sees the interface as soon as it is there
                    raise
        if interface.admin_up:
            _ask(self._requests, "up", RTM_NEWLINK, 0, link_request(ifindex, flags=IFF_UP, change=IFF_UP))


def _ifindex(name: str) -> int:
    try:
        return socket.if_nametoindex(name)
    except OSError:
        return 0


def _netlink() -> socket.socket:
    made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
    made.settimeout(_ANSWER_LIMIT_S)
    return made


def _ask(sock: socket.socket, what: str, kind: int, flags: int, body: bytes) -> None:
    """Send one rtnetlink request that is only acknowledged; LinkError or, with the kernel's errno, OSError."""
    if _answer(sock, what, kind, flags | NLM_F_ACK, body)[4:6] != _U16.pack(_NLMSG_ERROR):
        raise LinkError(f"{what}: not an answer")


def _answer(sock: socket.socket, what: str, kind: int, flags: int, body: bytes) -> bytes:
    sock.send(_HEADER.pack(_HEADER.size + len(body), kind, flags | NLM_F_REQUEST, 1, 0) + body)
    answer = sock.recv(1 << 16)
    if len(answer) < _HEADER.size + _INT.size:
        raise LinkError(f"{what}: the kernel's answer is too short")
    (error,) = _INT.unpack_from(answer, _HEADER.size)
    if answer[4:6] == _U16.pack(_NLMSG_ERROR) and error:
        raise OSError(-error, f"{what}: {os.strerror(-error)}")
    return answer


def _has_state(sock: socket.socket, ifindex: int) -> bool:
    """Tell whether the kernel has determined a link's carrier: IFLA_OPERSTATE (RFC 2863) is known."""
    message = _answer(sock, "state", RTM_GETLINK, 0, link_request(ifindex))
    at = _ATTRIBUTES_AT
    while at + _ATTRIBUTE.size <= len(message):
        size, kind = _ATTRIBUTE.unpack_from(message, at)
        if kind == _IFLA_OPERSTATE:
            return message[at + _ATTRIBUTE.size] != _IF_OPER_UNKNOWN
        at += max(size + 3 & ~3, _ATTRIBUTE.size)
    return False


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        if error.errno == errno.EEXIST:
            return "another link of that name is in the guest; remove it, or rename one of the two"
        return error.strerror or str(error)
    return str(error)
