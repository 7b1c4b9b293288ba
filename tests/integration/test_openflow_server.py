"""Who may connect as a plane, and what happens when a switch stops answering."""

import os
import signal

import pytest
from openflow_net import BRIDGE, openflow_net

pytestmark = pytest.mark.root


async def test_an_unknown_datapath_is_refused_by_name(caplog: pytest.LogCaptureFixture) -> None:
    async with openflow_net() as net:
        net.ovs.add_bridge("stranger", 0xBAD)
        net.ovs.set_controller("stranger", f"tcp:127.0.0.1:{net.server.port}")
        await net.eventually(lambda: net.server.refused.get("unknown_datapath"))
        assert "datapath id 0000000000000bad is no plane's" in caplog.text
        assert net.plane.connected


async def test_a_second_switch_of_the_same_datapath_id_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    async with openflow_net() as net:
        first = net.plane.channel
        net.ovs.vsctl("add-br", "twin", "--", "set", "bridge", "twin", "datapath_type=netdev")
        net.ovs.vsctl("set", "bridge", "twin", "other_config:datapath-id=0000000053500001", "protocols=OpenFlow13")
        net.ovs.set_controller("twin", f"tcp:127.0.0.1:{net.server.port}")
        await net.eventually(lambda: net.server.refused.get("already_connected"))
        assert "plane edge is connected from" in caplog.text
        assert net.plane.channel is first
        assert (await net.plane.read()).foreign == 0


async def test_a_switch_without_openflow_1_3_is_refused_by_name(caplog: pytest.LogCaptureFixture) -> None:
    async with openflow_net(connect=False) as net:
        net.ovs.vsctl("set", "bridge", BRIDGE, "protocols=OpenFlow10")
        net.ovs.set_controller(BRIDGE, f"tcp:127.0.0.1:{net.server.port}")
        await net.eventually(lambda: "does not speak OpenFlow 1.3" in caplog.text)
        assert not net.plane.connected


async def test_a_switch_that_stops_answering_is_given_up_and_comes_back() -> None:
    async with openflow_net() as net:
        pid = int((net.ovs.directory / "ovs-vswitchd.pid").read_text())
        os.kill(pid, signal.SIGSTOP)
        try:
            await net.heard.until(lambda: net.heard.disconnects)
        finally:
            os.kill(pid, signal.SIGCONT)
        assert net.heard.disconnects[0].startswith("no answer for")
        assert net.plane.ports == {}
        await net.heard.until(lambda: net.heard.connects == 2)
