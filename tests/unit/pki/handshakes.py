"""Real TLS handshakes in memory, and clocks, for the tests of certificates."""

import resource
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import NamedTemporaryFile

ROUNDS = 8


class Clock:
    """This host's clock, put forward or back."""

    def __init__(self, off: timedelta = timedelta()) -> None:
        self.off = off

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.off


def server(key: bytes, certificate: bytes, trusted: bytes) -> ssl.SSLContext:
    """A server that wants a certificate of its clients."""
    return _context(ssl.PROTOCOL_TLS_SERVER, key, certificate, trusted)


def client(key: bytes, certificate: bytes, trusted: bytes) -> ssl.SSLContext:
    """A client that looks at the server's name."""
    return _context(ssl.PROTOCOL_TLS_CLIENT, key, certificate, trusted)


def identity(directory: Path) -> tuple[bytes, bytes, bytes]:
    """Key, certificate and what is trusted, of a directory with the three files."""
    key, certificate, trusted = ((directory / f"{name}.pem").read_bytes() for name in ("key", "cert", "ca"))
    return key, certificate, trusted


def shake(there: ssl.SSLContext, here: ssl.SSLContext, name: str | None = "vr-controller") -> dict[str, object]:
    """Let a client talk to a server until both are done; returns the client's certificate as the server sees it.

    ssl.SSLError where one refuses the other.
    """
    here.check_hostname = name is not None
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = here.wrap_bio(down, up, server_hostname=name)
    other = there.wrap_bio(up, down, server_side=True)
    done: set[ssl.SSLObject] = set()
    for _ in range(ROUNDS):
        for side in (one, other):
            try:
                side.do_handshake()
                done.add(side)
            except ssl.SSLWantReadError:
                continue
    assert done == {one, other}
    return dict(other.getpeercert() or {})


@contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process grows: a write fails as on a disk that is full, but with EFBIG (setrlimit(2))."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def _context(kind: int, key: bytes, certificate: bytes, trusted: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(kind)
    context.verify_mode = ssl.CERT_REQUIRED
    with NamedTemporaryFile() as file:
        file.write(key + certificate)
        file.flush()
        context.load_cert_chain(file.name)
    context.load_verify_locations(cadata=trusted.decode())
    return context
