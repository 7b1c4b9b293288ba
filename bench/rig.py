"""The rig: a switch, a controller and hosts, as in production but in namespaces of their own."""

import asyncio
import http.client
import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from controller.guests.suites import frr
from lab import bird, traffic
from lab.control import LOG, SOCKET, Controller
from lab.enclosure import STATE
from lab.network import Network, NetworkError, Node, checked, inside, wait_for
from lab.planes.base import Planes
from lab.planes.open_vswitch import OpenVSwitchPlanes, daemon_logs, start_daemons
from lab.processes import guest_processes, prefer

WORK = Path("/run/bench")
PLANE = "s1"
AS_NUMBER = 65001
PREFIXES, SENT, RECEIVED, _CAME = (WORK / name for name in ("prefixes", "sent", "received", "came"))
"""Files: the prefixes that flows go to, a line each, what both ends of them saw, and how much came (traffic.py)."""
_TRAFFIC = traffic.__file__


def say(text: str) -> None:
    """Tell people how far it is."""
    print(f"[bench] {text}", file=sys.stderr, flush=True)


def bgp_config(neighbors: list[str], theirs: int, *more: str) -> str:
    """Return FRR's configuration of a router with eBGP neighbors that share load."""
    lines = ["frr version 8.4", *_input_queue(), f"router bgp {AS_NUMBER}", " bgp router-id 10.255.0.1"]
    lines += [" no bgp ebgp-requires-policy", " bgp bestpath as-path multipath-relax"]
    for neighbor in neighbors:
        lines += [f" neighbor {neighbor} remote-as {theirs}", f" neighbor {neighbor} passive"]
    return "\n".join([*lines, *more, "exit", ""])


def _input_queue() -> list[str]:
    """What a neighbor says at once has to fit bgpd's input queue of 10,000 messages from FRR 8.5 on (docs/frr.md)."""
    return ["bgp input-queue-limit 4294967295"] if asyncio.run(frr.version()) >= (8, 5) else []


class Api:
    """The operator API over one connection: a request costs the controller about a millisecond."""

    def __init__(self) -> None:
        self._connection = _UnixConnection("controller")

    def get(self, path: str) -> Any:
        """Return the value that GET /v1/PATH gives."""
        return json.loads(self.text(path))

    def text(self, path: str) -> str:
        """Return the body that GET /v1/PATH gives."""
        try:
            return self._ask(path)
        except (OSError, http.client.HTTPException):  # the server closes a connection that was idle for a while
            self._connection.close()
            return self._ask(path)

    def _ask(self, path: str) -> str:
        self._connection.request("GET", f"/v1/{path}")
        response = self._connection.getresponse()
        body = response.read()
        if response.status != 200:
            raise NetworkError(f"GET {path}: {response.status} {body[:200].decode(errors='replace')}")
        return body.decode()

    def router(self, name: str) -> dict[str, Any]:
        """Return the state of a router ("tenant/router")."""
        view: dict[str, Any] = self.get(f"routers/{name}")
        return view


class _UnixConnection(http.client.HTTPConnection):
    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(30)
        self.sock.connect(str(SOCKET))


def _pid_in(path: Path) -> int:
    return int(path.read_text())


