"""An authority that outlives its certificate: made anew under the same key, and replaced while both are trusted.

    healthy ── clock wrong when it was made, or its end near ──► same key, same name, new certificate
    current ── rotate ──► current (new key) + former ── retire ──► current

A new certificate under the same key locks nobody out: who trusts the old one goes on as long as that is valid, and
what was signed stays signed. So it does no harm if it is the clock of this moment that is wrong.

Files: NAME.key and NAME.pem, and NAME-former.key and NAME-former.pem between the two steps of a rotation.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey as Key

from controller.pki.certificates import (
    Signer,
    authority_certificate,
    has_key,
    key_pem,
    load_certificate,
    load_key,
    new_signer,
    to_pem,
    valid_at,
)
from controller.pki.files import write_together

CA_LIFETIME = timedelta(days=20 * 365)
CA_RENEW_BEFORE = timedelta(days=2 * 365)
"""So that it outlives whatever it signs."""

Clock = Callable[[], datetime]


class Authority:
    """One authority in a directory; OSError and ValueError where its files cannot be used.

    ``unwritten`` says what could not be written; it is in force all the same, and `heal` tries again.
    """

    def __init__(self, directory: Path, name: str, title: str, clock: Clock) -> None:
        self._directory, self.name, self._title, self._clock = directory, name, title, clock
        self.unwritten = ""
        self.former: Signer | None = None
        self.current = self._load()
        self.heal()

    @property
    def signers(self) -> tuple[Signer, ...]:
        """What is trusted, the one that signs first."""
        return (self.current,) if self.former is None else (self.current, self.former)

    @property
    def bundle(self) -> bytes:
        """The certificates of `signers`, PEM."""
        return b"".join(one.pem for one in self.signers)

    @property
    def seen(self) -> Signer:
        """Which signs what is shown to those who may not know the current one yet."""
        return self.former or self.current

    def signed(self, certificate: x509.Certificate) -> bool:
        """Tell whether a certificate is of this authority, the current one or the one before."""
        return any(one.signed(certificate) for one in self.signers)

    def heal(self) -> bool:
        """Make certificates anew that are not valid at this time or end soon; tells whether one was."""
        current = self._healed(self.current, self.name)
        former = None if self.former is None else self._healed(self.former, f"{self.name}-former")
        changed = (current, former) != (self.current, self.former)
        self.current, self.former = current, former
        return changed

    def rotate(self) -> None:
        """Make a new authority; the one before it stays trusted until `retire`. OSError leaves it as it was."""
        fresh = new_signer(self._title, self._clock(), CA_LIFETIME)
        self._write(f"{self.name}-former", self.current)
        self._write(self.name, fresh)
        self.current, self.former = fresh, self.current

    def retire(self) -> None:
        """Trust the one before no more."""
        for suffix in ("pem", "key"):
            (self._directory / f"{self.name}-former.{suffix}").unlink(missing_ok=True)
        self.former = None

    def _healed(self, signer: Signer, name: str) -> Signer:
        now = self._clock()
        if valid_at(signer.certificate, now) and signer.certificate.not_valid_after_utc - now > CA_RENEW_BEFORE:
            if name == self.name and self.unwritten:
                self._try_to_write(name, signer)
            return signer
        again = authority_certificate(signer.certificate.subject, signer.key, now, CA_LIFETIME)
        healed = Signer(signer.key, again)
        self._try_to_write(name, healed)
        return healed

    def _try_to_write(self, name: str, signer: Signer) -> None:
        """Write a certificate whose key is written already, or say that it could not be."""
        try:
            write_together(self._directory, {f"{name}.pem": signer.pem}, sync=True)
            self.unwritten = ""
        except OSError as problem:
            self.unwritten = f"{self._directory / name}.pem: {problem.strerror}"

    def _load(self) -> Signer:
        current, former = self._read(self.name), self._read(f"{self.name}-former")
        key, certificate = current
        old_key, old_certificate = former
        if key is None and certificate is None:
            signer = new_signer(self._title, self._clock(), CA_LIFETIME)
            self._write(self.name, signer)
            return signer
        if key is None:
            raise ValueError(f"{self.name}.key is missing")
        if certificate is None:  # the first start was cut short; nobody has seen a certificate
            subject = new_signer(self._title, self._clock(), CA_LIFETIME).certificate.subject
            signer = Signer(key, authority_certificate(subject, key, self._clock(), CA_LIFETIME))
            self._write(self.name, signer)
            return signer
        whole = old_key is not None and old_certificate is not None and has_key(old_certificate, old_key)
        if not has_key(certificate, key):
            # A rotation was cut short between two renames: the certificate is still that of the former one.
            if not whole or old_key is None or not has_key(certificate, old_key):
                raise ValueError(f"{self.name}.key is not the key of {self.name}.pem")
            signer = Signer(old_key, certificate)
            self._write(self.name, signer)
            self.retire()
            return signer
        if whole and old_key is not None and old_certificate is not None and not has_key(certificate, old_key):
            self.former = Signer(old_key, old_certificate)
        else:
            self.retire()  # the rotation had not begun
        return Signer(key, certificate)

    def _read(self, name: str) -> tuple[Key | None, x509.Certificate | None]:
        key, certificate = (self._directory / f"{name}.{suffix}" for suffix in ("key", "pem"))
        return (
            load_key(key.read_bytes()) if key.exists() else None,
            load_certificate(certificate.read_bytes()) if certificate.exists() else None,
        )

    def _write(self, name: str, signer: Signer) -> None:
        contents = {f"{name}.key": key_pem(signer.key), f"{name}.pem": to_pem(signer.certificate)}
        write_together(self._directory, contents, sync=True)
