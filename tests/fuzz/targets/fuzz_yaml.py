"""The YAML of `vrctl apply`: documents as an operator's text, which may have been a tenant's."""

from contextlib import suppress
from pathlib import Path

from controller.errors import SpecError
from controller.spec.parse import parse

INSTRUMENTED = ("controller.spec",)


def try_one(octets: bytes) -> None:
    """Parse it; only `SpecError` is raised."""
    with suppress(SpecError):
        parse(octets.decode(errors="replace"), "input.yaml")


def seeds() -> list[bytes]:
    """The documents of the topologies."""
    root = Path(__file__).parents[3]
    texts = [path.read_bytes() for path in sorted(root.glob("topologies/*/*.yaml"))]
    small = b"version: 1\nplanes: [{name: f1, kind: p4runtime, address: 'x:1', ports: {e: {number: 1, device: e}}}]\n"
    return [*texts, small, b"version: 1\ntenants:\n  - &a {name: red, slices: [], routers: []}\n  - *a\n"]
