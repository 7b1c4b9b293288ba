"""With TLS the device has to show a certificate of the plane's name, and sees the controller's."""

import datetime
from collections.abc import Sequence
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from openflow_net import Recorder

from controller.planes.p4runtime.channel import TlsFiles
from controller.planes.p4runtime.plane import P4RuntimePlane
from tests.unit.p4runtime.edge import QUICK, config_of
from tests.unit.p4runtime.server import device

Pair = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]


def issue(name: str, issuer: Pair | None = None, usages: Sequence[x509.ObjectIdentifier] = ()) -> Pair:
    """A certificate for a DNS name and its key, signed by ``issuer`` or, as a CA, by itself; without ``usages`` for
    all of them."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer[0].subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    )
    if usages:
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    return builder.sign(issuer[1] if issuer else key, hashes.SHA256()), key


def pem(pair: Pair) -> tuple[bytes, bytes]:
    """Key and certificate."""
    plain = serialization.NoEncryption()
    key = pair[1].private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    return key, pair[0].public_bytes(serialization.Encoding.PEM)


@pytest.fixture
def authority() -> Pair:
    return issue("test-ca")


@pytest.fixture
def files(tmp_path: Path, authority: Pair) -> TlsFiles:
    key, certificate = pem(issue("controller", authority))
    found = TlsFiles(tmp_path / "ca.pem", tmp_path / "cert.pem", tmp_path / "key.pem")
    found.ca.write_bytes(pem(authority)[1])
    found.cert.write_bytes(certificate)
    found.key.write_bytes(key)
    return found


async def first_news(directory: Path, files: TlsFiles | None, credentials: grpc.ServerCredentials) -> Recorder:
    """What a plane `edge` tells first of a device with these credentials."""
    heard = Recorder()
    async with device(directory, credentials) as one:
        plane = P4RuntimePlane(config_of(one), files, timing=QUICK)
        await plane.start(heard)
        await heard.until(lambda: heard.connects or heard.disconnects)
        await plane.close()
    return heard


async def test_a_device_of_the_planes_name_is_spoken_to(tmp_path: Path, files: TlsFiles, authority: Pair) -> None:
    shown = grpc.ssl_server_credentials([pem(issue("edge", authority))], pem(authority)[1], True)
    heard = await first_news(tmp_path, files, shown)
    assert heard.connects == 1


async def test_a_certificate_of_another_name_is_refused(tmp_path: Path, files: TlsFiles, authority: Pair) -> None:
    heard = await first_news(tmp_path, files, grpc.ssl_server_credentials([pem(issue("other", authority))]))
    assert not heard.connects
    assert "not reachable" in heard.disconnects[0]


async def test_a_certificate_of_another_authority_is_refused(tmp_path: Path, files: TlsFiles) -> None:
    stranger = issue("edge", issue("somebody"))
    heard = await first_news(tmp_path, files, grpc.ssl_server_credentials([pem(stranger)]))
    assert not heard.connects
    assert "not reachable" in heard.disconnects[0]


async def test_over_a_unix_socket_there_is_no_tls(tmp_path: Path, files: TlsFiles) -> None:
    heard = Recorder()
    async with device(tmp_path) as one:
        plane = P4RuntimePlane(config_of(one), files, timing=QUICK)
        await plane.start(heard)
        await heard.until(lambda: heard.connects or heard.disconnects)
        await plane.close()
    assert heard.connects == 1


async def test_a_device_on_tcp_without_tls_on_our_side_names_the_options(tmp_path: Path, authority: Pair) -> None:
    shown = grpc.ssl_server_credentials([pem(issue("edge", authority))], pem(authority)[1], True)
    heard = await first_news(tmp_path, None, shown)
    assert not heard.connects
    assert heard.disconnects[0].endswith("(vr-forwarder needs TLS on TCP: --p4runtime-tls)")


async def test_a_file_that_is_missing_is_named(tmp_path: Path, files: TlsFiles, authority: Pair) -> None:
    files.key.unlink()
    heard = await first_news(tmp_path, files, grpc.ssl_server_credentials([pem(issue("edge", authority))]))
    assert heard.disconnects[0] == f"cannot read {files.key}: No such file or directory"
