"""A link to the fallback plane is proved by frames of full size, on every kind of hardware, without a trace."""

import pytest
from paired import LINK, PEER, PairedPlane
from planes_wired import PAIRS

from controller.fallback.link.probe import PROBE_INTERFACE, PROBE_VRF, LinkProbe, ProbeTiming
from controller.planes.base import RouterInterface
from lab.private.forwarder import NATIVE_MTU

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.kinds(*PAIRS)]


async def test_the_longest_frames_are_proved_and_longer_ones_are_not(wired: PairedPlane) -> None:
    """Both ends of the link take NATIVE_MTU, and Linux a tag more."""
    pair = wired.pair
    pair.probe = probe = LinkProbe(pair.hardware, pair.software, pair.link, ProbeTiming(answer_s=15.0))
    try:
        probe.adopt([RouterInterface(1, 1, 1, 0, bytes(6), NATIVE_MTU + 100)])
        assert not await probe.prove()
        ends = f"{pair.hardware.name}:{LINK} – {pair.software.name}:{PEER}"
        octets = NATIVE_MTU + 100 + 18
        assert probe.problem == (
            f"the fallback link {ends} loses frames of {octets} octets; raise its MTU to {octets - 14}"
        )
        probe.adopt([RouterInterface(1, 1, 1, 0, bytes(6), NATIVE_MTU - 4)])
        assert await probe.prove()
        assert probe.problem == ""
        for plane in (pair.hardware, pair.software):
            read = await plane.read()
            assert PROBE_VRF not in read.policers
            assert PROBE_INTERFACE not in read.router_interfaces
    finally:
        pair.probe = None
