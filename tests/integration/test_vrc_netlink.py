"""The kernel's own table as the source, for any daemon: metrics, nexthop objects, removals without a message."""

import signal

import pytest
from vrc_guest import Controller, guest, interface

pytestmark = pytest.mark.root

ONE, TWO = ("via 10.1.0.2 dev 1 weight 1",), ("via 10.2.0.2 dev 2 weight 1",)


async def test_kernel_routes() -> None:
    controller = Controller(interface(1, "10.1.0.1/24", "2001:db8:1::1/64"), interface(2, "10.2.0.1/24"))
    async with guest(controller) as g:
        await g.start_vrc("--source", "netlink")
        await controller.until(lambda: "10.2.0.0/24" in controller.routes and "2001:db8:1::/64" in controller.routes)

        await g.run("ip", "route", "add", "10.50.0.0/24", "via", "10.1.0.2", "metric", "20")
        await controller.until(lambda: controller.routes.get("10.50.0.0/24") == ONE)
        await g.run("ip", "route", "add", "10.50.0.0/24", "via", "10.2.0.2", "metric", "10")
        await controller.until(lambda: controller.routes.get("10.50.0.0/24") == TWO)
        await g.run("ip", "route", "del", "10.50.0.0/24", "metric", "10")
        await controller.until(lambda: controller.routes.get("10.50.0.0/24") == ONE)

        await g.run("ip", "route", "add", "blackhole", "10.52.0.0/24")
        await g.run("ip", "route", "add", "10.54.0.0/24", "via", "inet6", "2001:db8:1::2", "dev", "eth0")
        await g.run(
            "ip", "route", "add", "10.51.0.0/24",
            "nexthop", "via", "10.1.0.2", "weight", "3", "nexthop", "via", "10.2.0.2",
        )  # fmt: skip
        await controller.until(
            lambda: (
                controller.routes.get("10.51.0.0/24")
                == ("via 10.1.0.2 dev 1 weight 3", "via 10.2.0.2 dev 2 weight 1")
            )
        )
        assert controller.routes["10.52.0.0/24"] == ("blackhole",)
        assert controller.routes["10.54.0.0/24"] == ("via 2001:db8:1::2 dev 1 weight 1",)

        await g.run("ip", "-6", "route", "add", "2001:db8:51::/48", "via", "2001:db8:1::2")
        await g.run("ip", "-6", "route", "append", "2001:db8:51::/48", "via", "2001:db8:1::3")
        await controller.until(lambda: len(controller.routes.get("2001:db8:51::/48", ())) == 2)
        await g.run("ip", "-6", "route", "del", "2001:db8:51::/48", "via", "2001:db8:1::2")
        await controller.until(lambda: controller.routes["2001:db8:51::/48"] == ("via 2001:db8:1::3 dev 1 weight 1",))

        # The kernel removes IPv4 routes of a link that is set down without a word, and of a nexthop that goes.
        await g.run("ip", "nexthop", "add", "id", "7", "via", "10.1.0.2", "dev", "eth0")
        await g.run("ip", "route", "add", "10.55.0.0/24", "nhid", "7")
        await controller.until(lambda: controller.routes.get("10.55.0.0/24") == ONE)
        await g.run("ip", "nexthop", "del", "id", "7")
        await controller.until(lambda: "10.55.0.0/24" not in controller.routes)
        await g.run("ip", "link", "set", "eth1", "down")
        await controller.until(lambda: "10.2.0.0/24" not in controller.routes and not controller.interfaces[2].up)
        await controller.until(lambda: controller.routes["10.51.0.0/24"] == ONE)
        await g.run("ip", "link", "set", "eth1", "up")
        await controller.until(lambda: controller.interfaces[2].up and "10.2.0.0/24" in controller.routes)
        await controller.until(lambda: len(controller.routes["10.51.0.0/24"]) == 2)

        # Of such a prefix the kernel has several routes, and lists first what is not for all packets.
        await g.run("ip", "route", "add", "10.50.0.0/24", "tos", "0x10", "via", "10.2.0.2", "metric", "20")
        await g.run("ip", "-6", "route", "add", "2001:db8:51::/48", "from", "2001:db8::/32", "via", "2001:db8:1::9")
        await g.run("ip", "route", "add", "blackhole", "10.56.0.0/24")
        await controller.until(lambda: "10.56.0.0/24" in controller.routes)
        assert controller.routes["10.50.0.0/24"] == ONE

        await controller.send(snapshot_request={"id": 5})
        await controller.until(lambda: 5 in controller.snapshot_ends)
        assert controller.snapshot_ends[5] == ""
        assert controller.snapshots[5] == controller.routes


