"""FRR as a routing neighbor runs it: its daemons below a root of their own, with one text for all."""

from collections.abc import Callable, Sequence
from pathlib import Path

BINARIES = Path("/usr/lib/frr")
PLACES = ["/etc/frr", "/run/frr", *(["/var/lib/frr"] if Path("/var/lib/frr").is_dir() else [])]
"""What a neighbor needs for itself. In the last FRR 10 remembers, say, that OSPF is to restart gracefully."""

Run = Callable[[Sequence[str], Sequence[Path]], object]
"""Runs a command beside the daemons, and raises where it fails; the logs say why."""


def start(root: Path, run: Run, text: str, daemons: Sequence[str]) -> None:
    """Start daemons, zebra first, and give them the text.

    ``root`` is the neighbor's file system as it is seen from here; its `PLACES` are FRR's own.
    """
    for file, content in {"frr.conf": text, "vtysh.conf": "service integrated-vtysh-config\n"}.items():
        (root / "etc/frr" / file).write_text(content)
    # From FRR 9 on mgmtd gives zebra and staticd their configuration.
    names = (*("mgmtd" for _ in range((BINARIES / "mgmtd").exists())), *daemons)
    for name in names:
        # A daemon keeps its standard output, which nobody may be waiting for.
        command = f"{BINARIES}/{name} -d -A 127.0.0.1 --log file:/run/frr/{name}.log"
        script = f"# {command}\nexec {command} >/run/frr/{name}.out 2>&1"
        run(["sh", "-c", script], [log(root, name), log(root, name, "out")])
    run(["vtysh", "-b"], [log(root, name) for name in names])


def vtysh(*commands: str) -> list[str]:
    """Return the command line of one vtysh that is given these commands, one after the other."""
    return ["vtysh", *(word for command in commands for word in ("-c", command))]


def log(root: Path, daemon: str, kind: str = "log") -> Path:
    """Return what a daemon logs, as it is seen from here."""
    return root / f"run/frr/{daemon}.{kind}"