class Rig:
    """One switch, one vr-controller, and what a measurement adds.

    Both run at nice -10, as Debian's ovs-ctl runs ovs-vswitchd: a switch and its controller do not wait for guests.
    """

    def __init__(self, planes: Planes | None = None, controller: Controller | None = None) -> None:
        WORK.mkdir(parents=True, exist_ok=True)
        start_daemons()
        self.network = Network(planes or OpenVSwitchPlanes())
        self.network.switch(PLANE, 1)
        self.controller = controller or Controller()
        self.api = Api()

    def apply(self, tenants: list[dict[str, Any]], timeout_s: float = 60) -> None:
        """Start the controller, declare the tenants and wait until each router is up; the network runs by then."""
        self.start_controller()
        self.declare(tenants)
        names = [f"{tenant['name']}/{router['name']}" for tenant in tenants for router in tenant["routers"]]
        for name in names:
            wait_for(f"router {name}", partial(self._up, name), timeout_s)

    def start_controller(self) -> None:
        """Start the controller; the network runs by then."""
        prefer(self.network.planes.process(PLANE))
        self.controller.start()
        prefer(_pid_in(STATE / "lock"))

    def declare(self, tenants: list[dict[str, Any]]) -> None:
        """Apply the plane and the tenants; returns when their guests have read their texts."""
        document = {"version": 1, "planes": [_roomy(plane) for plane in self.network.planes.declared()]}
        path = WORK / "bench.yaml"
        path.write_text(json.dumps(document | {"tenants": tenants}))  # JSON is YAML
        self.controller.vrctl("apply", "-f", str(path))

    def _up(self, name: str) -> bool:
        view = self.api.router(name)
        return view["state"] == "up" and not view["pending"]

    def start_flows(
        self, near: Node, far: Node, interfaces: Sequence[str], rate: int, flows: int
    ) -> "tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]]":
        """Send UDP flows from eth0 of a host into PREFIXES, ``rate`` packets/s in all, 0 for as many as get through.

        Returns sender and receiver.
        ``near`` is at the router's interface of that name, ``far`` listens on ``interfaces``. SIGTERM ends each.
        """
        macs = {one["name"]: one["mac"] for one in self.api.get("interfaces")}
        _CAME.write_bytes(bytes(8))
        receive = [sys.executable, _TRAFFIC, "receive", str(rate), str(RECEIVED), str(_CAME), *interfaces]
        send = [sys.executable, _TRAFFIC, "send", str(rate), "eth0", macs["near"]]
        send += [str(SENT), str(_CAME), str(PREFIXES), str(flows)]
        receiver = subprocess.Popen(inside(far, receive))
        sockets = Path(f"/proc/{far.pid}/net/packet")
        wait_for("the receiver", lambda: len(sockets.read_text().splitlines()) > 1, 30, 0.05)
        return subprocess.Popen(inside(near, send)), receiver

    def guest_pid(self, name: str) -> int:
        """Return the first process of a router's guest."""
        for config in STATE.glob("guests/*/guest.json"):
            if json.loads(config.read_text())["router"] == name:
                return int(config.with_name("guest.pid").read_text().split()[0])
        raise NetworkError(f"router {name} has no guest")

    def processes(self, router: str) -> dict[str, int]:
        """Return the processes that mirror a router's routes, by the names of the report."""
        found = guest_processes(self.guest_pid(router))
        found["controller"] = _pid_in(STATE / "lock")
        found["plane"] = self.network.planes.process(PLANE)
        return {name: found[name] for name in ("zebra", "bgpd", "vrc", "controller", "plane")}

    def verify(self, router: str, timeout_s: float = 300) -> str:
        """Run `vrctl verify`; returns its words, NetworkError where anything differs."""
        vrctl = [str(Path(sys.executable).parent / "vrctl"), "--socket", str(SOCKET)]
        argv = [*vrctl, "verify", router]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=timeout_s)
        if done.returncode:
            raise NetworkError(f"vrctl verify {router}: {(done.stdout + done.stderr).strip()}")
        return done.stdout.strip()


def _roomy(plane: dict[str, Any]) -> dict[str, Any]:
    """Return a plane that quotas beyond a million routes fit in: so many Open vSwitch says, whatever it can do."""
    if plane["kind"] != "openflow" or "fallback" in plane:
        return plane
    return plane | {"capacity": {"ipv4_route": 4_000_000, "ipv6_route": 4_000_000}}


def take_generated(rig: Rig, port: str) -> None:
    """Have a port of the switch take what the lab's generator sends: without NAPI (an XDP program, or GRO) none."""
    if not rig.network.planes.polled:
        checked(["ethtool", "-K", port, "gro", "on"])


MORE_ROUTES = 1000
"""What a quota of routes has beside those that a bench announces: room for the router's own."""


def tenant(name: str, ports: list[str], *routers: dict[str, Any], **quota: int) -> dict[str, Any]:
    """Return a tenant for `Rig.apply`."""
    return {
        "name": name,
        "slices": [{"plane": PLANE, "ports": {port: ["untagged"] for port in ports}, "quota": quota}],
        "routers": [router | {"plane": PLANE} for router in routers],
    }


def interface(name: str, port: str, *addresses: str) -> dict[str, Any]:
    """Return an interface for a router of `tenant`."""
    return {"name": name, "port": port, "addresses": list(addresses)}


def report(name: str, measure: Callable[[], dict[str, Any]], keep: Path | None) -> int:
    """Print what a measurement gives as JSON and return the exit status; its logs go to ``keep``, however it ends."""
    try:
        print(json.dumps(measure()), flush=True)
    except NetworkError as problem:
        print(f"{name}: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        if keep:
            keep_logs(keep)
    return 0


def keep_logs(directory: Path) -> None:
    """Copy the logs of controller, switch, guests and BIRDs to a directory that outlives the enclosure."""
    directory.mkdir(parents=True, exist_ok=True)
    found = [
        LOG,
        *daemon_logs(),
        *Path("/run/bmv2").glob("*.log"),
        *STATE.glob("**/*.log"),
        *WORK.glob("**/*.log"),
        *bird.logs(),
        WORK / "snoop",
    ]
    for path in found:
        if path.is_file():
            shutil.copyfile(path, directory / str(path).strip("/").replace("/", "_"))
