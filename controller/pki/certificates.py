"""X.509 certificates as this controller makes and reads them (RFC 5280); pure."""

import ipaddress
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CLOCK_SKEW = timedelta(days=1)
"""What is issued is valid since then, for peers whose clocks are late."""

SERVER_AUTH, CLIENT_AUTH = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH


@dataclass(frozen=True, slots=True)
class Subject:
    """What a certificate is to say of its owner."""

    name: str
    alternatives: tuple[x509.GeneralName, ...]
    usages: tuple[x509.ObjectIdentifier, ...]
    lifetime: timedelta


@dataclass(frozen=True, slots=True)
class CertificateState:
    """One certificate as operators see it."""

    owner: str
    serial: str
    names: tuple[str, ...]
    valid_from: datetime
    valid_until: datetime
    state: str
    """valid, revoked, ended or not yet valid."""
    directory: str = ""
    """Where it is renewed."""


@dataclass(frozen=True, slots=True)
class Signer:
    """A key and the certificate of the authority that signs with it."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def pem(self) -> bytes:
        """The certificate."""
        return to_pem(self.certificate)

    def sign(self, key: ec.EllipticCurvePublicKey, subject: Subject, now: datetime) -> x509.Certificate:
        """Return a certificate for a key, valid from now on."""
        issuer = self.certificate.subject
        return (
            _builder(_named(subject.name), issuer, key, now, subject.lifetime)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(subject.usages), critical=False)
            .add_extension(x509.SubjectAlternativeName(subject.alternatives), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
            .sign(self.key, hashes.SHA256())
        )

    def signed(self, certificate: x509.Certificate) -> bool:
        """Tell whether a certificate is of this authority; its time is not looked at."""
        try:
            certificate.verify_directly_issued_by(self.certificate)
        except (InvalidSignature, TypeError, ValueError):
            return False
        return True

    def revocation_list(self, serials: Sequence[int], now: datetime, lifetime: timedelta) -> bytes:
        """Return the list of what of this authority is revoked (RFC 5280, section 5), PEM."""
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self.certificate.subject)
            .last_update(now - CLOCK_SKEW)
            .next_update(now + lifetime)
        )
        for serial in serials:
            revoked = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now - CLOCK_SKEW)
            builder = builder.add_revoked_certificate(revoked.build())
        return builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def new_key() -> ec.EllipticCurvePrivateKey:
    """Return a new key."""
    return ec.generate_private_key(ec.SECP256R1())


def new_signer(name: str, now: datetime, lifetime: timedelta) -> Signer:
    """Return a new authority, under a name that no other one has: peers may trust two of them at once."""
    key = new_key()
    return Signer(key, authority_certificate(_named(f"{name} {secrets.token_hex(4)}"), key, now, lifetime))


def authority_certificate(
    name: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, lifetime: timedelta
) -> x509.Certificate:
    """Return a certificate that an authority gives itself. Made again with the same name and key it takes the place
    of an earlier one: what that has signed is well signed by this one."""
    return (
        _builder(name, name, key.public_key(), now, lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .sign(key, hashes.SHA256())
    )


def valid_at(certificate: x509.Certificate, now: datetime) -> bool:
    """Tell whether a moment is between notBefore and notAfter (RFC 5280, section 4.1.2.5)."""
    return certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc


def has_key(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> bool:
    """Tell whether a certificate is for a key."""
    return certificate.public_key() == key.public_key()


def usages_of(certificate: x509.Certificate) -> frozenset[x509.ObjectIdentifier]:
    """Return the purposes of a certificate."""
    try:
        return frozenset(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except x509.ExtensionNotFound:
        return frozenset()


def alternatives_of(certificate: x509.Certificate) -> tuple[x509.GeneralName, ...]:
    """Return the alternative names of a certificate."""
    try:
        return tuple(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        return ()


def peer_name(text: str) -> x509.GeneralName:
    """Return what is written as an IP address or a DNS name (RFC 1123, 2.1); ValueError where it is neither."""
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        pass
    labels = text.split(".")
    sound = all(0 < len(one) < 64 and one.replace("-", "a").isalnum() and one.strip("-") == one for one in labels)
    if not text.isascii() or len(text) > 253 or not sound:
        raise ValueError(f"{text!r} is neither a DNS name nor an IP address")
    return x509.DNSName(text)


def state_of(
    owner: str, certificate: x509.Certificate, now: datetime, revoked: bool = False, directory: str = ""
) -> CertificateState:
    """Show a certificate."""
    since, until = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if revoked:
        state = "revoked"
    elif now > until:
        state = "ended"
    else:
        state = "valid" if now >= since else "not yet valid"
    names = tuple(str(one.value) for one in alternatives_of(certificate))
    return CertificateState(owner, serial_text(certificate), names, since, until, state, directory)


def serial_text(certificate: x509.Certificate) -> str:
    """Return a serial number in hexadecimal."""
    return f"{certificate.serial_number:x}"


def to_pem(certificate: x509.Certificate) -> bytes:
    """Return a certificate as PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a private key as PEM."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def load_certificate(pem: bytes) -> x509.Certificate:
    """Read a certificate; ValueError where it is none."""
    return x509.load_pem_x509_certificate(pem)


def load_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    """Read a private key; ValueError where it is none of ours."""
    try:
        key = serialization.load_pem_private_key(pem, None)
    except (TypeError, UnsupportedAlgorithm) as problem:  # it has a password, or is of another kind
        raise ValueError(str(problem)) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("the key is not an EC key")
    return key


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])  # RFC 5280, appendix A: ub-common-name


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, lifetime: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
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
