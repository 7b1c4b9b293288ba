"""With TLS only a switch with a certificate of the controller's CA, of the right name, gets a plane."""

import datetime
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from openflow_net import BRIDGE, Net, openflow_net

pytestmark = pytest.mark.root

Pair = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]


def issue(name: str, issuer: Pair | None = None) -> Pair:
    """Return a certificate and its key, signed by ``issuer`` or, as a CA, by itself."""
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
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    )
    return builder.sign(issuer[1] if issuer else key, hashes.SHA256()), key


def save(directory: Path, name: str, pair: Pair) -> tuple[str, str]:
    """Write a certificate and its key and return their paths."""
    certificate, key = directory / f"{name}-cert.pem", directory / f"{name}-key.pem"
    certificate.write_bytes(pair[0].public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    key.write_bytes(pair[1].private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
    return str(certificate), str(key)


class Pki:
    """A CA, the controller's certificate and its TLS context."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.authority = directory, issue("Splitplane test CA")
        self.authority_path, _ = save(directory, "ca", self.authority)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(*save(directory, "controller", issue("controller", self.authority)))
        self.context.load_verify_locations(self.authority_path)
        self.context.verify_mode = ssl.CERT_REQUIRED

    def equip(self, net: Net, name: str, issuer: Pair) -> None:
        """Give the switch a certificate and let it connect."""
        certificate, key = save(self.directory, "switch", issue(name, issuer))
        net.ovs.vsctl("set-ssl", key, certificate, self.authority_path)
        net.ovs.set_controller(BRIDGE, f"ssl:127.0.0.1:{net.server.port}")


async def test_a_switch_with_the_right_certificate_connects(tmp_path: Path) -> None:
    pki = Pki(tmp_path)
    async with openflow_net(tls=pki.context, certificate_name="switch-1", connect=False) as net:
        pki.equip(net, "switch-1", pki.authority)
        await net.heard.until(lambda: net.plane.connected)
        assert (await net.plane.read()).routes == {}


async def test_a_switch_with_another_name_is_refused_by_name(tmp_path: Path) -> None:
    pki = Pki(tmp_path)
    async with openflow_net(tls=pki.context, certificate_name="switch-1", connect=False) as net:
        pki.equip(net, "switch-2", pki.authority)
        await net.eventually(lambda: net.server.refused.get("wrong_certificate"))
        assert not net.plane.connected


async def test_a_switch_of_another_authority_does_not_get_through(tmp_path: Path) -> None:
    pki = Pki(tmp_path)
    async with openflow_net(tls=pki.context, connect=False) as net:
        pki.equip(net, "switch-1", issue("other CA"))
        await net.eventually(lambda: net.server.refused.get("tls"))
        assert not net.plane.connected


async def test_a_switch_without_tls_does_not_get_through(tmp_path: Path) -> None:
    async with openflow_net(tls=Pki(tmp_path).context, connect=False) as net:
        net.ovs.set_controller(BRIDGE, f"tcp:127.0.0.1:{net.server.port}")
        await net.eventually(lambda: net.server.refused.get("tls"))
        assert not net.plane.connected
