"""Wires of a forwarder under test: a generator before it, a receiver behind it, each in a namespace of its own.

    ┌ generator ──────┐      ┌ forwarder ─────────────┐      ┌ receiver ─────┐
    │ generate ── veth┼──────┼ in ── (under test) out ┼──────┼ veth: receive │
    └─────────────────┘      └────────────────────────┘      └───────────────┘
      first core               last core: NAPI of `in`,        where what arrives was sent from: last core
                               and its threads

A veth's receive work is its NAPI's, and NAPI is threaded at `in`, so that it has a core to itself whoever sends. The
wires of all forwarders are alike; names of interfaces differ, because kernel threads are called after them and are
the whole machine's.
"""

import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lab.commands import NetworkError
from lab.processes import prefer

SOURCE_MAC = "02:00:00:00:01:00"  # of the generator
IN_MAC = "02:00:00:00:01:01"
OUT_MAC = "02:00:00:00:02:01"
NEIGHBOR_MAC = "02:00:00:00:02:02"  # of the receiver

GENERATOR_CORE, FORWARDER_CORE = min(os.sched_getaffinity(0)), max(os.sched_getaffinity(0))
"""The cores of whatever sends and whatever is under test; nothing but this module changes affinities."""

_DRAINED_S = 0.05  # without an arrival


class WiresError(NetworkError):
    """The measurement cannot go on; one line that says why."""


def checked(*argv: str) -> str:
    """Run a command and return its output; WiresError with what it complained of where it fails."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise WiresError(f"{' '.join(argv)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def inside(namespace: str, *argv: str, core: int = GENERATOR_CORE) -> list[str]:
    """Return what runs a command in a namespace, on one core, for as long as this process lives."""
    enter = ("nsenter", f"--net=/run/netns/{namespace}")
    return ["setpriv", "--pdeathsig", "KILL", "taskset", "-c", str(core), *enter, *argv]


class Conversation:
    """A process of forwarder/bench/generator.c: it answers a line with a line. One that is ``preferred`` waits for
    nobody else's work."""

    def __init__(self, argv: Sequence[str], preferred: bool = True) -> None:
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.answer() != ["ready"]:
            raise WiresError(f"{' '.join(argv)} did not start")
        if preferred:
            prefer(self._process.pid)

    def ask(self, line: str) -> None:
        """Send a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def answer(self) -> list[str]:
        """Wait for a line and return its words."""
        assert self._process.stdout is not None
        words = self._process.stdout.readline().split()
        if not words:
            raise WiresError(f"{' '.join(map(str, self._process.args))} ended")  # type: ignore[arg-type]
        return words

    def close(self) -> None:
        """End it by the end of its input."""
        self._process.communicate()


@dataclass(frozen=True, slots=True)
class Count:
    """What the receiver has seen so far."""

    packets: int
    routed: int  # of these, with a TTL one less
    at_ns: int


@dataclass
class Wires:
    """The wires of one forwarder, ``number`` of all: ``with Wires(…) as wires``."""

    number: int
    generator: Path  # the program
    destinations: Path  # of its packets
    namespace: str = field(init=False)  # the forwarder's
    into: str = field(init=False)
    out: str = field(init=False)
    _stack: ExitStack = field(default_factory=ExitStack, init=False)
    _generators: dict[Path, Conversation] = field(default_factory=dict, init=False)

    def __enter__(self) -> "Wires":
        tag = f"{os.getpid() % 4096:03x}"
        self.into, self.out = f"{tag}{self.number}i", f"{tag}{self.number}o"
        names = [f"{place}{self.number}" for place in ("generator", "forwarder", "receiver")]
        self._sending, self.namespace, receiving = names
        for name in names:
            checked("ip", "netns", "add", name)
            self._stack.callback(checked, "ip", "netns", "del", name)
            checked(*inside(name, "ip", "link", "set", "lo", "up"))
            # The kernel's own multicast is no load.
            checked(*inside(name, "sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1"))
        self._sender, self._receiver = f"{tag}{self.number}s", f"{tag}{self.number}r"
        _cable(self._sending, self._sender, SOURCE_MAC, self.namespace, self.into, IN_MAC)
        _cable(self.namespace, self.out, OUT_MAC, receiving, self._receiver, NEIGHBOR_MAC)
        # NAPI is what takes frames that were redirected into a veth.
        checked(*inside(self.namespace, "ethtool", "-K", self.into, "gro", "on"))
        self._generator(self.destinations)
        self._receive = self._talk(inside(receiving, str(self.generator), "receive", self._receiver))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _talk(self, argv: Sequence[str]) -> Conversation:
        process = Conversation(argv)
        self._stack.callback(process.close)
        return process

    def _generator(self, destinations: Path) -> Conversation:
        if destinations not in self._generators:
            send = (str(self.generator), "send", self._sender, SOURCE_MAC, IN_MAC, str(destinations))
            self._generators[destinations] = self._talk(inside(self._sending, *send))
        return self._generators[destinations]

    def pin(self) -> None:
        """Give the NAPI of `in` a thread on the forwarder's core; the forwarder is attached by now."""
        path = f"/sys/class/net/{self.into}/threaded"  # of the namespace: ip-netns mounts its own sysfs
        checked("ip", "netns", "exec", self.namespace, "sh", "-c", f"echo 1 > {path}")
        threads = list(_threads(f"napi/{self.into}-"))
        if not threads:
            raise WiresError(f"{self.into} has no NAPI thread; Linux 5.12 and later have")
        for pid in threads:
            os.sched_setaffinity(pid, {FORWARDER_CORE})
            prefer(pid)

    def count(self) -> Count:
        """Ask the receiver."""
        self._receive.ask("")
        packets, routed, at_ns = map(int, self._receive.answer())
        return Count(packets, routed, at_ns)

    def drained(self) -> Count:
        """Return the receiver's count once nothing arrives any more."""
        last, since = self.count(), 0
        while since < _DRAINED_S * 1e9:
            time.sleep(_DRAINED_S / 4)
            now = self.count()
            since = 0 if now.packets != last.packets else since + now.at_ns - last.at_ns
            last = now
        return last

    @contextmanager
    def sending(
        self, length: int, rate: float, seconds: float, destinations: Path | None = None
    ) -> Iterator[list[int]]:
        """Send frames of a length (without its check sequence) at a rate, or 0 for as many as go, during the context,
        which ends when sending does; then the list holds how many were sent in how many nanoseconds. They go to the
        wires' own destinations where no others are given."""
        sent: list[int] = []
        generate = self._generator(destinations or self.destinations)
        generate.ask(f"{length} {rate:.0f} {seconds * 1000:.0f}")
        yield sent
        sent += map(int, generate.answer())


def _cable(here: str, name: str, mac: str, there: str, other: str, other_mac: str) -> None:
    # One queue each: one NAPI, on one core.
    queues = ("numtxqueues", "1", "numrxqueues", "1")
    peer = ("peer", "name", other, "address", other_mac, "netns", there, *queues)
    checked("ip", "-n", here, "link", "add", "name", name, "address", mac, *queues, "type", "veth", *peer)
    for place, end in ((here, name), (there, other)):
        off = [word for offload in ("tx", "tso", "gso", "txvlan", "rxvlan") for word in (offload, "off")]
        checked(*inside(place, "ethtool", "-K", end, *off))
        checked("ip", "-n", place, "link", "set", end, "up")


def _threads(prefix: str) -> Iterator[int]:
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                if Path(f"/proc/{entry}/comm").read_text().startswith(prefix):
                    yield int(entry)
            except OSError:
                continue
