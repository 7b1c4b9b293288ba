"""topologies/run: brings a topology up and tests it, opens Mininet's prompt, or leaves it running."""

import argparse
import importlib
import signal
import sys
from pathlib import Path

from mininet.cli import CLI
from rich.console import Console

from topologies.catalog import DEFAULT, GUEST_HELP, GUESTS, MACHINE, PLANES
from topologies.checks import Claim, run_checks
from topologies.control import SOCKET
from topologies.enclosure import outer_pid, run_enclosed
from topologies.lab import Lab, Topology, spinner
from topologies.network import NetworkError

NAMES = ("two_tenants", "leaf_spine")


class Prompt(CLI):  # type: ignore[misc]
    """Mininet's prompt, for hosts with a hyphen in their names."""

    identchars = CLI.identchars + "-"


def load(name: str) -> tuple[Topology, tuple[Claim, ...]]:
    """Return a topology and what must hold in it."""
    topology = importlib.import_module(f"topologies.{name}.topology").TOPOLOGY
    return topology, importlib.import_module(f"topologies.{name}.claims").CLAIMS


def program() -> int:
    """Do what the command line says; inside the enclosure."""
    options = _options()
    topology, claims = load(options.name)
    console = Console()
    lab = Lab(topology, PLANES[options.plane](), options.guest == MACHINE)
    try:
        with spinner(console, topology.name) as progress:
            lab.bring_up(progress)
            took = lab.converge(progress)
        console.print(f"{topology.name} is up; converged in {took:.1f} s", highlight=False)
        if options.test:
            return 0 if run_checks(lab, claims, console) else 1
        _stay(lab, options.cli, console)
    except NetworkError as problem:
        print(f"run: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        if options.keep:
            lab.keep_logs(options.keep)
    return 0


def _stay(lab: Lab, prompt: bool, console: Console) -> None:
    inside = f"nsenter -t {outer_pid()} -m -n -p -- {Path(sys.executable).parent}/vrctl --socket {SOCKET}"
    console.print(f"vrctl from another terminal: {inside} get routers", highlight=False, soft_wrap=True)
    if prompt:
        Prompt(lab.network.mininet)
        return
    console.print("Ctrl-C ends it; nothing stays behind")
    while True:
        signal.pause()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="run", description=__doc__)
    parser.add_argument("name", choices=NAMES, help="which topology")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--test", action="store_true", help="check that everything holds; exit status 1 if not")
    what.add_argument("--cli", action="store_true", help="open Mininet's prompt; its end ends the topology")
    parser.add_argument("--plane", choices=PLANES, default=DEFAULT, help="what forwards (default: %(default)s)")
    parser.add_argument("--guest", choices=GUESTS, default=GUESTS[0], help=GUEST_HELP)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="copy all logs to DIR at the end")
    return parser.parse_args()


def main() -> int:
    """Check the command line, then run inside an enclosure."""
    options = _options()
    return run_enclosed("run", "topologies.running", program, PLANES[options.plane]().missing)


if __name__ == "__main__":
    sys.exit(main())
