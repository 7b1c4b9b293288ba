"""An FPM server that only counts; runs in a guest in the place of the VRC, from its text, without any import of ours.

Prints when zebra connects, and how many BGP routes came when it has the wanted number and whenever more come, each
with the CLOCK_MONOTONIC nanosecond.
"""

import socket
import sys
import time

_RTM_NEWROUTE = 24
_RTPROT_BGP = 186


def count(server: socket.socket, wanted: int) -> None:
    """Serve one zebra until it has sent ``wanted`` BGP routes, then until it closes."""
    connection, _ = server.accept()
    seen, rest = 0, b""
    print(f"zebra at {seen} {time.monotonic_ns()}", flush=True)
    while received := connection.recv(1 << 18):
        buffer = rest + received
        at, size = 0, len(buffer)
        while at + 4 <= size:
            end = at + (buffer[at + 2] << 8 | buffer[at + 3])
            if end > size:
                break
            # FPM header 4, nlmsghdr 16 (type at 4), rtmsg 12 (protocol at 5)
            seen += buffer[at + 8] == _RTM_NEWROUTE and buffer[at + 25] == _RTPROT_BGP
            at = end
        rest = buffer[at:]
        if seen >= wanted:
            print(f"sink at {seen} {time.monotonic_ns()}", flush=True)
            wanted = seen + 1


def main() -> None:
    """Listen where zebra expects FPM."""
    with socket.create_server(("127.0.0.1", 2620)) as server:
        while True:
            count(server, int(sys.argv[1]))


main()
