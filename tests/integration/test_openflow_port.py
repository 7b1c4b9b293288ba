"""Ports and their state are told: at the connect, at a change, and when they come and go."""

import pytest
from openflow_net import openflow_net

from lab.namespaces import sh

pytestmark = pytest.mark.root


async def test_ports_are_told() -> None:
    async with openflow_net() as net:
        host = net.ovs.add_host("br", "02:00:00:00:00:01")
        await net.heard.until(lambda: host.port in net.heard.ports and net.heard.ports[host.port].up)
        assert net.heard.ports[host.port].name == host.link
        assert net.plane.ports[host.port].up
        assert net.plane.table_sizes == {"ipv4_route": 1_000_000, "ipv6_route": 1_000_000}

        sh("ip", "-n", host.namespace, "link", "set", "eth0", "down")
        await net.heard.until(lambda: not net.heard.ports[host.port].up)
        assert not net.plane.ports[host.port].up

        net.ovs.vsctl("del-port", "br", host.link)
        await net.heard.until(lambda: not net.heard.ports[host.port].present)
        assert host.port not in net.plane.ports


async def test_ports_are_told_again_after_a_new_connection() -> None:
    async with openflow_net() as net:
        host = net.ovs.add_host("br", "02:00:00:00:00:01")
        await net.heard.until(lambda: host.port in net.heard.ports)
        net.heard.ports.clear()
        assert net.plane.channel is not None
        net.plane.channel.close("cut by the test")
        await net.heard.until(lambda: host.port in net.heard.ports)
