"""One router with three hosts, for tests of what happens to packets.

    left    10.1.0.2, 2001:db8:1::2 ── untagged ── 10.1.0.1, 2001:db8:1::1
    right   10.2.0.2, 2001:db8:2::2 ── VLAN 100 ── 10.2.0.1, 2001:db8:2::1
    narrow  10.3.0.2, 2001:db8:3::2 ── untagged ── 10.3.0.1, 2001:db8:3::1, MTU 1400

`right` also has FAR and FAR6.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rig import Rig, tenant, until

from lab.namespaces import Host

ROUTER = "red/r1"
FAR, FAR6 = "192.0.2.1", "2001:db8:ff::1"
VLAN = 100
NARROW_MTU = 1400


@dataclass
class Single:
    """The router's rig and its hosts."""

    rig: Rig
    left: Host
    right: Host
    narrow: Host
    declared: dict[str, Any]  # the tenant as it was applied

    def guest(self, *command: str) -> str:
        """Run a command in the router's guest."""
        return self.rig.ok("exec", ROUTER, "--", *command)

    def interface(self, name: str) -> dict[str, object]:
        """Return the state of one of the router's interfaces."""
        return next(view for view in self.rig.api.get("interfaces") if view["name"] == name)


def _host(rig: Rig, number: int, vlan: int = 0) -> Host:
    host = rig.host(number, f"10.{number}.0.2/24", f"10.{number}.0.1", vlan=vlan)
    host.ip("address", "add", f"2001:db8:{number}::2/64", "dev", "eth0", "nodad")
    host.ip("route", "add", "default", "via", f"2001:db8:{number}::1")
    return host


@contextlib.contextmanager
def single(
    frr: str = "", source: str = "fpm", text: dict[str, str] | None = None, **left: object
) -> Iterator[Single]:
    """Bring it up; ``left`` goes into the declaration of the left interface, ``text`` is for another suite."""
    with Rig() as rig:
        hosts = _host(rig, 1), _host(rig, 2, VLAN), _host(rig, 3)
        for address in (f"{FAR}/32", f"{FAR6}/128"):
            hosts[1].ip("address", "add", address, "dev", "lo")
        interfaces = [
            {"name": name, "port": port, "addresses": [f"10.{number}.0.1/24", f"2001:db8:{number}::1/64"], **more}
            for number, (name, port, more) in enumerate(
                (
                    ("left", hosts[0].link, left),
                    ("right", f"trunk{hosts[1].port}", {"vlan": VLAN}),
                    ("narrow", hosts[2].link, {"mtu": NARROW_MTU}),
                ),
                1,
            )
        ]
        ports = {one["port"]: [one.get("vlan", "untagged")] for one in interfaces}
        red = tenant(
            "red", ports, {"name": "r1", "interfaces": interfaces} | (text or {"source": source, "frr": frr})
        )
        rig.apply(red)
        rig.up(ROUTER)
        found = Single(rig, *hosts, red)
        until("the IPv6 addresses are its own", lambda: not found.guest("ip", "addr", "show", "tentative"))
        yield found
