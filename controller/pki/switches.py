"""The TLS context that OpenFlow switches meet: always with the controller's present certificate and revocations.

A listener has one context for as long as it listens. What it shows and believes changes meanwhile, so at each
handshake this one is exchanged for a new one where that is due. Revocations go in as lists of each authority
(RFC 5280, section 5) that are made here, in memory.
"""

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from controller.pki.authority import PKI
from controller.pki.planes import PlaneCertificates
from controller.pki.signing import Clock

LIST_LIFETIME = timedelta(days=1)
LIST_AGE = timedelta(hours=1)
"""A list of revocations is made again when it is so old."""


class SwitchContext:
    """Makes contexts for switches; ``context`` is the one to listen with."""

    def __init__(self, pki: PKI, planes: PlaneCertificates, clock: Clock) -> None:
        self._pki, self._planes, self._clock = pki, planes, clock
        self._made_at, self._made_of = clock(), self._state()
        self._present = self._make()
        self.context = self._make()
        self.context.sni_callback = self._exchange

    def _exchange(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._current()

    def _current(self) -> ssl.SSLContext:
        now, state = self._clock(), self._state()
        if state != self._made_of or abs(now - self._made_at) > LIST_AGE:
            self._present, self._made_at, self._made_of = self._make(), now, state
        return self._present

    def _state(self) -> tuple[object, ...]:
        return self._pki.generation, self._planes.version, self._pki.own()

    def _make(self) -> ssl.SSLContext:
        context = server_context()
        key, certificate = self._pki.own()
        with _path_of(key + certificate) as path:
            context.load_cert_chain(path)
        now, revoked = self._clock(), self._planes.revoked()
        lists = [signer.revocation_list(revoked, now, LIST_LIFETIME) for signer in self._pki.ca.signers]
        with _path_of(self._pki.ca_pem + b"".join(lists)) as path:
            context.load_verify_locations(path)
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        return context


def server_context() -> ssl.SSLContext:
    """Return a context for switches without any certificates yet: both sides show one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    context.options |= ssl.OP_NO_TICKET  # a session that is resumed shows no certificate
    context.num_tickets = 0
    return context


@contextmanager
def _path_of(content: bytes) -> Iterator[str]:
    """Yield a path with some content, which is on no disk."""
    descriptor = os.memfd_create("pem")
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
