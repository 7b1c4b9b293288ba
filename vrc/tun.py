"""Queues of multi-queue TAPs (Documentation/networking/tuntap of Linux): opened, detached, and their carrier set.

A TAP lives as long as one of its queues is open, and keeps link, carrier and addresses as long as it lives.
"""

import fcntl
import os
import struct

_TUN = "/dev/net/tun"
_TUNSETIFF, _TUNGETFEATURES, _TUNSETOFFLOAD = 0x400454CA, 0x800454CF, 0x400454D0
_TUNSETQUEUE, _TUNSETCARRIER = 0x400454D9, 0x400454E2
_IFF_TAP, _IFF_NO_CARRIER, _IFF_MULTI_QUEUE, _IFF_DETACH_QUEUE, _IFF_NO_PI = 0x2, 0x40, 0x100, 0x400, 0x1000
_IFREQ = struct.Struct("16sH22x")
_INT = struct.Struct("=i")


def open_queue(name: str, *, carrier: bool) -> int:
    """Attach a queue to a TAP, making the TAP where there is none, and return its file descriptor. OSError."""
    fd = os.open(_TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        features = struct.unpack("=I", fcntl.ioctl(fd, _TUNGETFEATURES, bytes(4)))[0]
        flags = _IFF_TAP | _IFF_NO_PI | _IFF_MULTI_QUEUE
        if not carrier:
            flags |= _IFF_NO_CARRIER & features  # else it would flap up for a moment
        fcntl.ioctl(fd, _TUNSETIFF, _IFREQ.pack(name.encode(), flags))
        fcntl.ioctl(fd, _TUNSETOFFLOAD, 0)  # frames come with their checksums filled in, one packet each
    except BaseException:
        os.close(fd)
        raise
    return fd


def detach_queue(name: str, fd: int) -> None:
    """Let a queue take no more packets; the TAP stays as long as it is open. OSError."""
    fcntl.ioctl(fd, _TUNSETQUEUE, _IFREQ.pack(name.encode(), _IFF_DETACH_QUEUE))


def set_carrier(fd: int, up: bool) -> None:
    """Set the carrier of the TAP that a queue belongs to. OSError."""
    fcntl.ioctl(fd, _TUNSETCARRIER, _INT.pack(up))
