"""The port of a store: what the controller must remember when everything else is gone.

Routes are not stored: they are relearned from the guests and read back from the planes.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from controller.spec.state import Hold, Ids, State, Tombstone


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything stored, as of one moment."""

    state: State
    ids: Ids
    holds: tuple[Hold, ...] = ()
    tombstones: tuple[Tombstone, ...] = ()


@dataclass(frozen=True, slots=True)
class Certificate:
    """A router's certificate by its random serial."""

    serial: str
    vrf_id: int
    revoked: bool = False


@dataclass(frozen=True, slots=True)
class PlaneCertificate:
    """A certificate that was issued for a plane, by its X.509 serial number in hexadecimal."""

    serial: str
    plane: str
    pem: bytes
    directory: str = ""
    """Where its files were written, on this host; they are renewed there. Empty where nobody said."""
    revoked: bool = False


class Store(Protocol):
    """One writer's durable memory. Every method is one transaction: after `kill -9` it happened or it did not.

    Any thread may call it. What changes it waits for the disk, and for who changes it just now: that is for threads
    which nobody else needs, not for the event loop. StoreError where the state directory cannot be used.
    """

    def load(self) -> Snapshot:
        """Read everything."""

    def commit(self, state: State, ids: Ids, holds: Sequence[Hold], tombstones: Sequence[Tombstone]) -> None:
        """Replace the declared state, the issued ids, and add holds and tombstones."""

    def release(self, vrf_id: int) -> None:
        """Forget the holds of a router: its plane confirmed that what it gave up is gone."""

    def mark_clean(self, vrf_id: int, *, plane: bool = False, guest: bool = False) -> None:
        """Note that the plane or the guest of a deleted router is clean; forget the router when both are."""

    def add_certificates(self, certificates: Sequence[Certificate]) -> None:
        """Remember certificates that were issued to routers."""

    def valid_serials(self, vrf_ids: Collection[int]) -> dict[str, int]:
        """Return the serials of these routers' certificates that are not revoked, with the router of each."""

    def certified(self) -> set[int]:
        """Return the routers that have a certificate which is not revoked."""

    def revoke_certificates(self, vrf_id: int) -> None:
        """Revoke every certificate of a router."""

    def keep_certificates(self, serials: Mapping[int, str]) -> None:
        """Revoke all certificates of some routers, by vrf_id, but one of each."""

    def find_certificate(self, serial: str) -> Certificate | None:
        """Return the certificate with this serial, if it was issued here."""

    def plane_certificates(self) -> list[PlaneCertificate]:
        """Return the certificates of planes, those that were revoked too, oldest first."""

    def add_plane_certificate(self, certificate: PlaneCertificate) -> None:
        """Remember a certificate of a plane. No other one is renewed in its directory any more."""

    def revoke_plane_certificates(self, serials: Sequence[str]) -> None:
        """Revoke certificates of planes."""

    def forget_plane_certificates(self, serials: Sequence[str]) -> None:
        """Forget certificates of planes that have ended."""

    def backup(self, path: Path) -> None:
        """Write a consistent snapshot of what is committed to a new file."""

    def close(self) -> None:
        """Close the store; it is not used afterwards."""
