"""Wires of a forwarder under test: a generator before it, a receiver behind it, each in a namespace of its own.

    ┌ generator ──────┐      ┌ forwarder ─────────────┐      ┌ receiver ─────┐
    │ generate ── veth┼──────┼ in ── (under test) out ┼──────┼ veth: receive │
    └─────────────────┘      └────────────────────────┘      └───────────────┘
      first core               last core: NAPI of `in`,        where what arrives was sent from: last core
                               and its threads

A veth's receive work is its NAPI's, and NAPI is threaded at `in`, so that it has a core to itself whoever sends. The
wires of all forwarders are alike; names of interfaces differ, because kernel threads are called after them and are
the whole machine's. There may be several links before it, each with a NAPI thread of its own.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from lab.commands import NetworkError
from lab.processes import prefer

SOURCE_MAC = "02:00:00:00:01:00"  # of the generator
IN_MAC = "02:00:00:00:01:01"
OUT_MAC = "02:00:00:00:02:01"
NEIGHBOR_MAC = "02:00:00:00:02:02"  # of the receiver

GENERATOR_CORE, FORWARDER_CORE = min(os.sched_getaffinity(0)), max(os.sched_getaffinity(0))
"""The cores of whatever sends and whatever is under test; nothing but this module changes affinities."""

_DRAINED_S = 0.05  # without an arrival
_INSIDE = "SPLITPLANE_WIRES"


class WiresError(NetworkError):
    """The measurement cannot go on; one line that says why."""


def enclose(module: str) -> None:
    """Run a module again in network and mount namespaces of its own, and return in there, on the generator's core,
    with /run and bpffs to itself. There is no PID namespace, in which the kernel's threads would be out of reach.
    What it starts dies with it, and the namespaces with the last of them."""
    if os.environ.pop(_INSIDE, None) is None:
        if os.geteuid() != 0:
            raise WiresError("needs root, for namespaces and BPF; run it with sudo")
        if GENERATOR_CORE == FORWARDER_CORE:
            raise WiresError("needs two cores: one for the generator, one for what is measured")
        os.environ[_INSIDE] = "1"
        os.execvp("unshare", ["unshare", "--net", "--mount", "--", sys.executable, "-m", module, *sys.argv[1:]])
    for kind, place in (("tmpfs", "/run"), ("sysfs", "/sys"), ("bpf", "/sys/fs/bpf")):
        subprocess.run(["mount", "-n", "-t", kind, kind, place], check=True)
    Path("/run/netns").mkdir()
    os.sched_setaffinity(0, {GENERATOR_CORE})


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
        self._argv = argv
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.answer() != ["ready"]:
            raise WiresError(f"{' '.join(argv)} did not start")
        if preferred:
            prefer(self._process.pid)

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

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
            raise WiresError(f"{' '.join(self._argv)} ended")
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
    entrances: int = 1  # links before the forwarder
    namespace: str = field(init=False)  # the forwarder's
    intos: list[str] = field(init=False)  # its end of each
    out: str = field(init=False)
    threads: list[int] = field(default_factory=list, init=False)  # of the NAPI of each, once they are pinned
    _stack: ExitStack = field(default_factory=ExitStack, init=False)
    _generators: dict[Path, Conversation] = field(default_factory=dict, init=False)

    def __enter__(self) -> Self:
        tag = f"{os.getpid() % 4096:03x}"
        self.intos = [f"{tag}{self.number}i{place or ''}" for place in range(self.entrances)]
        self.out = f"{tag}{self.number}o"
        names = [f"{place}{self.number}" for place in ("generator", "forwarder", "receiver")]
        self._sending, self.namespace, self._receiving = names
        for name in names:
            checked("ip", "netns", "add", name)
            self._stack.callback(checked, "ip", "netns", "del", name)
            checked(*inside(name, "ip", "link", "set", "lo", "up"))
            # The kernel's own multicast is no load.
            checked(*inside(name, "sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1"))
        self._senders = [f"{tag}{self.number}s{place or ''}" for place in range(self.entrances)]
        self._receiver = f"{tag}{self.number}r"
        for sender, into in zip(self._senders, self.intos, strict=True):
            _cable(self._sending, sender, SOURCE_MAC, self.namespace, into, IN_MAC)
            # NAPI is what takes frames that were redirected into a veth.
            checked(*inside(self.namespace, "ethtool", "-K", into, "gro", "on"))
        _cable(self.namespace, self.out, OUT_MAC, self._receiving, self._receiver, NEIGHBOR_MAC)
        self._start_programs()
        return self

    @property
    def into(self) -> str:
        """The forwarder's end of the first link before it."""
        return self.intos[0]

    def _start_programs(self) -> None:
        """Start what sends and what receives."""
        self._generator(self.destinations)
        self._receive = self._talk(self._at_receiver("receive", self._receiver))

    def _at_sender(self, *words: str) -> list[str]:
        return inside(self._sending, str(self.generator), *words)

    def _at_receiver(self, *words: str) -> list[str]:
        return inside(self._receiving, str(self.generator), *words)

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _talk(self, argv: Sequence[str]) -> Conversation:
        process = Conversation(argv)
        self._stack.callback(process.close)
        return process

    def _generator(self, destinations: Path) -> Conversation:
        if destinations not in self._generators:
            send = ("send", self._senders[0], SOURCE_MAC, IN_MAC, str(destinations))
            self._generators[destinations] = self._talk(self._at_sender(*send))
        return self._generators[destinations]

    def pin(self) -> None:
        """Give the NAPI of each `in` a thread on the forwarder's core; the forwarder is attached by now."""
        for into in self.intos:
            path = f"/sys/class/net/{into}/threaded"  # of the namespace: ip-netns mounts its own sysfs
            checked("ip", "netns", "exec", self.namespace, "sh", "-c", f"echo 1 > {path}")
            threads = list(threads_of(f"napi/{into}-"))
            if not threads:
                raise WiresError(f"{into} has no NAPI thread; Linux 5.12 and later have")
            for pid in threads:
                os.sched_setaffinity(pid, {FORWARDER_CORE})
                prefer(pid)
            self.threads += threads

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


def threads_of(prefix: str) -> Iterator[int]:
    """Yield the processes, threads of the kernel among them, whose names begin so."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                if Path(f"/proc/{entry}/comm").read_text().startswith(prefix):
                    yield int(entry)
            except OSError:
                continue