async def test_a_network_on_two_interfaces_stays_where_it_is_left() -> None:
    controller = Controller(interface(1, "10.1.0.1/24"), interface(2, "10.2.0.1/24"))
    networks = {"10.9.0.0/24": "10.9.0.1/24", "2001:db8:9::/64": "2001:db8:9::1/64"}

    async def change(verb: str, device: str, ways: tuple[str, ...] | None) -> None:
        for address in networks.values():
            options = ("nodad",) if ":" in address and verb == "add" else ()
            await g.run("ip", "address", verb, address, "dev", device, *options)
        await controller.until(lambda: all(controller.routes.get(network) == ways for network in networks))

    async with guest(controller) as g:
        await g.start_vrc("--source", "netlink")
        await controller.until(lambda: {"10.1.0.0/24", "10.2.0.0/24"} <= controller.routes.keys())
        await change("add", "eth0", ("dev 1",))
        await change("add", "eth1", ("dev 1",))
        controller.writes.clear()
        await change("del", "eth0", ("dev 2",))
        await change("del", "eth1", None)
        assert [ways for network, ways in controller.writes if network in networks] == [("dev 2",)] * 2 + [()] * 2


async def test_routes_that_the_kernel_removes_with_an_address_without_a_word_go() -> None:
    controller = Controller(interface(1, "10.1.0.1/24"), interface(2, "10.2.0.1/24"))
    async with guest(controller) as g:
        await g.start_vrc("--source", "netlink")
        for _ in range(3):  # the first may fall together with the table read as the links came up
            await g.run("ip", "route", "add", "10.51.0.0/24", "via", "10.2.0.2")
            await controller.until(lambda: "10.51.0.0/24" in controller.routes)
            await g.run("ip", "address", "del", "10.2.0.1/24", "dev", "eth1")
            await controller.until(lambda: "10.51.0.0/24" not in controller.routes, timeout_s=10)
            await g.run("ip", "address", "add", "10.2.0.1/24", "dev", "eth1")
        both = (*ONE, *TWO)
        ways = [word for gateway in ("10.1.0.2", "10.2.0.2") for word in ("nexthop", "via", gateway)]
        await g.run("ip", "route", "add", "10.51.0.0/24", *ways)
        await controller.until(lambda: controller.routes.get("10.51.0.0/24") == both)
        await g.run("ip", "address", "del", "10.2.0.1/24", "dev", "eth1")  # the kernel sets the hop aside
        await controller.until(lambda: controller.routes["10.51.0.0/24"] == ONE)
        await g.run("ip", "address", "add", "10.2.0.1/24", "dev", "eth1")
        await controller.until(lambda: controller.routes["10.51.0.0/24"] == both)


