"""A plane's certificate is good at both ends of TLS, for a year, and only as long as it is not revoked."""

import asyncio
import ssl
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import grpc
import pytest
from handshakes import Clock, client, full_disk, server, shake
from openflow_net import Recorder

from controller.errors import Conflict, NoSuch
from controller.model import PlaneConfig, PlaneKind, Quota, RouterConfig
from controller.pki import planes as plane_module
from controller.pki.authority import LIFETIME, PKI
from controller.pki.certificates import CLOCK_SKEW, has_key, load_certificate, load_key
from controller.pki.planes import IssuedFiles, PlaneCertificates
from controller.pki.switches import SwitchContext
from controller.planes.p4runtime.channel import Timing, TlsFiles
from controller.planes.p4runtime.plane import P4RuntimePlane
from controller.store.sqlite import SqliteStore


class World:
    """One controller's certificates, and a clock."""

    def __init__(self, state: Path, off: timedelta = timedelta()) -> None:
        self.state, self.clock, self.store = state, Clock(off), SqliteStore(state)
        self.pki = PKI(state, self.store, self.clock)
        self.planes = PlaneCertificates(self.pki, self.store, self.clock)

    def context(self) -> SwitchContext:
        return SwitchContext(self.pki, self.planes, self.clock)

    def in_folder(self, plane: str, names: Sequence[str] = ()) -> Path:
        """Issue a certificate and write it as vrctl does."""
        folder = self.state / f"etc-{plane}"
        folder.mkdir()
        write(folder, self.planes.issue(plane, names, str(folder)))
        return folder


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def write(folder: Path, files: IssuedFiles) -> None:
    for name, content in zip(("key", "cert", "ca"), of(files), strict=True):
        (folder / f"{name}.pem").write_bytes(content)


def of(files: IssuedFiles) -> tuple[bytes, bytes, bytes]:
    return files.key, files.certificate, files.ca


def read(folder: Path) -> tuple[bytes, bytes, bytes]:
    key, certificate, ca = ((folder / f"{name}.pem").read_bytes() for name in ("key", "cert", "ca"))
    return key, certificate, ca


def test_it_is_good_as_a_server_under_each_name_and_as_a_client(world: World) -> None:
    files = world.planes.issue("f1", ["f1.example.net", "192.0.2.7", "2001:db8::7"])
    own = (*world.pki.own(), world.pki.ca_pem)
    for name in ("f1", "f1.example.net", "192.0.2.7", "2001:db8::7"):
        seen = shake(server(*of(files)), client(*own), name)
        assert (("commonName", "vr-controller"),) in seen["subject"]
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake(server(*of(files)), client(*own), "f2")
    seen = shake(world.context().context, client(*of(files)))
    assert (("commonName", "f1"),) in seen["subject"]


def test_it_lasts_a_year(world: World) -> None:
    certificate = load_certificate(world.planes.issue("f1").certificate)
    assert certificate.not_valid_after_utc - certificate.not_valid_before_utc == LIFETIME + CLOCK_SKEW
    assert timedelta(days=365) == LIFETIME


async def test_a_routers_certificate_opens_no_plane(world: World) -> None:
    """What the plane trusts does not sign routers' certificates."""
    files = world.planes.issue("f1")
    await world.pki.issue([RouterConfig(7, "red", "r1", "f1", Quota(), ())])
    key, certificate, _ = read(world.pki.identity(7))
    with pytest.raises(ssl.SSLError):
        shake(server(*of(files)), client(key, certificate, files.ca), "f1")


def test_of_certificates_that_change_while_they_are_listed_each_is_shown_as_it_is(world: World) -> None:
    for name in ("f1", "f2", "f3", "f4"):
        world.planes.issue(name)
    listed = world.planes.states()
    serials = [one.serial for one in world.planes.states()]
    assert next(listed).owner == "plane f1"
    world.planes.revoke("f2")
    world.store.forget_plane_certificates([serials[2]])
    world.planes.issue("f5")
    assert [(one.owner, one.state) for one in listed] == [("plane f2", "revoked"), ("plane f4", "valid")]


@pytest.mark.parametrize("name", ["", "a b", "-a.example", "a..b", "ü.example", "x" * 64, "192.0.2.0/24"])
def test_what_is_no_name_is_refused(world: World, name: str) -> None:
    with pytest.raises(ValueError, match="is neither a DNS name nor an IP address"):
        world.planes.issue("f1", [name])
    assert list(world.planes.states()) == []


