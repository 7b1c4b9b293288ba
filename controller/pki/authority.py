"""The controller's public key infrastructure: who may be whom.

    ca       signs the controller's own certificate and those of planes; what routers and planes trust is its bundle
    routers  signs one client certificate for each router; trusted by the session service alone, so that a tenant's
             key opens no plane

A router's certificate names it by URI, ``splitplane:router:<vrf_id>:<serial>``, with a random serial that the store
knows; a deleted router's serial is refused even though its certificate is still well signed.

New certificates are written before old ones are refused, and an old one is refused only once the guest was given the
new one: a disk that is full at any moment leaves everybody with a certificate that works.
"""

import asyncio
import secrets
import shutil
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509

from controller.errors import Conflict, StoreError
from controller.model import RouterConfig
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
    state_of,
    to_pem,
    usages_of,
    valid_at,
)
from controller.pki.files import discard, put_in_place, write_beside, write_together
from controller.pki.signing import Authority, Clock
from controller.store.base import Certificate, Store

SERVER_NAME = "vr-controller"
URI_PREFIX = "splitplane:router"
LIFETIME = timedelta(days=365)
"""Of the controller's own certificate and of planes'."""
ROUTER_LIFETIME = timedelta(days=90)
RENEW_BEFORE = timedelta(days=30)

BATCH = 64
"""Certificates of routers that one transaction of the store holds."""

PAUSE_S = 0.0005
"""After each router: a thread that never pauses makes the event loop wait 5 ms for the interpreter at each turn."""

OUTDATED = -1
"""No generation of authorities."""

IDENTITY_FILES = ("cert.pem", "key.pem", "ca.pem")
_OWN_FILES = ("server.key", "server.pem")


def system_clock() -> datetime:
    """Return the time of this host."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Identity:
    """A router's certificate that works."""

    serial: str
    valid_from: datetime
    renew_at: datetime
    generation: int
    """Of the authorities that it is of and trusts: another one has others. OUTDATED where it is of former ones."""


@dataclass(frozen=True, slots=True)
class Issued:
    """The certificates of some routers, by vrf_id, and why there is none, or only the old one, of the others."""

    identities: dict[int, Identity]
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class _Written:
    """What was written for a router beside its files; the serial only where there is a new certificate."""

    vrf_id: int
    names: tuple[str, ...]
    serial: str = ""


def authorities(directory: Path, clock: Clock) -> tuple[Authority, Authority]:
    """Load ``ca`` and ``routers``, each made where it is not there; OSError or ValueError where one is of no use."""
    ca = Authority(directory, "ca", "Splitplane controller CA", clock)
    return ca, Authority(directory, "routers", "Splitplane router CA", clock)


