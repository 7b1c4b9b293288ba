"""Certificates of planes: for both roles, recorded, renewed where their files lie on this host, revocable.

A plane is believed by record: `trusted` has exactly the certificates that were issued to it and not revoked, and a
device that shows another one, of the same authority even, is not the plane. Where that cannot be said (OpenFlow over
`ssl`, whose switches may have certificates of before there was a record), `revoked` names those that are refused.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509

from controller.errors import Conflict, NoSuch, StoreError
from controller.pki.authority import IDENTITY_FILES, LIFETIME, PKI, RENEW_BEFORE
from controller.pki.certificates import (
    CLIENT_AUTH,
    SERVER_AUTH,
    CertificateState,
    Subject,
    alternatives_of,
    has_key,
    key_pem,
    load_certificate,
    load_key,
    new_key,
    peer_name,
    serial_text,
    state_of,
    to_pem,
    valid_at,
)
from controller.pki.files import discard, left_beside, put_in_place, write_beside, write_together
from controller.pki.signing import Clock
from controller.store.base import PlaneCertificate, Store

MAX_NAMES = 32
"""That one certificate may have beside the plane's."""

RESTART = "a device that does not read its files by itself needs a restart"

MAX_OF_PLANE = 256
"""Certificates of one plane that are remembered; the oldest that have ended are forgotten first."""


@dataclass(frozen=True, slots=True)
class IssuedFiles:
    """What a plane needs for TLS, each as PEM."""

    key: bytes
    certificate: bytes
    ca: bytes


