"""Shares from a document to vr-forwarder's program, and what routers have had of its cores back to the operator."""

from collections.abc import Iterator
from typing import Any

import pytest
from rig import Rig, document, interface, tenant, unbroken, until
from rig_switches import ForwarderSwitch

pytestmark = pytest.mark.root

ROUTER = "red/r1"


class Net:
    """A router with two hosts on vr-forwarder."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.left, self.right = (rig.host(n, f"10.{n}.0.2/24", f"10.{n}.0.1") for n in (1, 2))
        rig.apply(self.declared({}, {}))
        rig.up(ROUTER)
        (plane,) = rig.show("get", "planes")
        assert "shares" in plane["capabilities"]

    def declared(self, of_slice: dict[str, Any], of_router: dict[str, Any]) -> dict[str, Any]:
        """Return the tenant, with these shares."""
        hosts = enumerate((self.left, self.right), 1)
        interfaces = [interface(host.link, host, f"10.{n}.0.1/24") for n, host in hosts]
        ports = {host.link: ["untagged"] for host in (self.left, self.right)}
        found = tenant("red", ports, {"name": "r1", "interfaces": interfaces, "ip": "", "share": of_router})
        found["slices"][0]["share"] = of_slice
        return found

    def apply(self, of_slice: dict[str, Any], of_router: dict[str, Any]) -> str:
        """Declare these shares; returns what has changed."""
        return self.rig.apply(self.declared(of_slice, of_router))

    def shown(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the share of the slice and that of the router, as they are shown to programs."""
        (part,), (router,) = self.rig.show("get", "slices"), self.rig.show("get", "routers")
        return part["share"], router["share"]


def share(weight: int, guarantee: float | None = None, ceiling: float | None = None) -> dict[str, Any]:
    return {"weight": weight, "guarantee_percent": guarantee, "ceiling_percent": ceiling}


@pytest.fixture(scope="module")
def net() -> Iterator[Net]:
    with Rig(switch=ForwarderSwitch) as rig:
        yield Net(rig)


async def test_a_share_is_changed_without_a_loss_and_shown(net: Net) -> None:
    with unbroken(net.rig, (net.left, "10.2.0.2")):
        of_slice = {"weight": 3, "guarantee": "20 %"}
        said = net.apply(of_slice, {"weight": 2})
        assert "change slice red@s1\n    share weight 1 → weight 3, guarantee 20 %\n" in said
        assert net.shown() == (share(3, guarantee=20.0), share(2))
        said = net.apply(of_slice, {"ceiling": "90 %"})
        assert said == "change router red/r1\n    share weight 2 → weight 1, ceiling 90 %\n"
        assert net.shown() == (share(3, guarantee=20.0), share(1, ceiling=90.0))
    net.rig.up(ROUTER)


async def test_what_a_router_has_of_the_cores_is_in_top(net: Net) -> None:
    def core_ms() -> float:
        rows = net.rig.show("top", "--once", "--interval", "0.5")["shares"]
        return sum(row["core_ms_per_s"] or 0.0 for row in rows if row["router"] == ROUTER)

    with unbroken(net.rig, (net.left, "10.2.0.2")):
        until("its packets cost something", lambda: core_ms() > 0)


async def test_what_cannot_be_kept_is_refused_and_nothing_is_changed(net: Net) -> None:
    before = net.shown()
    text = document(net.declared({"ceiling": "30 %"}, {"guarantee": "40 %"}), plane=net.rig.switch.declared)
    said = net.rig.complaint("apply", "-f", "-", text=text)
    assert "slice red@s1 has a ceiling of 30 %, and guarantees come to 40 % (red/r1 40 %); lower one" in said
    assert net.shown() == before
