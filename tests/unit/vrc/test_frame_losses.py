"""What is told of frames that were lost in the guest: the VRC's own and the kernel's, none twice, none again."""

from pathlib import Path

import pytest

from vrc.losses import OF_THE_GUEST, FrameLosses, kernel_drops, read_kernel_drops
from wire import splitplane_pb2 as pb

IDS = {"eth0": 101, "eth1": 102}
HEAD = "Inter-|   Receive  |  Transmit\n face |bytes packets errs drop fifo frame compressed multicast|bytes …\n"


def counted(**drops: tuple[int, int]) -> str:
    """/proc/net/dev of a kernel that has dropped so many of each device: received, to be sent."""
    lines = [f"{name:>6}: 90 1 0 {rx} 0 0 0 0 80 1 0 {tx} 0 0 0 0\n" for name, (rx, tx) in drops.items()]
    return HEAD + "".join(lines)


def test_this_kernel_s_counters_are_understood() -> None:
    devices = {name: drops for name, *drops in kernel_drops(read_kernel_drops())}
    for name in devices:
        statistics = Path(f"/sys/class/net/{name}/statistics")
        assert (statistics / "rx_dropped").exists(), "the names are those of devices"
    assert "lo" in devices


def test_without_proc_what_the_vrc_counts_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("vrc.losses.DEVICES", str(tmp_path / "none"))
    losses = FrameLosses()
    losses.add(101, "refused")
    assert losses.look(IDS, read_kernel_drops())
    assert dict(losses.due) == {(101, "refused"): 1}


def test_the_kernel_s_are_those_since_the_first_look() -> None:
    losses = FrameLosses()
    assert not losses.look(IDS, counted(lo=(9, 9), eth0=(5, 50)))
    assert not losses.look(IDS, counted(lo=(19, 19), eth0=(5, 50), eth1=(7, 7)))
    assert losses.look(IDS, counted(lo=(29, 29), eth0=(8, 50), eth1=(7, 9)))
    assert dict(losses.due) == {(101, "kernel"): 3, (OF_THE_GUEST, "not_read"): 2}
    losses.due.clear()
    assert losses.look(IDS, counted(eth0=(2, 50))), "another interface of that name, which has dropped two"
    assert losses.due.pop((101, "kernel")) == 2


def test_what_a_tap_refuses_is_not_told_twice() -> None:
    """The kernel counts it as well."""
    losses = FrameLosses()
    losses.look(IDS, counted(eth0=(0, 0)))
    losses.add(101, "interface_down", 4)
    losses.add(101, "tap_full", 1)  # of which the kernel counts nothing
    assert losses.look(IDS, counted(eth0=(6, 0)))
    assert dict(losses.due) == {(101, "interface_down"): 4, (101, "tap_full"): 1, (101, "kernel"): 2}


def test_what_is_not_told_yet_waits() -> None:
    losses = FrameLosses()
    for _ in range(2):
        losses.add(101, "refused")
        assert losses.look(IDS, counted())
    assert dict(losses.due) == {(101, "refused"): 2}


def test_each_reason_has_a_number() -> None:
    names = {name.lower() for name in pb.FrameLoss.DESCRIPTOR.enum_types_by_name["Reason"].values_by_name}
    own = ("interface_down", "interface_gone", "tap_full", "refused", "unknown_interface", "frame_size")
    assert {*own, "no_session", "queue_full", "kernel", "not_read"} == names - {"other"}
