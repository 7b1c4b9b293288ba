"""The controller's own certificate authority: one server certificate, and one client certificate per router.

A router's certificate names it by URI, ``splitplane:router:<vrf_id>:<serial>``, with a random serial that the store
knows; a deleted router's serial is refused even though its certificate is still well signed.
"""

import contextlib
import os
import secrets
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from controller.errors import StoreError
from controller.model import RouterConfig
from controller.store.base import Certificate, Store

SERVER_NAME = "vr-controller"
URI_PREFIX = "splitplane:router"
CA_LIFETIME = timedelta(days=20 * 365)
LIFETIME = timedelta(days=10 * 365)
"""Of the server's own certificate and of switches', which people install."""
ROUTER_LIFETIME = timedelta(days=90)
RENEW_BEFORE = timedelta(days=30)
CLOCK_SKEW = timedelta(days=1)

IDENTITY_FILES = ("cert.pem", "key.pem", "ca.pem")


def write_private(path: Path, content: bytes) -> None:
    """Replace a file at once with content that only its owner may read."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):
        temporary.unlink()
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


class PKI:
    """Issues and revokes certificates; its files are under ``state``/pki."""

    def __init__(self, state: Path, store: Store) -> None:
        self._store = store
        self.directory = state / "pki"
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._key, self._ca = self._load_authority()
            self._server = self._load_server()
        except OSError as problem:
            raise StoreError(f"{self.directory}: {problem.strerror}; give another state directory") from None
        except ValueError as problem:
            raise StoreError(f"{self.directory} is damaged ({problem}); restore a backup") from None

    @property
    def ca_pem(self) -> bytes:
        """The authority's certificate."""
        return self._ca.public_bytes(serialization.Encoding.PEM)

    def server_credentials(self) -> tuple[bytes, bytes, bytes]:
        """Return the server's key, its certificate and the authority's certificate, all PEM."""
        return (*self._server, self.ca_pem)

    def identity(self, vrf_id: int) -> Path:
        """Return the directory with a router's cert.pem, key.pem and ca.pem."""
        return self.directory / "routers" / str(vrf_id)

    def issue(self, router: RouterConfig) -> Path:
        """Return the directory of a router's certificate; issues one where it has none that is valid."""
        directory = self.identity(router.vrf_id)
        if self._identity_is_good(directory, router):
            return directory
        serial = secrets.token_hex(16)
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.UniformResourceIdentifier(f"{URI_PREFIX}:{router.vrf_id}:{serial}")
        certificate = self._sign(
            key.public_key(), router.full_name, name, ExtendedKeyUsageOID.CLIENT_AUTH, ROUTER_LIFETIME
        )
        self._store.revoke_certificates(router.vrf_id)
        self._store.add_certificate(Certificate(serial, router.vrf_id))
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            contents = (certificate, _key_pem(key), self.ca_pem)
            for file, content in zip(IDENTITY_FILES, contents, strict=True):
                write_private(directory / file, content)
        except OSError as problem:
            raise StoreError(f"{directory}: {problem.strerror}; free space or give another state directory") from None
        return directory

    def renew_at(self, vrf_id: int) -> datetime:
        """Return when `issue` would make a new certificate for a router that has one."""
        pem = (self.identity(vrf_id) / IDENTITY_FILES[0]).read_bytes()
        return x509.load_pem_x509_certificate(pem).not_valid_after_utc - RENEW_BEFORE

    def issue_switch(self, plane: str) -> tuple[bytes, bytes, bytes]:
        """Return a new key, certificate and the authority's certificate for the switch of a plane, all PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._sign(key.public_key(), plane, x509.DNSName(plane), ExtendedKeyUsageOID.CLIENT_AUTH)
        return _key_pem(key), certificate, self.ca_pem

    def revoke(self, vrf_id: int) -> None:
        """Refuse every certificate issued to a router until now, and remove its files."""
        self._store.revoke_certificates(vrf_id)
        shutil.rmtree(self.identity(vrf_id), ignore_errors=True)

    def is_valid(self, serial: str, vrf_id: int) -> bool:
        """Tell whether a serial was issued to this router and not revoked."""
        known = self._store.find_certificate(serial)
        return known is not None and known.vrf_id == vrf_id and not known.revoked

    def _load_authority(self) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
        key_path, ca_path = self.directory / "ca.key", self.directory / "ca.pem"
        if key_path.exists() and ca_path.exists():
            return _load_key(key_path.read_bytes()), x509.load_pem_x509_certificate(ca_path.read_bytes())
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Splitplane controller CA")])
        certificate = (
            _builder(name, name, key.public_key(), CA_LIFETIME)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        write_private(key_path, _key_pem(key))
        write_private(ca_path, certificate.public_bytes(serialization.Encoding.PEM))
        return key, certificate

    def _load_server(self) -> tuple[bytes, bytes]:
        key_path, cert_path = self.directory / "server.key", self.directory / "server.pem"
        if key_path.exists() and cert_path.exists() and self._signed_and_fresh(cert_path.read_bytes()):
            return key_path.read_bytes(), cert_path.read_bytes()
        key = ec.generate_private_key(ec.SECP256R1())
        usage = ExtendedKeyUsageOID.SERVER_AUTH
        certificate = self._sign(key.public_key(), SERVER_NAME, x509.DNSName(SERVER_NAME), usage)
        write_private(key_path, _key_pem(key))
        write_private(cert_path, certificate)
        return _key_pem(key), certificate

    def _sign(
        self,
        key: ec.EllipticCurvePublicKey,
        name: str,
        alternative: x509.GeneralName,
        usage: x509.ObjectIdentifier,
        lifetime: timedelta = LIFETIME,
    ) -> bytes:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = (
            _builder(subject, self._ca.subject, key, lifetime)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.SubjectAlternativeName([alternative]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return certificate.public_bytes(serialization.Encoding.PEM)

    def _signed_and_fresh(self, pem: bytes) -> bool:
        certificate = x509.load_pem_x509_certificate(pem)
        try:
            certificate.verify_directly_issued_by(self._ca)
        except (InvalidSignature, TypeError, ValueError):
            return False
        return certificate.not_valid_after_utc - datetime.now(UTC) > RENEW_BEFORE

    def _identity_is_good(self, directory: Path, router: RouterConfig) -> bool:
        try:
            pem, _, ca = (directory.joinpath(file).read_bytes() for file in IDENTITY_FILES)
            if ca != self.ca_pem or not self._signed_and_fresh(pem):
                return False
            names = x509.load_pem_x509_certificate(pem).extensions.get_extension_for_class(
                x509.SubjectAlternativeName
            )
            uris = names.value.get_values_for_type(x509.UniformResourceIdentifier)
        except (OSError, ValueError, x509.ExtensionNotFound):
            return False
        prefix, serial = uris[0].rsplit(":", 1) if uris else ("", "")
        return prefix == f"{URI_PREFIX}:{router.vrf_id}" and self.is_valid(serial, router.vrf_id)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, lifetime: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + lifetime)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _load_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pem, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("the authority's key is not an EC key")
    return key
