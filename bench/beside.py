"""What another tenant notices while a router loads its table: a route change, an OSPF adjacency, ARP.

side/ospf   eth0 ── side-ospf (FRR, hello 1 s, dead 4 s)      eth1 ── side-host (asks for eth1's MAC)
side/net    eth0 ── side-net; one route is set and removed in its kernel, again and again
"""

import json
import signal
import statistics
import subprocess
import sys
import threading
import time
from http.client import HTTPException
from pathlib import Path
from typing import Any

from bench.rig import PLANE, WORK, Api, Rig, interface, say, tenant
from lab.network import FrrHost, NetworkError, inside, wait_for

_ARPING = Path(__file__).with_name("arping.py")
_CHANGE_EVERY_S = 0.3
_POLL_S = 0.005
_ROUTE = "203.0.113.0/24"
_OSPF = """frr version 8.4
interface eth0
{address} ip ospf area 0
 ip ospf network point-to-point
 ip ospf hello-interval 1
 ip ospf dead-interval 4
exit
router ospf
 ospf router-id {router_id}
 log-adjacency-changes detail
exit
"""


class Beside:
    """The other tenant's hosts and routers, and what is measured on them between `start` and `stop`."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        network = rig.network
        config = WORK / "side-ospf.conf"
        config.write_text(_OSPF.format(address=" ip address 10.9.0.2/24\n", router_id="10.255.9.2"))
        self._neighbor: FrrHost = network.neighbor("side-ospf", config, "ospfd")
        self._host = network.host("side-host", "10.9.1.2/24")
        hosts = (self._neighbor, self._host, network.host("side-net", "10.9.2.2/24"))
        for host in hosts:
            network.wire(host, "eth0", network[PLANE], host.name)
        self._changes: list[float] = []
        self._changing = threading.Event()
        self._problem = ""

    def tenants(self) -> list[dict[str, Any]]:
        """Return the tenant for `Rig.apply`."""
        ospf = _OSPF.format(address="", router_id="10.255.9.1")
        first = [interface("eth0", "side-ospf", "10.9.0.1/24"), interface("eth1", "side-host", "10.9.1.1/24")]
        second = [interface("eth0", "side-net", "10.9.2.1/24")]
        return [
            tenant(
                "side",
                ["side-ospf", "side-host", "side-net"],
                {"name": "ospf", "interfaces": first, "frr": ospf},
                {"name": "net", "interfaces": second, "source": "netlink"},
            )
        ]

    def start(self) -> None:
        """Begin, once the adjacency is Full."""
        wait_for("the OSPF adjacency", lambda: self._ospf_state().startswith("Full"), 60)
        self._seen = len(self._adjacency_changes())
        if not self._seen:
            raise NetworkError("ospfd does not log its adjacency changes")
        argv = inside(self._host, [sys.executable, str(_ARPING), "eth0", "10.9.1.2", "10.9.1.1"])
        self._arping = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        # A daemon's: where nobody stops it, because something else has failed, it ends with the program.
        self._thread = threading.Thread(target=self._change_until_stopped, name="route changes", daemon=True)
        self._thread.start()

    def stop(self) -> dict[str, Any]:
        """End it and return what was seen."""
        self._changing.set()
        self._thread.join()
        self._arping.send_signal(signal.SIGTERM)
        said, _ = self._arping.communicate(timeout=30)
        if self._problem:
            raise NetworkError(self._problem)
        arp = json.loads(said)
        state, changes = self._ospf_state(), self._adjacency_changes()[self._seen :]
        result = {
            "route_change_worst_ms": round(max(self._changes) * 1000, 1),
            "route_change_median_ms": round(statistics.median(self._changes) * 1000, 1),
            "route_changes": len(self._changes),
            "ospf_state": state,
            "ospf_state_changes": len(changes),
            "arp_p99_ms": arp["p99_ms"],
            "arp_worst_ms": arp["worst_ms"],
            "arp_asked": arp["asked"],
            "arp_unanswered": arp["unanswered"],
        }
        say(f"beside: {result}")
        return result

    def _change_until_stopped(self) -> None:
        try:
            self._change_routes()
        except (NetworkError, OSError, HTTPException) as problem:
            self._problem = f"routes of side/net are not changed any more: {problem}"

    def _change_routes(self) -> None:
        """Set and remove one route in the kernel of side/net and time each until the plane has confirmed it."""
        api, guest = Api(), self._rig.guest_pid("side/net")
        argv = ["nsenter", "-t", str(guest), "-n", "ip", "-batch", "-"]
        without = api.router("side/net")["ipv4_routes"]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, text=True, bufsize=1) as ip:
            assert ip.stdin is not None
            present = False
            while not self._changing.is_set() and not self._problem:
                present = not present
                begun = time.monotonic()
                ip.stdin.write(f"route {'add' if present else 'del'} {_ROUTE} via 10.9.2.2\n")
                while (view := api.router("side/net"))["ipv4_routes"] != without + present or view["pending"]:
                    if time.monotonic() > begun + 10:
                        self._problem = f"a route of side/net is not confirmed after 10 s: {view}"
                        break
                    time.sleep(_POLL_S)
                self._changes.append(time.monotonic() - begun)
                self._changing.wait(_CHANGE_EVERY_S)
            ip.stdin.close()

    def _ospf_state(self) -> str:
        """Return the state of the external neighbor's adjacency, empty without one."""
        said = json.loads(self._neighbor.vtysh("show ip ospf neighbor json") or "{}")
        found = [one["nbrState"] for neighbors in said.get("neighbors", {}).values() for one in neighbors]
        return found[0] if found else ""

    def _adjacency_changes(self) -> list[str]:
        log = Path(f"/proc/{self._neighbor.pid}/root/run/frr/ospfd.log")
        return [line for line in log.read_text(errors="replace").splitlines() if "AdjChg" in line]
