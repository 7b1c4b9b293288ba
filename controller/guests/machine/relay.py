"""One connection of a machine's session link: between QEMU, which is our standard input, and the router's socket.

    relay.py DIRECTORY SOCKET

QEMU starts one for every connection to the session's address. At most four are let through at once: each holds the
lock of one of DIRECTORY/slot0…3 as long as it lives; what is turned away is counted by the length of
DIRECTORY/refused. Standard library only; whatever is written to standard output or error would reach the guest.
"""

import contextlib
import fcntl
import os
import select
import socket
import sys

SLOTS = 4
PIECE_BYTES = 64 << 10


def take_slot(directory: str) -> int | None:
    """Return the descriptor of a lock that is ours now; None where all are taken."""
    for number in range(SLOTS):
        slot = os.open(f"{directory}/slot{number}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(slot, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(slot)
        else:
            return slot
    return None


def count_refusal(directory: str) -> None:
    """Make the file that counts longer by one; its size has the bound of all files of this process."""
    with contextlib.suppress(OSError):
        counter = os.open(f"{directory}/refused", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        os.write(counter, b".")
        os.close(counter)


class Pipe:
    """One direction: holds at most one piece, and reads the next when it is written."""

    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
        self.source, self.sink = source, sink
        self.held = b""
        self.open = True

    def read(self) -> None:
        """Take a piece; the end of the source ends the sink's side too, once everything is written."""
        self.held = self.source.recv(PIECE_BYTES)
        if not self.held:
            self.open = False
            with contextlib.suppress(OSError):
                self.sink.shutdown(socket.SHUT_WR)

    def write(self) -> None:
        """Write as much as goes."""
        self.held = self.held[self.sink.send(self.held) :]


def relay(one: socket.socket, other: socket.socket) -> None:
    """Carry octets both ways until both directions have ended, or either side breaks."""
    pipes = (Pipe(one, other), Pipe(other, one))
    for end in (one, other):
        end.setblocking(False)
    while any(pipe.open for pipe in pipes):
        reading = {pipe.source: pipe for pipe in pipes if pipe.open and not pipe.held}
        writing = {pipe.sink: pipe for pipe in pipes if pipe.held}
        readable, writable, _ = select.select(list(reading), list(writing), [])
        try:
            for end in readable:
                reading[end].read()
            for end in writable:
                writing[end].write()
        except BlockingIOError:
            continue
        except OSError:
            return


def main() -> None:
    """Entry point; exit status 1 where the connection is turned away."""
    directory, path = sys.argv[1:]
    slot = take_slot(directory)
    if slot is None:
        count_refusal(directory)
        raise SystemExit(1)
    guest = socket.socket(fileno=os.dup(0))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as session:
        try:
            session.connect(path)
        except OSError:
            raise SystemExit(1) from None  # the controller is away; the VRC tries again
        relay(guest, session)


if __name__ == "__main__":
    main()