class PlaneCertificates:
    """The certificates of all planes."""

    def __init__(self, pki: PKI, store: Store, clock: Clock) -> None:
        self._pki, self._store, self._clock = pki, store, clock
        self._all = _by_serial(store)
        self.version = 0  # changes with what is revoked
        self._trusted = pki.directory / "planes"
        self._told: dict[str, str] = {}  # by directory, what was said of it last
        self._write_all_trusted()

    def trusted(self, plane: str) -> Path:
        """Return the file with the certificates by which a plane is believed; there is none where it has none."""
        return self._trusted / f"{plane}.pem"

    def revoked(self) -> list[int]:
        """Return the serial numbers that are refused."""
        return [int(one.serial, 16) for one in self._all.values() if one.revoked]

    def issue(self, plane: str, names: Sequence[str] = (), directory: str = "") -> IssuedFiles:
        """Issue a certificate for a plane, by its name and others; it is renewed in ``directory`` if there is one.

        ValueError where something is no name or no directory, Conflict where the plane has too many, StoreError where
        it cannot be recorded.
        """
        if directory and not (directory.startswith("/") and directory.isprintable()):
            raise ValueError(f"{directory!r} is no directory; give its absolute path")
        if len(names) > MAX_NAMES:
            raise ValueError(f"{len(names)} names; a certificate may have {MAX_NAMES}")
        alternatives = dict.fromkeys([x509.DNSName(plane), *map(peer_name, names)])
        files = self._sign(plane, tuple(alternatives))
        self._record(plane, files.certificate, directory)
        return files

    def revoke(self, plane: str, serial: str = "") -> list[str]:
        """Refuse the certificates of a plane, or one of them; returns their serials. NoSuch where there is none."""
        known = [one for one in self._all.values() if one.plane == plane and not one.revoked]
        found = [one.serial for one in known if serial in ("", one.serial)]
        if not found:
            kind = f"certificate {serial!r} of plane" if serial else "certificate of plane"
            raise NoSuch(kind, plane, "see vrctl get certificates")
        self._store.revoke_plane_certificates(found)
        self._reload(plane)
        return found

    def recorded(self) -> list[PlaneCertificate]:
        """Return all certificates, oldest first."""
        return list(self._all.values())

    def believed(self) -> set[str]:
        """Return the planes that have a certificate which is not revoked."""
        return {one.plane for one in self._all.values() if not one.revoked}

    def renew(self) -> list[tuple[str, str]]:
        """Renew what lies on this host and is due; returns planes, and a line about each that was or should have
        been. The certificate before stays valid until its end: a device may need a restart to read the new one."""
        lines = []
        for one in [one for one in self._all.values() if one.directory and not one.revoked]:
            line = self._renew(one)
            if line and line != self._told.get(one.directory):
                lines.append((one.plane, line))
            self._told[one.directory] = line
        return lines

    def states(self) -> Iterator[CertificateState]:
        """Iterate over all certificates of planes. Of those that change meanwhile, each is shown as it is in its
        turn."""
        for serial in list(self._all):
            one = self._all.get(serial)
            if one is not None:  # or it was forgotten
                certificate = load_certificate(one.pem)
                yield state_of(f"plane {one.plane}", certificate, self._clock(), one.revoked, one.directory)

    def of_former(self) -> list[str]:
        """Return the planes that have a certificate which only the authority before has signed, and no newer one."""
        current = self._pki.ca.current
        valid = [one for one in self._all.values() if not one.revoked and self._is_valid(one)]
        new = {one.plane for one in valid if current.signed(load_certificate(one.pem))}
        return sorted({one.plane for one in valid} - new)

    def _sign(self, plane: str, alternatives: tuple[x509.GeneralName, ...]) -> IssuedFiles:
        key = new_key()
        subject = Subject(plane, alternatives, (SERVER_AUTH, CLIENT_AUTH), LIFETIME)
        certificate = self._pki.ca.current.sign(key.public_key(), subject, self._clock())
        return IssuedFiles(key_pem(key), to_pem(certificate), self._pki.ca_pem)

    def _record(self, plane: str, pem: bytes, directory: str) -> None:
        self._make_room(plane)
        serial = serial_text(load_certificate(pem))
        self._store.add_plane_certificate(PlaneCertificate(serial, plane, pem, directory))
        self._reload(plane)

    def _make_room(self, plane: str) -> None:
        own = [one for one in self._all.values() if one.plane == plane]
        if len(own) < MAX_OF_PLANE:
            return
        ended = [one.serial for one in own if load_certificate(one.pem).not_valid_after_utc < self._clock()]
        if not ended:
            raise Conflict(f"plane {plane} has {len(own)} certificates that have not ended; use those")
        self._store.forget_plane_certificates(ended[: len(own) - MAX_OF_PLANE + 1])

    def _renew(self, one: PlaneCertificate) -> str:
        directory, lasts = Path(one.directory), self._lasts(one)
        try:
            if self._finish(one, directory):
                return f"{directory} was renewed; {RESTART}"
            if lasts and (directory / "ca.pem").read_bytes() == self._pki.ca_pem:
                return ""
            if (directory / "cert.pem").read_bytes() != one.pem:
                return f"{directory}/cert.pem is not the certificate that was issued last; nothing is renewed there"
            status = (directory / "key.pem").stat()
            owner = (status.st_uid, status.st_gid)
            if lasts:
                write_together(directory, {"ca.pem": self._pki.ca_pem}, owner=owner)
                return f"{directory}/ca.pem was written again; {RESTART}"
            files = self._sign(one.plane, alternatives_of(load_certificate(one.pem)))
            contents = (files.certificate, files.key, files.ca)
            write_beside(directory, dict(zip(IDENTITY_FILES, contents, strict=True)), sync=True, owner=owner)
            try:
                self._record(one.plane, files.certificate, one.directory)
            except (StoreError, Conflict):
                discard(directory, IDENTITY_FILES)
                raise
            put_in_place(directory, IDENTITY_FILES)
        except OSError as problem:
            return f"{problem.filename or directory}: {problem.strerror}; what is due is tried again"
        except (StoreError, Conflict) as problem:
            return str(problem)
        return f"{directory} was renewed; {RESTART}"

    def _finish(self, one: PlaneCertificate, directory: Path) -> bool:
        """Put in place what was written and recorded when a renewal was cut short; tells whether that was so."""
        left = left_beside(directory, IDENTITY_FILES)
        try:
            if not has_key(load_certificate(one.pem), load_key(left.get("key.pem", b""))):
                return False  # of one that was not recorded, or that another one has replaced since
        except ValueError:  # nothing, or a part of it
            return False
        put_in_place(directory, left)
        return True

    def _lasts(self, one: PlaneCertificate) -> bool:
        certificate, now = load_certificate(one.pem), self._clock()
        left = certificate.not_valid_after_utc - now
        return valid_at(certificate, now) and left > RENEW_BEFORE and self._pki.ca.current.signed(certificate)

    def _is_valid(self, one: PlaneCertificate) -> bool:
        return valid_at(load_certificate(one.pem), self._clock())

    def _reload(self, plane: str) -> None:
        self._all = _by_serial(self._store)
        self.version += 1
        self._write_trusted(plane)

    def _write_all_trusted(self) -> None:
        """Have `trusted` be of this store alone: one that a backup has replaced had others."""
        planes = {one.plane for one in self._all.values()}
        with suppress(OSError):
            for path in self._trusted.iterdir():
                if path.name.removesuffix(".pem") not in planes:
                    path.unlink()
        for plane in planes:
            self._write_trusted(plane)

    def _write_trusted(self, plane: str) -> None:
        """Write by which certificates a plane is believed; what cannot be written is no reason to believe more."""
        trusted = b"".join(one.pem for one in self._all.values() if one.plane == plane and not one.revoked)
        path = self.trusted(plane)
        try:
            if not trusted:
                path.unlink(missing_ok=True)
                return
            self._trusted.mkdir(mode=0o700, exist_ok=True)
            if not path.exists() or path.read_bytes() != trusted:
                write_together(self._trusted, {path.name: trusted})
        except OSError:
            with suppress(OSError):
                path.unlink(missing_ok=True)


def _by_serial(store: Store) -> dict[str, PlaneCertificate]:
    return {one.serial: one for one in store.plane_certificates()}
