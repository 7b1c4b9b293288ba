"""topologies/demo: two tenants with the same addresses behind one switch, shown and proved step by step."""

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from lab.enclosure import kept_directory, run_enclosed
from lab.network import NetworkError, wait_for
from lab.planes.catalog import DEFAULT, GUEST_HELP, GUESTS, MACHINE, PLANES
from lab.probes import iperf
from lab.topology import Lab, Progress, spinner
from topologies import proofs
from topologies.checks import Claim, expect, verdict
from topologies.two_tenants import claims
from topologies.two_tenants.topology import H2, TENANTS, TOPOLOGY

_PICTURE = r"""

   red   h1 ─ n1 ─ VLAN 100 ─┐ ┌────┐   ┌────┐ ┌═ two links ═ n2 ─ h2   OSPF
                             └─┤ r1 ├───┤ r2 ├─┘
                one switch:    ├────┤   ├────┤    the same addresses in both
                             ┌─┤ r1 ├───┤ r2 ├─┐
   blue  h1 ─ n1 ────────────┘ └────┘   └────┘ └═ two links ═ n2 ─ h2   eBGP
"""
_FIB_ROUTER = "red/r2"
_TOWARDS_H2 = ("n2-a", "n2-b")
"""The interfaces of each tenant's r2 that lead to its h2."""
_LIMITS = {"red": ", as much as its access switch carries: a bridge of Open vSwitch in user space, for the VLAN"}
"""What limits a tenant's throughput where it is not the plane."""
_COUNTED_S = 20.0
"""How long a switch may take to count what it has sent."""


@dataclass(frozen=True, slots=True)
class Step:
    """A heading, what the step shows, and the claim that must hold."""

    heading: str
    shows: str
    prove: Callable[[Lab, Progress], list[str]]


def throughput(lab: Lab, progress: Progress) -> list[str]:
    """TCP goes across both tenants, and the switch has counted all of it."""
    found = []
    for tenant, address in zip(TENANTS, H2, strict=True):
        progress(f"iperf3 {tenant}-h1 → {address}")
        found.append(f"{tenant}-h1 → {address}: {_carried(lab, tenant, address):.0f} Mbit/s{_LIMITS.get(tenant, '')}")
    return found


def _carried(lab: Lab, tenant: str, address: str) -> float:
    """Return the rate at which the switch carries TCP to an address, in Mbit/s."""
    before = _sent(lab, tenant)
    size_bytes, rate = iperf(lab.network[f"{tenant}-h1"], lab.network[f"{tenant}-h2"], address)
    expect(rate > 1, f"{tenant}-h1 → {address}: {size_bytes} octets arrived, {rate:.3f} Mbit/s")
    forwarded = f"{tenant}: {size_bytes} octets arrived, and the switch has sent as many"
    router = f"{tenant}/r2"

    def counted() -> tuple[str, list[Path]]:
        return f"{router} has sent {_sent(lab, tenant) - before}", [
            *lab.logs_of([router]),
            *lab.network.planes.logs(),
        ]

    wait_for(forwarded, lambda: _sent(lab, tenant) >= before + size_bytes, _COUNTED_S, seen=counted)
    return rate


def _sent(lab: Lab, tenant: str) -> int:
    """Return how many octets the switch has sent towards a tenant's h2."""
    interfaces = lab.controller.counters(f"{tenant}/r2")["interfaces"]
    return sum(int(interfaces[name]["tx_bytes"]) for name in _TOWARDS_H2)


def fib(lab: Lab, progress: Progress) -> list[str]:
    """The FIB of one router as the switch holds it, and how its two-way groups spread flows."""
    progress(f"vrctl fib {_FIB_ROUTER}")
    table = lab.controller.vrctl("fib", _FIB_ROUTER).rstrip().splitlines()
    progress("flows to both members")
    claims.multipath(lab, progress)
    spread = [line for address in H2 for line in proofs.spreads(lab, "red-h1", address, "red-n2", ("eth1", "eth2"))]
    return [f"$ vrctl fib {_FIB_ROUTER}", *table, *spread]


