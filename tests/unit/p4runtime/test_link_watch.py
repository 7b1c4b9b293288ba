"""The watch of links tells every change once, whatever the kernel's messages say; without root and real links."""

import asyncio
import errno
import socket
from collections.abc import Iterator

import pytest

from controller.errors import PlaneError
from controller.planes.p4runtime import links
from controller.planes.p4runtime.links import LinkWatch


class Kernel:
    """Interfaces that are up, and the other end of the socket that tells of changes."""

    def __init__(self) -> None:
        self.far, self.near = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.near.setblocking(False)
        self.up: set[str] = set()
        self.asked = 0
        self.looked = asyncio.Event()

    def has_carrier(self, _probe: socket.socket, device: str) -> bool:
        self.asked += 1
        self.looked.set()
        return device in self.up

    def tell(self, count: int = 1) -> None:
        for _ in range(count):
            self.far.send(b"some message about some link")


class Told(list[tuple[str, bool]]):
    """What was told, and a way to wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self.came = asyncio.Event()

    def __call__(self, device: str, up: bool) -> None:
        self.append((device, up))
        self.came.set()

    async def next(self) -> list[tuple[str, bool]]:
        await asyncio.wait_for(self.came.wait(), 30)
        self.came.clear()
        found = list(self)
        self.clear()
        return found


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    found = Kernel()
    monkeypatch.setattr(links, "link_news", lambda: found.near)
    monkeypatch.setattr(links, "has_carrier", found.has_carrier)
    yield found
    found.far.close()
    found.near.close()


async def test_changes_are_told_and_the_first_look_is_not(kernel: Kernel) -> None:
    kernel.up = {"a"}
    told, watch = Told(), LinkWatch(["a", "b"])
    watch.start(told)
    assert watch.up == {"a": True, "b": False}
    kernel.up = {"b"}
    kernel.tell()
    assert await told.next() == [("a", False), ("b", True)]
    assert watch.up == {"a": False, "b": True}
    watch.close()


async def test_news_of_other_links_tell_nothing(kernel: Kernel) -> None:
    told, watch = Told(), LinkWatch(["a"])
    watch.start(told)
    kernel.looked.clear()
    kernel.tell()
    await asyncio.wait_for(kernel.looked.wait(), 30)
    kernel.up = {"a"}
    kernel.tell()
    assert await told.next() == [("a", True)]
    watch.close()


async def test_many_messages_are_one_look(kernel: Kernel) -> None:
    told, watch = Told(), LinkWatch(["a"])
    watch.start(told)
    kernel.up = {"a"}
    kernel.tell(5)
    assert await told.next() == [("a", True)]
    assert kernel.asked == 2
    watch.close()


async def test_an_overrun_is_a_look_at_all(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    class Overrun:
        """A socket that has lost messages."""

        fileno = kernel.near.fileno
        close = kernel.near.close
        lost = True

        def recv(self, size: int) -> bytes:
            if self.lost:
                self.lost = False
                raise OSError(errno.ENOBUFS, "No buffer space available")
            return kernel.near.recv(size)

    monkeypatch.setattr(links, "link_news", Overrun)
    told, watch = Told(), LinkWatch(["a", "b"])
    watch.start(told)
    kernel.up = {"a", "b"}
    kernel.tell()
    assert await told.next() == [("a", True), ("b", True)]
    watch.close()


async def test_a_closed_watch_has_given_its_sockets_up_and_may_be_closed_again(kernel: Kernel) -> None:
    told, watch = Told(), LinkWatch(["a"])
    watch.start(told)
    watch.close()
    watch.close()
    assert kernel.near.fileno() < 0


def test_no_netlink_is_an_error_of_the_plane(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> socket.socket:
        raise OSError(errno.EPROTONOSUPPORT, "Protocol not supported")

    monkeypatch.setattr(links, "link_news", refused)
    with pytest.raises(PlaneError, match="cannot watch links: Protocol not supported"):
        LinkWatch(["a"])


def test_the_kernel_knows_loopback_and_not_what_does_not_exist() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        assert links.has_carrier(probe, "lo")
        assert not links.has_carrier(probe, "no-such-device")


async def test_a_watch_on_real_sockets_starts_and_ends() -> None:
    watch = LinkWatch(["lo", "no-such-device"])
    watch.start(lambda _device, _up: None)
    assert watch.up == {"lo": True, "no-such-device": False}
    watch.close()
