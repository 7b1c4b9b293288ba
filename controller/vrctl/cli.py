"""vrctl: the operator's command line.

Exit status: 0 done, 1 the thing failed (verify: they differ), 2 wrong usage, 3 no controller.
"""

import os
import sys
from typing import NoReturn

from controller.errors import SplitplaneError
from controller.vrctl import audit, backups, certificates, changes, listings, output
from controller.vrctl import move as moving
from controller.vrctl.client import Refused, Unreachable
from controller.vrctl.live import streams, top
from controller.vrctl.shell import FAILED, UNREACHABLE, app

COMMANDS = (changes, certificates, moving, listings, streams, top, audit, backups)
"""The modules whose import adds their commands to the application."""


def main(argv: list[str] | None = None) -> NoReturn:
    """Entry point."""
    status = 0
    try:
        app(argv)
    except Unreachable as problem:
        output.complain(str(problem))
        status = UNREACHABLE
    except (Refused, SplitplaneError) as problem:
        output.complain(str(problem))
        status = FAILED
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(status)


if __name__ == "__main__":
    main()
