"""topologies/run: brings a topology up and tests it, opens Mininet's prompt, or leaves it running."""

import argparse
import importlib
import signal
import sys
from pathlib import Path

from rich.console import Console

from lab.control import SOCKET
from lab.enclosure import kept_directory, outer_pid, run_enclosed
from lab.network import NetworkError
from lab.planes.base import Planes
from lab.planes.catalog import DEFAULT, GUEST_HELP, GUESTS, MACHINE, PLANES
from lab.topology import Lab, Topology, spinner
from topologies.checks import Claim, run_checks

FEWEST, MOST = 2_000, 190_000
"""Routes of fallback: more than the switch has room for, and within the slice's quota."""
NAMES = ("two_tenants", "leaf_spine", "fallback")


def load(name: str, routes: int | None = None) -> tuple[Topology, tuple[Claim, ...]]:
    """Return a topology, of so many routes where that is asked for, and what must hold in it."""
    topology: Topology = importlib.import_module(f"topologies.{name}.topology").TOPOLOGY
    if routes is not None and topology.sized is not None:
        topology = topology.sized(routes)
    return topology, importlib.import_module(f"topologies.{name}.claims").CLAIMS


def _planes(topology: Topology, chosen: str | None) -> Planes:
    """Return a topology's own planes, or what was chosen."""
    return PLANES[chosen or DEFAULT]() if topology.planes is None else topology.planes()


def program() -> int:
    """Do what the command line says; inside the enclosure."""
    options = _options()
    topology, claims = load(options.name, options.routes)
    console = Console()
    lab = Lab(topology, _planes(topology, options.plane), options.guest == MACHINE)
    try:
        with spinner(console, topology.name) as progress:
            lab.bring_up(progress)
            took = lab.converge(progress)
        console.print(f"{topology.name} is up; converged in {took:.1f} s", highlight=False)
        if options.test:
            return 0 if run_checks(lab, claims, console) else 1
        _stay(lab, options.cli, console)
    except NetworkError as problem:
        print("\n".join((f"run: {problem}", *problem.last_lines())), file=sys.stderr)
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
        lab.network.prompt()
        return
    interrupt = {signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, interrupt)  # one that came just before the wait would be lost
    console.print("Ctrl-C ends it; nothing stays behind")
    signal.sigwait(interrupt)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, interrupt)
    raise KeyboardInterrupt


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="run", description=__doc__)
    parser.add_argument("name", choices=NAMES, help="which topology")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--test", action="store_true", help="check that everything holds; exit status 1 if not")
    what.add_argument("--cli", action="store_true", help="open Mininet's prompt; its end ends the topology")
    parser.add_argument("--plane", choices=PLANES, help=f"what forwards (default: {DEFAULT})")
    parser.add_argument("--guest", choices=GUESTS, default=GUESTS[0], help=GUEST_HELP)
    parser.add_argument("--routes", type=int, metavar="N", help="routes that fallback's neighbor announces (100000)")
    parser.add_argument("--keep", type=kept_directory, metavar="DIR", help="copy all logs to DIR at the end")
    options = parser.parse_args()
    topology, _ = load(options.name)
    if topology.planes is not None and options.plane is not None:
        parser.error(f"{options.name} is of {topology.planes().title}; leave --plane out")
    if not topology.machines and options.guest == MACHINE:
        parser.error(f"the routers of {options.name} run in namespaces; leave --guest out")
    if topology.sized is None and options.routes is not None:
        parser.error(f"the routes of {options.name} are given; leave --routes out")
    if options.routes is not None and not FEWEST <= options.routes <= MOST:
        parser.error(f"--routes is from {FEWEST} to {MOST}")
    return options


def main() -> int:
    """Check the command line, then run inside an enclosure."""
    options = _options()
    topology, _ = load(options.name)
    return run_enclosed("run", "topologies.running", program, _planes(topology, options.plane).missing)


if __name__ == "__main__":
    sys.exit(main())
