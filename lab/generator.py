"""The generator in C (forwarder/bench/generator.c) at a host of a network: frames that it is given, or packets."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mininet.node import Node

from lab.network import inside
from lab.wires import Conversation

_BUILT = Path(__file__).parents[1] / "build/forwarder/bench"
PROGRAM, RANDOM_ACCESS = _BUILT / "generator", _BUILT / "random_access"
HEAD_BYTES = 128
"""GENERATOR_HEAD: what is given of a frame."""


def missing() -> str:
    """Say how to build it, and what reads and writes memory at random, where they are not built."""
    absent = [program for program in (PROGRAM, RANDOM_ACCESS) if not program.exists()]
    return f"{absent[0]} is missing; run: scripts/setup tests" if absent else ""


@contextmanager
def conversation(
    host: Node, *words: str, before: tuple[str, ...] = (), preferred: bool = True
) -> Iterator[Conversation]:
    """Run the program at a host while inside ``with``; ``before`` begins its command, `Conversation` has the rest."""
    process = Conversation(inside(host, [*before, str(PROGRAM), *words]), preferred)
    try:
        yield process
    finally:
        process.close()


def sent(sender: Conversation, length: int, rate: float, seconds: float) -> tuple[int, float]:
    """Have frames of a length (without the check sequence) sent at a rate in frames/s, or 0 for as many as go.

    Returns how many were sent, in how many seconds.
    """
    sender.ask(f"{length} {rate:.0f} {seconds * 1000:.0f}")
    frames, took_ns = map(int, sender.answer())
    return frames, took_ns / 1e9