async def test_what_leads_to_a_link_that_is_no_interface_takes_no_shorter_prefix() -> None:
    controller = Controller(interface(1, "10.1.0.1/24"))
    async with guest(controller) as g:
        await g.start_vrc("--source", "netlink")
        await g.run("ip", "route", "add", "default", "via", "10.1.0.2")
        await g.run("ip", "link", "add", "br0", "type", "bridge")
        await g.run("ip", "link", "set", "br0", "up")
        await g.run("ip", "address", "add", "10.98.0.1/24", "dev", "br0")
        await g.run("ip", "route", "add", "10.59.0.0/16", "dev", "lo")
        await controller.until(lambda: controller.routes.get("10.59.0.0/16") == ("unreachable",))
        await g.run("ip", "route", "add", "10.60.0.0/16", "via", "10.98.0.2")
        await controller.until(lambda: controller.routes.get("10.60.0.0/16") == ("unreachable",))
        assert bytes((10, 98, 0, 1)) in controller.interfaces[1].addresses
        assert (controller.routes["10.98.0.0/24"], controller.routes["0.0.0.0/0"]) == (("unreachable",), ONE)
        await g.run("ip", "link", "set", "br0", "down")
        await controller.until(lambda: "10.60.0.0/16" not in controller.routes)


async def test_rules_of_policy_routing_are_told_of() -> None:
    controller = Controller(interface(1, "10.1.0.1/24"))
    async with guest(controller) as g:
        await g.run("ip", "-6", "rule", "add", "from", "2001:db8::/32", "table", "100")
        await g.start_vrc("--source", "netlink")
        await controller.until(lambda: controller.notices == ["policy-routing"])
        await g.run("ip", "rule", "add", "from", "10.1.0.0/24", "table", "100")  # nothing new
        await g.run("ip", "-6", "rule", "del", "from", "2001:db8::/32", "table", "100")
        await g.run("ip", "rule", "del", "from", "10.1.0.0/24", "table", "100")
        await g.run("ip", "rule", "add", "from", "10.1.0.0/24", "table", "100")
        await controller.until(lambda: controller.notices == ["policy-routing"] * 2)


async def test_an_overrun_is_repaired_by_a_dump() -> None:
    controller = Controller(interface(1, "10.1.0.1/24"))
    async with guest(controller) as g:
        await g.start_vrc("--source", "netlink")
        await controller.until(lambda: "10.1.0.0/24" in controller.routes)
        assert g.vrc is not None
        g.vrc.send_signal(signal.SIGSTOP)
        batch = g.directory / "routes"
        prefixes = [f"{11 + (i >> 16)}.{i >> 8 & 255}.{i & 255}.0/24" for i in range(100_000)]
        batch.write_text("".join(f"route add {prefix} via 10.1.0.2\n" for prefix in prefixes))
        # While a listener's buffer is more than half full the kernel yields after each message that it gets: at usual
        # priority, beside busy programs, that is milliseconds for each of some ten thousand routes.
        await g.run("chrt", "--fifo", "1", "ip", "-batch", str(batch))
        await g.run("ip", "route", "del", prefixes[-1])
        g.vrc.send_signal(signal.SIGCONT)
        await controller.until(lambda: "overrun" in controller.notices)
        await controller.until(lambda: len(controller.routes) == 100_000)
        assert set(controller.routes) == {"10.1.0.0/24", *prefixes[:-1]}


async def test_many_routes_at_once() -> None:
    controller = Controller(interface(1, "10.1.0.1/24"))
    async with guest(controller) as g:
        await g.start_vrc("--source", "netlink")
        await controller.until(lambda: "10.1.0.0/24" in controller.routes)
        batch = g.directory / "routes"
        prefixes = [f"11.{i >> 8}.{i & 255}.0/24" for i in range(20000)]
        batch.write_text("".join(f"route add {prefix} via 10.1.0.2\n" for prefix in prefixes))
        await g.run("ip", "-batch", str(batch))
        await controller.until(lambda: len(controller.routes) == 20001)
        batch.write_text("".join(f"route del {prefix}\n" for prefix in prefixes[:15000]))
        await g.run("ip", "-batch", str(batch))
        await controller.until(lambda: len(controller.routes) == 5001)
        assert set(prefixes[15000:]) < set(controller.routes)
