"""A guest with static routes alone: they are there whenever their links are, and go with their lines."""

import dataclasses

import pytest
from guest_net import GuestBed, guest_bed

from controller.errors import GuestError
from controller.guests.base import GuestSpec, GuestStatus
from controller.model import Routing, Suite

pytestmark = pytest.mark.root

TEXT = """# the way out
route add default via 10.2.0.2
-6 route add 2001:db8:9::/48 via 2001:db8:2::2   # of the other
route replace 10.9.0.0/24 metric 7 nexthop via 10.2.0.2 weight 2 nexthop via 10.2.0.3
route add blackhole 10.66.0.0/16
"""
ALL = {"default", "2001:db8:9::/48", "10.9.0.0/24", "10.66.0.0/16"}


def static(text: str) -> Routing:
    return Routing(Suite.IP, text)


def routes(bed: GuestBed, status: GuestStatus) -> set[str]:
    """The prefixes of the guest's static routes."""
    found = set()
    for family in ("-4", "-6"):
        for line in bed.run(status, "ip", family, "route", "show", "proto", "static").stdout.splitlines():
            if not line.startswith("\t"):
                found.add(line.split()[1] if line.startswith("blackhole") else line.split()[0])
    return found


async def arrive(bed: GuestBed, spec: GuestSpec, wanted: set[str]) -> GuestStatus:
    return await bed.settled(spec, lambda status: routes(bed, status) == wanted)


def link(bed: GuestBed, status: GuestStatus, *command: str) -> None:
    done = bed.run(status, "ip", *command)
    assert done.returncode == 0, done.stderr


def make_link(bed: GuestBed, status: GuestStatus) -> None:
    """What the VRC does for an interface."""
    link(bed, status, "link", "add", "right", "type", "veth", "peer", "name", "end")
    link(bed, status, "link", "set", "end", "up")
    link(bed, status, "address", "add", "10.2.0.1/24", "dev", "right")
    link(bed, status, "address", "add", "2001:db8:2::1/64", "dev", "right", "nodad")
    link(bed, status, "link", "set", "right", "up")


async def test_routes_come_with_their_link_and_again_when_it_was_down() -> None:
    async with guest_bed() as bed:
        spec = bed.spec(routing=static(TEXT))
        await bed.driver.start(spec)
        status = await arrive(bed, spec, {"10.66.0.0/16"})
        assert status.daemons["ip"] == "starting"
        make_link(bed, status)
        await arrive(bed, spec, ALL)
        await bed.settled(spec)
        link(bed, status, "link", "set", "right", "down")
        await arrive(bed, spec, {"10.66.0.0/16"})
        link(bed, status, "link", "set", "right", "up")
        status = await arrive(bed, spec, ALL)
        assert "weight 2" in bed.run(status, "ip", "route", "show", "10.9.0.0/24").stdout


async def test_a_change_of_text_is_the_difference() -> None:
    async with guest_bed() as bed:
        spec = bed.spec(routing=static(TEXT))
        await bed.driver.start(spec)
        status = await arrive(bed, spec, {"10.66.0.0/16"})
        make_link(bed, status)
        await arrive(bed, spec, ALL)
        text = TEXT.replace("10.9.0.0/24", "10.8.0.0/24").replace("default via 10.2.0.2", "default via 10.2.0.9")
        text = text.replace("route add blackhole 10.66.0.0/16\n", "")
        spec = dataclasses.replace(spec, routing=static(text))
        await bed.driver.start(spec)
        assert routes(bed, status) == {"default", "2001:db8:9::/48", "10.8.0.0/24"}
        assert "via 10.2.0.9" in bed.run(status, "ip", "route", "show", "default").stdout
        assert (await bed.driver.status(spec)).restarts == 0


async def test_an_ipv6_route_that_is_given_a_metric_is_there_with_it_alone() -> None:
    """To `ip -6 route del` without a metric any route fits, and the kernel lists that of the lowest metric first."""
    async with guest_bed() as bed:
        line = "route add blackhole 2001:db8:66::/48"
        spec = bed.spec(routing=static(f"{line}\n"))
        await bed.driver.start(spec)
        for metric in ("1024", "7", "1024"):
            spec = dataclasses.replace(spec, routing=static(f"{line} metric {metric}\n".replace(" metric 1024", "")))
            await bed.driver.start(spec)
            status = await arrive(bed, spec, {"2001:db8:66::/48"})
            shown = bed.run(status, "ip", "-6", "route", "show", "proto", "static").stdout.splitlines()
            assert [row.partition("metric ")[2].split()[0] for row in shown] == [metric]


async def test_a_route_goes_with_its_line_also_where_what_the_line_said_last_was_refused() -> None:
    async with guest_bed() as bed:
        spec = bed.spec(routing=static(TEXT))
        await bed.driver.start(spec)
        make_link(bed, await arrive(bed, spec, {"10.66.0.0/16"}))
        await arrive(bed, spec, ALL)
        refused = TEXT.replace("10.2.0.2", "10.3.0.2").replace("db8:2::2", "db8:3::2")
        for text in (refused, "route add default dev right metric 9\n"):
            spec = dataclasses.replace(spec, routing=static(text))
            await bed.driver.start(spec)
        status = await arrive(bed, spec, {"default"})
        assert "metric 9" in bed.run(status, "ip", "route", "show", "default").stdout


async def test_what_is_no_route_is_refused_with_its_line_and_changes_nothing() -> None:
    async with guest_bed() as bed:
        spec = bed.spec(routing=static("route add blackhole 10.66.0.0/16\n"))
        await bed.driver.start(spec)
        status = await arrive(bed, spec, {"10.66.0.0/16"})
        bad = dataclasses.replace(spec, routing=static("#\naddress add 10.0.0.1/24 dev right\n"))
        with pytest.raises(GuestError, match=r"^red/r1: ip line 2: a line is `route add "):
            await bed.driver.start(bad)
        assert routes(bed, status) == {"10.66.0.0/16"}
