"""Whether anybody still reads the pipe that standard output may be."""

import errno
import os
import select

_STANDARD_OUTPUT = 1


def is_gone(limit_s: float) -> bool:
    """Wait for so long, or until standard output is a pipe without a reader; tell whether it is."""
    reader = select.poll()
    reader.register(_STANDARD_OUTPUT, 0)  # POLLERR is reported unasked
    return bool(reader.poll(limit_s * 1000))


def wait_for(descriptor: int) -> None:
    """Wait until there is something to read there; BrokenPipeError once nobody would see it."""
    either = select.poll()
    either.register(descriptor, select.POLLIN)
    either.register(_STANDARD_OUTPUT, 0)
    if any(ready == _STANDARD_OUTPUT for ready, _ in either.poll()):
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