@pytest.mark.parametrize("directory", ["etc/f1", ".", "/etc/f1\0", "/etc\n/f1"])
def test_a_directory_in_which_nothing_can_be_renewed_is_refused(world: World, directory: str) -> None:
    with pytest.raises(ValueError, match="is no directory; give its absolute path"):
        world.planes.issue("f1", [], directory)
    assert list(world.planes.states()) == []
    assert world.planes.renew() == []


def test_it_is_recorded_and_outlives_a_restart(world: World) -> None:
    world.planes.issue("f1", ["192.0.2.7"], "/etc/f1")
    again = PlaneCertificates(world.pki, world.store, world.clock)
    (one,) = again.states()
    assert (one.owner, one.names, one.state, one.directory) == ("plane f1", ("f1", "192.0.2.7"), "valid", "/etc/f1")


def test_a_switch_whose_certificate_is_revoked_is_refused_at_once(world: World) -> None:
    context = world.context().context  # the listener goes on with this one
    first, second, other = (world.planes.issue(name) for name in ("s1", "s1", "s2"))
    serial = next(world.planes.states()).serial
    assert world.planes.revoke("s1", serial) == [serial]
    for files, good in ((first, False), (second, True), (other, True)):
        if good:
            shake(context, client(*of(files)))
        else:
            with pytest.raises(ssl.SSLError, match="certificate revoked"):
                shake(context, client(*of(files)))
    assert len(world.planes.revoke("s1")) == 1
    with pytest.raises(ssl.SSLError, match="certificate revoked"):
        shake(context, client(*of(second)))
    with pytest.raises(NoSuch, match="see vrctl get certificates"):
        world.planes.revoke("s1")
    assert [one.state for one in world.planes.states()] == ["revoked", "revoked", "valid"]


def test_switches_see_the_controllers_present_certificate(tmp_path: Path) -> None:
    world = World(tmp_path, timedelta(days=-400))
    context, ended = world.context().context, world.pki.own()
    world.clock.off = timedelta()
    world.pki.refresh()
    assert world.pki.own() != ended
    files = world.planes.issue("s1")
    here = client(*of(files))
    here.check_hostname = True
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = here.wrap_bio(down, up, server_hostname="vr-controller")
    other = context.wrap_bio(up, down, server_side=True)
    for _ in range(8):
        for side in (one, other):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert one.getpeercert(True) == ssl.PEM_cert_to_DER_cert(world.pki.own()[1].decode())


# -- a P4Runtime device, over gRPC -----------------------------------------------------------------------------------


async def connects(world: World, files: IssuedFiles, plane: str = "f1") -> bool:
    """Whether a plane takes a gRPC server with these files for its device, and is taken for the controller by it."""
    shown = grpc.ssl_server_credentials([(files.key, files.certificate)], files.ca, require_client_auth=True)
    heard, end = Recorder(), grpc.aio.server()
    port = end.add_secure_port("127.0.0.1:0", shown)
    called = asyncio.Event()

    class Calls(grpc.GenericRpcHandler):
        def service(self, handler_call_details: grpc.HandlerCallDetails) -> None:
            called.set()  # there was a handshake, and both were content
            return

    end.add_generic_rpc_handlers((Calls(),))
    await end.start()
    tls = TlsFiles(world.planes.trusted(plane), *world.pki.own_files())
    config = PlaneConfig(plane, PlaneKind.P4RUNTIME, address=f"127.0.0.1:{port}", device_id=1)
    driver = P4RuntimePlane(config, tls, timing=Timing(retry_s=0.02))
    await driver.start(heard)
    try:
        await heard.until(lambda: heard.connects or heard.disconnects)
    finally:
        await driver.close()
        await end.stop(None)
    return called.is_set()


async def test_a_device_is_believed_by_what_was_issued_to_its_plane(world: World) -> None:
    files, other = world.planes.issue("f1"), world.planes.issue("f2", ["f1"])
    assert await connects(world, files)
    assert not await connects(world, other)  # by name it could be
    world.planes.revoke("f1")
    assert not await connects(world, files)
    assert await connects(world, world.planes.issue("f1"))


# -- renewal ---------------------------------------------------------------------------------------------------------


