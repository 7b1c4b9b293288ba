"""Routers that do nobody harm, each of a tenant of its own with the same addresses, and their external neighbors.

host: eth0 ── near [ m1/r FRR: OSPF, BGP ] far ── eth1      one BIRD in the host is the OSPF neighbor on eth0 and
                                                            the BGP neighbor on eth1, each with BFD (300 ms × 3)

A host stands for another machine. So its BIRD runs at real-time priority, and is never itself what is late; and what
the kernel has to know of links is entered for good, because its tables of neighbors are one for all namespaces.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from bench.modest_probes import CHANGING, FAR_HOST, FAR_ROUTER, FEED, NEAR_HOST, NEAR_ROUTER, STAYING
from bench.rig import AS_NUMBER, PLANE, WORK, Rig, bgp_config, interface, tenant
from lab import bird
from lab.bird import BirdDaemon
from lab.network import Node, checked, inside, wait_for

HOSTS = WORK / "hosts"
"""The hosts, as modest_probes.py reads them."""

_RUN = Path("/run")
_OSPF_GROUPS = {"224.0.0.5": "01:00:5e:00:00:05", "224.0.0.6": "01:00:5e:00:00:06"}
_ON_TIME = ("chrt", "--fifo", "1")
_UP_S = 120.0
_BFD = "bfd\n profile quick\n  detect-multiplier 3\n  transmit-interval 300\n  receive-interval 300\n exit\nexit\n"
_BGP_MORE = (" timers bgp 3 9", f" neighbor {FAR_HOST} bfd", f" neighbor {FAR_HOST} bfd profile quick")
_TIMERS = " ip ospf hello-interval 1\n ip ospf dead-interval 4\n"
_OSPF = f"interface near\n{_TIMERS} ip ospf bfd\n ip ospf bfd profile quick\nexit\n"
_AREA = "router ospf\n ospf router-id 10.255.0.1\n network 10.1.0.0/24 area 0\nexit\n"
_REST = f"ip route {CHANGING.rpartition('/')[0]}/15 blackhole\n"  # what is withdrawn is dropped, and not punted

_NEIGHBOR = f"""router id {FAR_HOST};
log "{{log}}" all;
protocol device {{{{ }}}}
protocol static feed {{{{ ipv4; route {STAYING} blackhole; }}}}
protocol static {FEED} {{{{ disabled; ipv4; route {CHANGING} blackhole; }}}}
protocol bfd {{{{
    debug {{{{ states, events }}}};
    interface "eth*" {{{{ interval 300 ms; multiplier 3; }}}};
}}}}
protocol bgp far {{{{
    debug {{{{ states, events }}}};
    bfd on;
    local {FAR_HOST} as {bird.AS_NUMBER};
    neighbor {FAR_ROUTER} as {AS_NUMBER};
    hold time 9;
    connect retry time 1; connect delay time 1; error wait time 1, 2;
    ipv4 {{{{ import none; export where source = RTS_STATIC; next hop self; }}}};
}}}}
protocol ospf v2 near {{{{
    debug {{{{ states, events }}}};
    ipv4 {{{{ import none; export none; }}}};
    area 0 {{{{ interface "eth0" {{{{ hello 1; dead 4; bfd yes; }}}}; }}}};
}}}}
"""
_CAME_UP = {"bgp": "far: BGP session established\n", "ospf": " to Full\n", "bfd": " to Up\n"}
"""What BIRD logs of a session that comes up, by kind."""
_ALL = {"bgp": 1, "ospf": 1, "bfd": 2}


class ModestRouters:
    """So many routers on the rig's plane; made before the network starts."""

    def __init__(self, rig: Rig, count: int) -> None:
        self._rig = rig
        self._hosts: dict[str, Node] = {}
        self._birds: dict[str, BirdDaemon] = {}
        network = rig.network
        for name in (f"m{number}" for number in range(1, count + 1)):
            host = self._hosts[name] = network.host(f"h-{name}", f"{NEAR_HOST}/24")
            network.wire(host, "eth0", network[PLANE], f"{name}-n")
            network.wire(host, "eth1", network[PLANE], f"{name}-f")

    def tenants(self) -> list[dict[str, Any]]:
        """Return a tenant for each, for `Rig.apply`."""
        frr = _BFD + bgp_config([FAR_HOST], bird.AS_NUMBER, *_BGP_MORE) + _OSPF + _AREA + _REST
        return [tenant(name, [f"{name}-n", f"{name}-f"], self._router(name, frr)) for name in self._hosts]

    @staticmethod
    def _router(name: str, frr: str) -> dict[str, Any]:
        near = interface("near", f"{name}-n", f"{NEAR_ROUTER}/24")
        far = interface("far", f"{name}-f", f"{FAR_ROUTER}/24")
        return {"name": "r", "interfaces": [near, far], "frr": frr}

    def start_neighbors(self) -> None:
        """Start the neighbors once the network runs and the routers are up; returns when all sessions are up."""
        macs = {(one["router"], one["name"]): one["mac"] for one in self._rig.api.get("interfaces")}
        for name, host in self._hosts.items():
            checked(inside(host, ["ip", "address", "add", f"{FAR_HOST}/24", "dev", "eth1"]))
            known = {NEAR_ROUTER: macs[f"{name}/r", "near"], **_OSPF_GROUPS}
            for device, entries in (("eth0", known), ("eth1", {FAR_ROUTER: macs[f"{name}/r", "far"]})):
                for address, mac in entries.items():
                    entry = (address, "lladdr", mac, "dev", device, "nud", "permanent")
                    checked(inside(host, ["ip", "neighbor", "replace", *entry]))
            daemon = self._birds[name] = BirdDaemon(_RUN / f"bird-{name}", host.name, inside(host, _ON_TIME))
            daemon.launch([_NEIGHBOR.format(log=daemon.log)])
        logs = [daemon.log for daemon in self._birds.values()]
        wait_for("every BGP, OSPF and BFD session of the modest routers", self._sessions_up, _UP_S, 0.5, logs)
        hosts = [
            {"pid": host.pid, "router_mac": macs[f"{name}/r", "near"], "bird": str(_RUN / f"bird-{name}/bird.ctl")}
            for name, host in self._hosts.items()
        ]
        HOSTS.write_text(json.dumps(hosts))

    def _sessions_up(self) -> bool:
        return all(_up(daemon) == _ALL for daemon in self._birds.values())

    def wait_restored(self, timeout_s: float) -> None:
        """Wait until every session is up and every router at rest. NetworkError where it is not to be."""
        wait_for("the modest routers' sessions", self._sessions_up, timeout_s, 0.5)
        wait_for("the modest routers at rest", self._at_rest, timeout_s, 0.5)

    def _at_rest(self) -> bool:
        names = {f"{name}/r" for name in self._hosts}
        views = [view for view in self._rig.api.get("routers") if view["router"] in names]
        return len(views) == len(names) and all(view["state"] == "up" and not view["pending"] for view in views)

    def sessions_lost(self) -> Counter[str]:
        """Return how many sessions were lost so far, by kind: those that came up and are not there any more."""
        lost: Counter[str] = Counter()
        for daemon in self._birds.values():
            up, text = _up(daemon), daemon.log.read_text()
            lost.update({kind: text.count(words) - up[kind] for kind, words in _CAME_UP.items()})
        return lost


def _up(daemon: BirdDaemon) -> dict[str, int]:
    """Return how many sessions of a neighbor are up now, by kind."""
    return {
        "bgp": daemon.established(),
        "ospf": daemon.ask("show", "ospf", "neighbors", "near").count("Full/"),
        "bfd": daemon.ask("show", "bfd", "sessions").count(" Up "),
    }
