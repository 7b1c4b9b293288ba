"""Carrier of real interfaces in a namespace: cut, back, gone and there again, each told once and soon."""

import asyncio

import pytest

from controller.planes.p4runtime.links import LinkWatch
from lab.namespaces import in_namespace, namespace, sh

pytestmark = pytest.mark.root

LIMIT_S = 60.0


class Links:
    """A veth pair whose end "near" is watched."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.told: asyncio.Queue[tuple[str, bool]] = asyncio.Queue()
        self.make()
        self.watch: LinkWatch = in_namespace(name, lambda: LinkWatch(["near", "absent"]))
        self.watch.start(lambda device, up: self.told.put_nowait((device, up)))

    def make(self) -> None:
        self.ip("link", "add", "near", "type", "veth", "peer", "name", "far")
        self.ip("link", "set", "near", "up")
        self.ip("link", "set", "far", "up")

    def ip(self, *arguments: str) -> None:
        sh("ip", "-n", self.name, *arguments)

    async def next(self) -> tuple[str, bool]:
        return await asyncio.wait_for(self.told.get(), LIMIT_S)


async def test_a_link_is_followed_through_all_its_states() -> None:
    with namespace("sp-links") as name:
        links = Links(name)
        try:
            if not links.watch.up["near"]:  # the kernel may tell a veth's carrier a moment late
                assert await links.next() == ("near", True)
            for command in (("far", "down"), ("near", "down")):
                links.ip("link", "set", *command)
                assert await links.next() == ("near", False)
                links.ip("link", "set", command[0], "up")
                assert await links.next() == ("near", True)
            links.ip("link", "delete", "near")
            assert await links.next() == ("near", False)
            links.make()
            assert await links.next() == ("near", True)
            links.ip("link", "add", "absent", "up", "type", "veth", "peer", "name", "other")
            links.ip("link", "set", "other", "up")
            assert await links.next() == ("absent", True)
            assert links.told.empty()
        finally:
            links.watch.close()