def test_what_lies_in_a_folder_is_renewed_a_month_before_its_end(world: World) -> None:
    folder = world.in_folder("f1", ["192.0.2.7"])
    before = read(folder)
    assert world.planes.renew() == []
    world.clock.off = timedelta(days=336)
    ((plane, line),) = world.planes.renew()
    assert (plane, str(folder) in line, "renewed" in line) == ("f1", True, True)
    after = read(folder)
    assert after[:2] != before[:2]
    assert (folder / "key.pem").stat().st_mode & 0o777 == 0o600
    old, new = world.planes.states()
    assert (old.state, new.state, new.names) == ("valid", "valid", ("f1", "192.0.2.7"))  # the device may show the old
    assert (old.directory, new.directory) == ("", str(folder))
    assert world.planes.renew() == []
    assert PlaneCertificates(world.pki, world.store, world.clock).renew() == []


def test_one_that_was_issued_by_a_wrong_clock_is_renewed(world: World) -> None:
    world.clock.off = timedelta(days=4000)
    folder = world.in_folder("f1")
    world.clock.off = timedelta()
    world.pki.refresh()
    assert len(world.planes.renew()) == 1
    shake(server(*read(folder)), client(*world.pki.own(), world.pki.ca_pem), "f1")


def test_a_folder_that_holds_something_else_by_now_is_left_alone_and_told_once(world: World) -> None:
    folder = world.in_folder("f1")
    write(folder, world.planes.issue("f1"))
    before = read(folder)
    world.clock.off = timedelta(days=336)
    ((_, line),) = world.planes.renew()
    assert "is not the certificate that was issued last" in line
    assert read(folder) == before
    assert world.planes.renew() == []


def test_a_renewal_that_does_not_fit_is_told_and_tried_again(world: World) -> None:
    folder = world.in_folder("f1")
    before = read(folder)
    world.clock.off = timedelta(days=336)
    with full_disk():
        for lines in (1, 0):
            assert len(world.planes.renew()) == lines
    assert read(folder) == before
    assert len(list(world.planes.states())) == 1
    assert sorted(path.name for path in folder.iterdir()) == ["ca.pem", "cert.pem", "key.pem"]
    assert len(world.planes.renew()) == 1
    assert read(folder) != before


@pytest.fixture(params=[0, 1])
def cut_short(world: World, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """A folder in which a renewal had renamed so many files when it was killed."""
    folder = world.in_folder("f1")
    world.clock.off = timedelta(days=336)
    put_in_place = plane_module.put_in_place

    def killed(directory: Path, names: Sequence[str]) -> None:
        put_in_place(directory, names[: request.param])
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(plane_module, "put_in_place", killed)
        with pytest.raises(KeyboardInterrupt):
            world.planes.renew()
    return folder


def test_a_renewal_that_was_cut_short_is_finished(world: World, cut_short: Path) -> None:
    again = PlaneCertificates(world.pki, world.store, world.clock)
    ((_, line),) = again.renew()
    assert line == f"{cut_short} was renewed; a device that does not read its files by itself needs a restart"
    key, certificate, _ = read(cut_short)
    assert certificate == world.store.plane_certificates()[-1].pem
    assert has_key(load_certificate(certificate), load_key(key))
    assert sorted(path.name for path in cut_short.iterdir()) == ["ca.pem", "cert.pem", "key.pem"]
    assert again.renew() == []


def test_what_a_renewal_left_does_not_replace_what_was_issued_since(world: World, cut_short: Path) -> None:
    write(cut_short, world.planes.issue("f1", (), str(cut_short)))
    issued = read(cut_short)
    assert world.planes.renew() == []
    assert read(cut_short) == issued


def test_a_rotation_reaches_the_folder(world: World) -> None:
    folder = world.in_folder("f1")
    world.planes.issue("f2")
    world.pki.rotate()
    assert world.planes.of_former() == ["f1", "f2"]
    own = (*world.pki.own(), world.pki.ca_pem)
    shake(server(*read(folder)), client(*own), "f1")
    assert len(world.planes.renew()) == 1
    assert world.planes.of_former() == ["f2"]
    world.planes.revoke("f2")
    assert world.planes.of_former() == []
    renewed = read(folder)
    shake(server(*renewed), client(*own), "f1")
    shake(world.context().context, client(*renewed))
    world.pki.retire()
    shake(server(*renewed), client(*world.pki.own(), world.pki.ca_pem), "f1")
    assert "ca.pem was written again" in world.planes.renew()[0][1]


def test_what_is_remembered_of_a_plane_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plane_module, "MAX_OF_PLANE", 3)
    for _ in range(3):
        world.planes.issue("f1")
    with pytest.raises(Conflict, match="has 3 certificates that have not ended"):
        world.planes.issue("f1")
    world.planes.issue("f2")
    world.clock.off = timedelta(days=366)
    world.planes.issue("f1")
    assert [one.owner for one in world.planes.states()].count("plane f1") == 3