class PKI:
    """Issues and revokes certificates; its files are under ``state``/pki.

    ``generation`` changes with what is trusted, so that whoever handed that out does it again.
    """

    def __init__(self, state: Path, store: Store, clock: Clock = system_clock) -> None:
        self._store, self._clock = store, clock
        self.directory = state / "pki"
        self.generation = 0
        self._unwritten = ""
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.ca, self.routers = authorities(self.directory, clock)
            self._own = self._load_own() or self._issue_own()
        except OSError as problem:
            raise StoreError(f"{self.directory}: {problem.strerror}; give another state directory") from None
        except ValueError as problem:
            raise StoreError(f"{self.directory} is damaged ({problem}); restore a backup") from None

    @property
    def ca_pem(self) -> bytes:
        """What routers and planes trust: one certificate, or two during a rotation."""
        return self.ca.bundle

    @property
    def unwritten(self) -> str:
        """What is in force but could not be written; it is lost with this process."""
        return self.ca.unwritten or self.routers.unwritten or self._unwritten

    def own(self) -> tuple[bytes, bytes]:
        """Return the controller's own key and certificate, for servers and clients, PEM."""
        return self._own

    def own_files(self) -> tuple[Path, Path]:
        """Return where the controller's own certificate and its key are."""
        return self.directory / _OWN_FILES[1], self.directory / _OWN_FILES[0]

    def server_credentials(self) -> tuple[bytes, bytes, bytes]:
        """Return the server's key, its certificate and what it trusts of routers, all PEM.

        Routers' certificates of earlier versions are signed by ``ca``; their serials are in the store all the same.
        """
        return (*self._own, self.routers.bundle + self.ca.bundle)

    # What time brings

    def refresh(self) -> bool:
        """Make anew what is not valid at this time, or ends soon; tells whether what is trusted changed."""
        changed = [authority.heal() for authority in (self.ca, self.routers)]
        if any(changed):
            self.generation += 1
        if not self._own_is_sound(*self._own):
            self._own = self._issue_own()
        elif self._unwritten:
            self._write_own(*self._own)
        return any(changed)

    def rotate(self) -> None:
        """Replace the authorities; the ones before stay trusted, and one of them still signs what the controller
        shows. Conflict where the last rotation has not ended, StoreError where the disk does not take it."""
        fresh = [authority for authority in (self.ca, self.routers) if authority.former is None]
        if not fresh:
            raise Conflict("the authorities before these are still trusted; vrctl pki retire ends that")
        try:
            for authority in fresh:
                authority.rotate()
        except OSError as problem:
            raise StoreError(f"{self.directory}: {problem.strerror}; free space and rotate again") from None
        finally:
            self.generation += 1

    def retire(self) -> bool:
        """Trust the authorities before no more; tells whether there were any. StoreError where one of them cannot be
        removed: that one stays trusted."""
        former = [authority for authority in (self.ca, self.routers) if authority.former is not None]
        try:
            for authority in former:
                authority.retire()
        except OSError as problem:
            raise StoreError(f"{problem.filename}: {problem.strerror}; repair that and retire again") from None
        finally:
            if former:
                self.generation += 1
                self.refresh()
        return bool(former)

    def states(self) -> list[CertificateState]:
        """Show the authorities' certificates and the controller's own."""
        now = self._clock()
        states = []
        for authority in (self.ca, self.routers):
            states.append(state_of(f"authority {authority.name}", authority.current.certificate, now))
            if authority.former is not None:
                former = authority.former.certificate
                states.append(state_of(f"authority {authority.name}, the one before", former, now))
        return [*states, state_of("controller", load_certificate(self._own[1]), now)]

    # Routers

    def identity(self, vrf_id: int) -> Path:
        """Return the directory with a router's cert.pem, key.pem and ca.pem."""
        return self.directory / "routers" / str(vrf_id)

    async def issue(self, routers: Sequence[RouterConfig]) -> Issued:
        """Have a certificate for each router that is good for long enough; those that are stay.

        An old one is not revoked: `keep` does that, when the guest has the new one. The work is done in another
        thread, which pauses after each router, and the transactions, of `BATCH` certificates, wait for no disk: what
        is lost is made again.
        """
        found: dict[int, Identity] = {}
        trouble = ""
        for at in range(0, len(routers), BATCH):
            batch = routers[at : at + BATCH]
            known = self._store.valid_serials([router.vrf_id for router in batch])
            try:
                written = await asyncio.to_thread(self._write_batch, batch, known)
                fresh = [Certificate(one.serial, one.vrf_id) for one in written if one.serial]
                try:
                    if fresh:
                        await asyncio.to_thread(self._store.add_certificates, fresh)
                except StoreError:
                    await asyncio.to_thread(self._discard, written)
                    raise
                await asyncio.to_thread(self._put_in_place, written)
            except OSError as problem:
                trouble = f"{problem.filename}: {problem.strerror}; free space"
            except StoreError as problem:
                trouble = str(problem)
            known = self._store.valid_serials([router.vrf_id for router in batch])
            found |= await asyncio.to_thread(self._usable, batch, known)
        return Issued(found, trouble)

    async def keep(self, serials: Mapping[int, str]) -> None:
        """Revoke every certificate of some routers but the one that its guest was given."""
        if serials:
            await asyncio.to_thread(self._store.keep_certificates, serials)

    async def revoke(self, vrf_id: int) -> None:
        """Refuse every certificate issued to a router until now, and remove its files."""
        await asyncio.to_thread(self._store.revoke_certificates, vrf_id)
        await asyncio.to_thread(shutil.rmtree, self.identity(vrf_id), ignore_errors=True)

    def left(self) -> set[int]:
        """Return the routers of which there is a certificate that is not refused, or a file."""
        routers = self.directory / "routers"
        names = [path.name for path in routers.iterdir()] if routers.exists() else []
        return self._store.certified() | {int(name) for name in names if name.isdigit()}

    def is_valid(self, serial: str, vrf_id: int) -> bool:
        """Tell whether a serial was issued to this router and not revoked."""
        known = self._store.find_certificate(serial)
        return known is not None and known.vrf_id == vrf_id and not known.revoked

    def _write_batch(self, routers: Sequence[RouterConfig], known: Mapping[str, int]) -> list[_Written]:
        written: list[_Written] = []
        try:
            for router in routers:
                with suppress(FileNotFoundError):  # it was deleted meanwhile
                    if (one := self._write(router, known)) is not None:
                        written.append(one)
                time.sleep(PAUSE_S)
        except OSError:
            self._discard(written)
            raise
        return written

    def _write(self, router: RouterConfig, known: Mapping[str, int]) -> _Written | None:
        """Write what a router lacks beside its files."""
        directory, ca_pem = self.identity(router.vrf_id), self.ca_pem
        contents = {"ca.pem": ca_pem}
        serial = ""
        certificate = self._read(router.vrf_id, known)
        if certificate is None or not self._lasts(certificate):
            serial, key = secrets.token_hex(16), new_key()
            name = x509.UniformResourceIdentifier(f"{URI_PREFIX}:{router.vrf_id}:{serial}")
            subject = Subject(router.full_name, (name,), (CLIENT_AUTH,), ROUTER_LIFETIME)
            fresh = self.routers.current.sign(key.public_key(), subject, self._clock())
            contents = {"cert.pem": to_pem(fresh), "key.pem": key_pem(key), **contents}
        elif self._trusts(router.vrf_id, ca_pem):
            return None
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_beside(directory, contents)
        return _Written(router.vrf_id, tuple(contents), serial)

    def _put_in_place(self, written: Collection[_Written]) -> None:
        for one in written:
            with suppress(FileNotFoundError):  # it was deleted meanwhile
                put_in_place(self.identity(one.vrf_id), one.names)

    def _discard(self, written: Collection[_Written]) -> None:
        for one in written:
            discard(self.identity(one.vrf_id), one.names)

    def _usable(self, routers: Sequence[RouterConfig], known: Mapping[str, int]) -> dict[int, Identity]:
        found = {}
        generation, ca_pem, signer = self.generation, self.ca_pem, self.routers.current
        for router in routers:
            time.sleep(PAUSE_S)
            vrf_id = router.vrf_id
            if (certificate := self._read(vrf_id, known)) is not None:
                current = signer.signed(certificate) and self._trusts(vrf_id, ca_pem)
                found[vrf_id] = Identity(
                    _serial_of(certificate, vrf_id),
                    certificate.not_valid_before_utc,
                    certificate.not_valid_after_utc - RENEW_BEFORE,
                    generation if current else OUTDATED,
                )
        return found

    def _trusts(self, vrf_id: int, ca_pem: bytes) -> bool:
        try:
            return (self.identity(vrf_id) / "ca.pem").read_bytes() == ca_pem
        except OSError:
            return False

    def _read(self, vrf_id: int, known: Mapping[str, int]) -> x509.Certificate | None:
        """Return a router's certificate if it works at this moment."""
        directory = self.identity(vrf_id)
        try:
            certificate = load_certificate((directory / "cert.pem").read_bytes())
            key = load_key((directory / "key.pem").read_bytes())
        except (OSError, ValueError):
            return None
        signed = self.routers.signed(certificate) or self.ca.signed(certificate)
        named = known.get(_serial_of(certificate, vrf_id)) == vrf_id
        sound = signed and named and has_key(certificate, key) and valid_at(certificate, self._clock())
        return certificate if sound else None

    def _lasts(self, certificate: x509.Certificate) -> bool:
        """Whether a certificate that works also will for long enough."""
        left = certificate.not_valid_after_utc - self._clock()
        return left > RENEW_BEFORE and self.routers.current.signed(certificate)

    # The controller's own certificate

    def _load_own(self) -> tuple[bytes, bytes] | None:
        key_path, cert_path = (self.directory / name for name in _OWN_FILES)
        if not key_path.exists() or not cert_path.exists():
            return None
        pair = (key_path.read_bytes(), cert_path.read_bytes())
        return pair if self._own_is_sound(*pair) else None

    def _own_is_sound(self, key: bytes, pem: bytes) -> bool:
        try:
            certificate = load_certificate(pem)
            matches = has_key(certificate, load_key(key))
        except ValueError:
            return False
        now = self._clock()
        return (
            matches
            and valid_at(certificate, now)
            and certificate.not_valid_after_utc - now > RENEW_BEFORE
            and usages_of(certificate) >= {SERVER_AUTH, CLIENT_AUTH}
            and self.ca.seen.signed(certificate)
        )

    def _issue_own(self) -> tuple[bytes, bytes]:
        key = new_key()
        subject = Subject(SERVER_NAME, (x509.DNSName(SERVER_NAME),), (SERVER_AUTH, CLIENT_AUTH), LIFETIME)
        pair = (key_pem(key), to_pem(self.ca.seen.sign(key.public_key(), subject, self._clock())))
        self._write_own(*pair)
        return pair

    def _write_own(self, key: bytes, pem: bytes) -> None:
        """Write the controller's own certificate; where the disk is full it works from memory."""
        try:
            write_together(self.directory, dict(zip(_OWN_FILES, (key, pem), strict=True)), sync=True)
            self._unwritten = ""
        except OSError as problem:
            self._unwritten = f"{self.directory / _OWN_FILES[1]}: {problem.strerror}"


def _serial_of(certificate: x509.Certificate, vrf_id: int) -> str:
    """Return the serial by which the store knows a router's certificate, empty where it is not this router's."""
    for name in alternatives_of(certificate):
        if isinstance(name, x509.UniformResourceIdentifier):
            prefix, _, serial = name.value.rpartition(":")
            return serial if prefix == f"{URI_PREFIX}:{vrf_id}" else ""
    return ""
