"""bench/forwarder: what a packet costs the whole pipeline in the kernel, beside the kernel's own look-up.

One core runs a program on one frame of 64 octets over and over (BPF_PROG_TEST_RUN), each time with the next of
2^18 destinations: random addresses of random routes. Programs take turns:

    whole_pipeline    vr-forwarder's, with all routes in so many VRFs; frames come and leave tagged
    kernel_lookup     a forwarder that asks bpf_fib_lookup(): all routes in the main table, neighbors resolved
    redirect_only     swaps the MACs and redirects: the limit

Each of them also writes the destination into the frame: next_arrival_ns, with the loop around it, is in every figure.
The core is theirs alone: they run at real-time priority.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from lab.prefixes import Announcement, announcements
from lab.processes import machine_s

_ROOT = Path(__file__).parent.parent
_PROGRAM = _ROOT / "build" / "forwarder" / "bench" / "forwarder" / "forwarder_cost"
_INSIDE = "SPLITPLANE_FORWARDER_BENCH"
_NEXTHOPS = 64
_OUT, _FAR = "out", "far"


class BenchError(Exception):
    """One line that says what is wrong and what to do."""


def say(text: str) -> None:
    """Tell people how far it is."""
    print(f"forwarder: {text}", file=sys.stderr, flush=True)


def _ip(*words: str, text: str | None = None) -> str:
    done = subprocess.run(("ip", *words), input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        problem = (done.stderr.splitlines() or ["no word why"])[0]
        raise BenchError(f"ip {' '.join(words)}: {problem}")
    return done.stdout


def kernel_tables(routes: list[Announcement]) -> int:
    """Fill this network namespace's main table and neighbors; return the ifindex that packets come in by."""
    _ip("link", "set", "lo", "up")
    _ip("link", "add", _OUT, "type", "veth", "peer", "name", _FAR)
    for name in (_OUT, _FAR):
        _ip("link", "set", name, "up")
        Path(f"/proc/sys/net/ipv4/conf/{name}/forwarding").write_text("1")
    _ip("addr", "add", "10.0.0.1/16", "dev", _OUT)
    lines = [
        f"neigh add 10.0.1.{number} lladdr 02:00:00:01:00:{number:02x} dev {_OUT} nud permanent\n"
        for number in range(_NEXTHOPS)
    ]
    lines += [f"route add {one.text} via 10.0.1.{number % _NEXTHOPS}\n" for number, one in enumerate(routes)]
    _ip("-batch", "-", text="".join(lines))
    return socket.if_nametoindex(_OUT)


def measure(options: argparse.Namespace, routes: list[Announcement], ifindex: int) -> dict[str, Any]:
    """Run the programs and return what they print."""
    core = max(os.sched_getaffinity(0))
    with tempfile.NamedTemporaryFile("w", suffix=".routes") as file:
        file.writelines(f"{one.network} {one.length} {number % _NEXTHOPS}\n" for number, one in enumerate(routes))
        file.flush()
        vrfs = [str(count) for count in options.vrfs]
        command = [str(options.program), file.name, str(ifindex), str(options.runs), str(core), *vrfs]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise BenchError("the measurement did not end well; its reason is above")
    return {"core": core} | dict(json.loads(done.stdout))


def program() -> int:
    """Measure inside the namespaces and print the result as the last line."""
    options = _options()
    before = machine_s()
    try:
        say(f"{options.routes} routes into the kernel's main table")
        routes = announcements(options.routes, options.seed)
        ifindex = kernel_tables(routes)
        say(f"{options.runs} rounds for each of {', '.join(map(str, options.vrfs))} VRFs")
        result = measure(options, routes, ifindex)
    except BenchError as problem:
        print(f"forwarder: {problem}", file=sys.stderr)
        return 1
    result |= {"routes": options.routes, "runs": options.runs, "frame_octets": 64}
    result |= {"machine_s": {name: round(now - before[name], 2) for name, now in machine_s().items()}}
    cost = {count: each["ns_per_packet"] for count, each in result["vrfs"].items()}
    if "1" in cost and "4096" in cost:
        result["cost_ratio_4096_to_1"] = round(cost["4096"] / cost["1"], 3)
    shares = [each["ns_per_packet"] / each["bpf_fib_lookup_ns"] for each in result["vrfs"].values()]
    result["worst_share_of_bpf_fib_lookup"] = round(max(shares), 3)
    print(json.dumps(result), flush=True)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="forwarder", description="what a packet costs vr-forwarder's pipeline")
    parser.add_argument("--routes", type=int, default=1_000_000, metavar="N", help="in all (default: %(default)s)")
    parser.add_argument(
        "--vrfs", type=int, nargs="+", default=[1, 64, 1024, 4096], metavar="N", help="tables of them"
    )
    parser.add_argument("--runs", type=int, default=5, metavar="K", help="the median of K is reported")
    parser.add_argument("--seed", type=int, default=1, help="of the prefixes (default: %(default)s)")
    parser.add_argument("--program", type=Path, default=_PROGRAM, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if min(options.vrfs) < 1 or max(options.vrfs) > 4096:
        parser.error("--vrfs: 1 to 4096")
    if options.routes < 1 or options.runs < 1:
        parser.error("--routes and --runs are at least 1")
    return options


def main() -> int:
    """Check the command line, then measure in a network namespace that ends with this process."""
    options = _options()
    if _INSIDE in os.environ:
        return program()
    if os.geteuid() != 0:
        print("forwarder: loading BPF programs needs root; run it with sudo", file=sys.stderr)
        return 1
    if not options.program.exists():
        print(f"forwarder: {options.program} is missing; run: scripts/setup tests", file=sys.stderr)
        return 1
    command = ("unshare", "--net", sys.executable, "-m", "bench.forwarder", *sys.argv[1:])
    return subprocess.run(command, env=os.environ | {_INSIDE: "1"}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