STEPS = (
    Step(
        "Sessions",
        "routers speak with each other and with external FRR neighbors: OSPF in red, and BGP with n2; eBGP in blue",
        proofs.sessions_up,
    ),
    Step("Reach", "h1 pings h2 in both tenants under the same addresses, IPv4 and IPv6", claims.reach),
    Step("Path", "traceroute shows every virtual router, each of which counts the TTL", claims.trace),
    Step("VLAN", "red's first neighbor is attached by VLAN 100 of a trunk", claims.tagged),
    Step(
        "Isolation",
        "blue does not reach what only red has; nothing that blue sends arrives",
        claims.isolated,
    ),
    Step("Throughput", "iperf3 across the switch, IPv4 in red and IPv6 in blue", throughput),
    Step("FIB", "what the switch holds for one router: equal-cost groups that are really used", fib),
    Step(
        "Who forwards",
        "under 800 pings the guests' kernels forward nothing, and never more than was punted to them",
        claims.switch_forwards,
    ),
    Step(
        "Cut",
        "one of two links goes down under a ping every 10 ms: the largest gap",
        claims.reroute,
    ),
    Step("Restart", "vr-controller is killed with SIGKILL and started again while both tenants ping", claims.restart),
    Step("Verify", "learned, desired and read back from the switch are equal", claims.verified),
)


def program() -> int:
    """Bring two_tenants up and go through the steps; inside the enclosure."""
    console = Console(highlight=False)
    start = time.monotonic()
    options = _options()
    planes = PLANES[options.plane]()
    where = f"{planes.title}, red in virtual machines" if options.guest == MACHINE else planes.title
    console.print(f"[bold]Splitplane[/bold]: two tenants with the same addresses on one {where}{_PICTURE}")
    lab = Lab(TOPOLOGY, planes, options.guest == MACHINE)
    try:
        with spinner(console, "bringing it up") as progress:
            lab.bring_up(progress)
            ready = time.monotonic() - start
            took = lab.converge(progress)
        console.print(f"up in {ready:.1f} s, converged {took:.1f} s later")
        held = [_show(number, step, lab, console) for number, step in enumerate(STEPS, 1)]
    except NetworkError as problem:
        print("\n".join((f"demo: {problem}", *problem.last_lines())), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        if options.keep:
            lab.keep_logs(options.keep)
    colour = "green" if all(held) else "red"
    spent = time.monotonic() - start
    console.print(f"\n[bold {colour}]{sum(held)} of {len(held)} claims hold[/], {spent:.0f} s; nothing stays behind")
    return 0 if all(held) else 1


def _show(number: int, step: Step, lab: Lab, console: Console) -> bool:
    """Go through one step and say whether its claim holds."""
    console.print(f"\n[bold]{number}. {step.heading}[/bold] [dim]– {step.shows}[/dim]", soft_wrap=True)
    with spinner(console, step.heading) as progress:
        held, evidence = verdict(Claim(step.heading, step.prove), lab, progress)
    for line in evidence:
        console.print(f"   {escape(line)}", soft_wrap=True)
    console.print("   [green]✓ holds[/green]" if held else "   [red]✗ does not hold[/red]")
    return held


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="demo", description=__doc__)
    parser.add_argument("--plane", choices=PLANES, default=DEFAULT, help="what forwards (default: %(default)s)")
    parser.add_argument("--guest", choices=GUESTS, default=GUESTS[0], help=GUEST_HELP)
    parser.add_argument("--keep", type=kept_directory, metavar="DIR", help="copy all logs to DIR at the end")
    return parser.parse_args()


def main() -> int:
    """Check the command line, then run inside an enclosure."""
    options = _options()
    return run_enclosed("demo", "topologies.showing", program, PLANES[options.plane]().missing)


if __name__ == "__main__":
    sys.exit(main())
