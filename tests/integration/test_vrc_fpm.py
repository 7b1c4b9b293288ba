"""Routes of a real zebra reach the controller by FPM, as they are and as they change."""

import pytest
from vrc_guest import Controller, guest, interface

pytestmark = pytest.mark.root

STATIC = """
ip route 10.50.0.0/24 10.1.0.2
ip route 10.51.0.0/24 10.1.0.2
ip route 10.51.0.0/24 10.2.0.3
ip route 10.52.0.0/24 blackhole
ip route 10.53.0.0/24 reject
ipv6 route 2001:db8:50::/48 2001:db8:1::2
ip route 0.0.0.0/0 10.1.0.9
"""


async def test_zebra_routes() -> None:
    controller = Controller(
        interface(1, "10.1.0.1/24", "2001:db8:1::1/64"), interface(2, "10.2.0.1/24", "2001:db8:2::1/64")
    )
    async with guest(controller) as g:
        await g.start_vrc()
        await controller.until(lambda: len(controller.interfaces) == 2)
        await g.start_zebra()
        await g.start_daemon("staticd", STATIC)
        expected = {
            "0.0.0.0/0": ("via 10.1.0.9 dev 1 weight 1",),
            "10.1.0.0/24": ("dev 1",),
            "10.2.0.0/24": ("dev 2",),
            "10.50.0.0/24": ("via 10.1.0.2 dev 1 weight 1",),
            "10.51.0.0/24": ("via 10.1.0.2 dev 1 weight 1", "via 10.2.0.3 dev 2 weight 1"),
            "10.52.0.0/24": ("blackhole",),
            "10.53.0.0/24": ("unreachable",),
            "2001:db8:1::/64": ("dev 1",),
            "2001:db8:2::/64": ("dev 2",),
            "2001:db8:50::/48": ("via 2001:db8:1::2 dev 1 weight 1",),
        }
        await controller.until(lambda: controller.routes == expected)
        assert controller.sequences == list(range(1, len(controller.sequences) + 1))
        assert controller.hellos[0].router == "red/r1"

        controller.writes.clear()
        await g.vtysh("conf t", "no ip route 10.50.0.0/24 10.1.0.2", "ip route 10.51.0.0/24 10.1.0.7")
        expected |= {
            "10.51.0.0/24": (
                "via 10.1.0.2 dev 1 weight 1", "via 10.1.0.7 dev 1 weight 1", "via 10.2.0.3 dev 2 weight 1",
            )
        }  # fmt: skip
        del expected["10.50.0.0/24"]
        await controller.until(lambda: controller.routes == expected)
        assert ("10.51.0.0/24", ()) not in controller.writes  # a change is a replacement


async def test_what_zebra_writes_before_it_connects_is_mirrored() -> None:
    controller = Controller(interface(1, "10.1.0.1/24", "2001:db8:1::1/64"))
    async with guest(controller) as g:
        await g.start_vrc()
        await controller.until(lambda: "10.1.0.0/24" in controller.routes)
        for prefix, gateway in (("10.60.0.0/24", "10.1.0.2"), ("2001:db8:60::/48", "2001:db8:1::2")):
            way = (prefix, "via", gateway, "proto", "zebra")
            await g.run("ip", "route", "add", *way)
            await controller.until(lambda prefix=prefix: prefix in controller.routes)
            await g.run("ip", "route", "delete", *way)
            await controller.until(lambda prefix=prefix: prefix not in controller.routes)


async def test_addresses_are_told_again_when_zebra_connects() -> None:
    """An address that is added while zebra starts may be lost on it, and with it the connected route."""
    first, late = interface(2, "10.2.0.1/24"), interface(1, "10.1.0.1/24", "2001:db8:1::1/64")
    controller = Controller(first)
    async with guest(controller) as g:
        await g.start_vrc()
        await controller.until(lambda: len(controller.interfaces) == 1)
        await g.make_interfaces([first, late])
        controller.declaration.interfaces.append(late)
        await controller.send(declaration=controller.declaration)
        await controller.until(lambda: 1 in controller.interfaces and controller.interfaces[1].up)
        told = g.directory / "told"
        await g.run("sh", "-c", f"timeout 300 ip -o monitor address >{told} 2>&1 &")
        # It listens once it tells of an address that changes.
        again = "ip address replace 192.0.2.1/32 dev lo; ip address delete 192.0.2.1/32 dev lo"
        await g.until("sh", "-c", f"{again}; cat {told}", has="192.0.2.1/32")
        await g.start_zebra()
        await g.until("cat", str(told), has="10.1.0.1/24")
        await g.until("cat", str(told), has="2001:db8:1::1/64")
        assert not [line for line in told.read_text().splitlines() if "Deleted" in line and "eth0" in line]
