"""Switches with certificates that the controller issued: they follow a rotation, and are refused once revoked."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from openflow_net import BRIDGE, Net, openflow_net
from test_forwarder_tls import cabled, news, serving

from controller.model import Quota, RouterConfig
from controller.pki.authority import PKI, system_clock
from controller.pki.planes import IssuedFiles, PlaneCertificates
from controller.pki.switches import SwitchContext
from controller.planes.p4runtime.channel import TlsFiles
from controller.store.sqlite import SqliteStore

pytestmark = pytest.mark.root


class World:
    """The certificates of one controller."""

    def __init__(self, state: Path) -> None:
        self.store = SqliteStore(state)
        self.pki = PKI(state, self.store)
        self.planes = PlaneCertificates(self.pki, self.store, system_clock)

    def folder(self, directory: Path, plane: str) -> Path:
        """Issue a certificate and write it as vrctl does."""
        directory.mkdir()
        write(directory, self.planes.issue(plane, (), str(directory)))
        return directory


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    found = World(tmp_path / "state-of-controller")
    yield found
    found.store.close()


def write(folder: Path, files: IssuedFiles) -> None:
    for name, content in (("key", files.key), ("cert", files.certificate), ("ca", files.ca)):
        (folder / f"{name}.pem").write_bytes(content)


def equip(net: Net, folder: Path) -> None:
    net.ovs.vsctl("set-ssl", *(str(folder / f"{name}.pem") for name in ("key", "cert", "ca")))
    net.ovs.set_controller(BRIDGE, f"ssl:127.0.0.1:{net.server.port}")


async def again(net: Net) -> None:
    """Have the switch connect anew."""
    channel = net.plane.channel
    assert channel is not None
    channel.close("the test wants another handshake")
    await net.heard.until(lambda: not net.plane.connected)


async def test_open_vswitch_follows_a_rotation_and_is_refused_once_revoked(world: World, tmp_path: Path) -> None:
    folder = world.folder(tmp_path / "etc", "switch-1")
    context = SwitchContext(world.pki, world.planes, system_clock).context
    async with openflow_net(tls=context, certificate_name="switch-1", connect=False) as net:
        equip(net, folder)
        await net.heard.until(lambda: net.plane.connected)
        world.pki.rotate()
        await again(net)
        await net.heard.until(lambda: net.plane.connected)  # with the old files
        assert len(world.planes.renew()) == 1
        world.pki.retire()
        world.planes.renew()
        await again(net)
        await net.heard.until(lambda: net.plane.connected)  # with those that the controller wrote
        world.planes.revoke("switch-1")
        await again(net)
        await net.eventually(lambda: net.server.refused.get("tls"))
        assert not net.plane.connected


async def test_vr_forwarder_is_a_server_with_it_and_no_tenants_key_opens_it(world: World, tmp_path: Path) -> None:
    folder = world.folder(tmp_path / "etc", "edge")
    router = RouterConfig(7, "red", "r1", "edge", Quota(), ())
    assert (await world.pki.issue([router])).trouble == ""
    stolen = world.pki.identity(7)
    trusted = world.planes.trusted("edge")
    files = TlsFiles(*(folder / f"{name}.pem" for name in ("ca", "cert", "key")))
    with cabled() as (here, there), serving(here, tmp_path, files) as address:
        assert news(there, address, TlsFiles(trusted, *world.pki.own_files())) == "connected"
        tenant = TlsFiles(folder / "ca.pem", stolen / "cert.pem", stolen / "key.pem")
        assert "not reachable" in news(there, address, tenant)
        world.planes.revoke("edge")
        world.planes.issue("edge")
        assert "not reachable" in news(there, address, TlsFiles(trusted, *world.pki.own_files()))
