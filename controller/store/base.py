"""The port of a store: what the controller must remember when everything else is gone.

Routes are not stored: they are relearned from the guests and read back from the planes.
"""

from collections.abc import Sequence
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


class Store(Protocol):
    """One writer's durable memory. Every method is one transaction: after `kill -9` it happened or it did not.

    StoreError where the state directory cannot be used.
    """

    def load(self) -> Snapshot:
        """Read everything."""

    def commit(self, state: State, ids: Ids, holds: Sequence[Hold], tombstones: Sequence[Tombstone]) -> None:
        """Replace the declared state, the issued ids, and add holds and tombstones."""

    def release(self, vrf_id: int) -> None:
        """Forget the holds of a router: its plane confirmed that what it gave up is gone."""

    def mark_clean(self, vrf_id: int, *, plane: bool = False, guest: bool = False) -> None:
        """Note that the plane or the guest of a deleted router is clean; forget the router when both are."""

    def add_certificate(self, certificate: Certificate) -> None:
        """Remember a certificate that was issued."""

    def revoke_certificates(self, vrf_id: int) -> None:
        """Revoke every certificate of a router."""

    def find_certificate(self, serial: str) -> Certificate | None:
        """Return the certificate with this serial, if it was issued here."""

    def backup(self, path: Path) -> None:
        """Write a consistent snapshot to a new file."""

    def close(self) -> None:
        """Close the store; it is not used afterwards."""
