"""vr-host: makes, watches and ends guests for a controller that may not, until SIGTERM; guests run on."""

import argparse
import asyncio
import contextlib
import logging
import os
import pwd
import signal
import sys
from pathlib import Path

from controller.errors import SplitplaneError
from controller.garbage import bound_pauses
from controller.guests.host.options import add_options, make_drivers
from controller.guests.host.server import HostServer
from controller.notify import keep_notifying, notify_service

OWN = Path("/run/splitplane-host")
SOCKET = "host.sock"


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(prog="vr-host", description="Makes the guests of Splitplane's controller.")
    add_options(parser)
    own = f"directory of its socket, {SOCKET} (default: %(default)s)"
    parser.add_argument("--own", type=Path, default=OWN, metavar="DIRECTORY", help=own)
    user = "whose requests it takes, besides root's: the controller's user"
    parser.add_argument("--user", type=user_of, default=None, metavar="NAME", help=user)
    return parser.parse_args(argv)


def user_of(name: str) -> pwd.struct_passwd:
    """Return what is known of a user; ArgumentTypeError where there is none."""
    try:
        return pwd.getpwnam(name)
    except KeyError:
        remedy = f"useradd --system --shell /usr/sbin/nologin {name}"
        raise argparse.ArgumentTypeError(f"there is no user {name}; {remedy}") from None


async def serve(options: argparse.Namespace) -> None:
    """Serve until SIGTERM."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    own: Path = options.own.absolute()
    own.mkdir(mode=0o711, parents=True, exist_ok=True)
    (options.state / "guests").mkdir(mode=0o700, parents=True, exist_ok=True)
    known = make_drivers(options)
    asking: pwd.struct_passwd | None = options.user
    users = {os.geteuid(), asking.pw_uid if asking is not None else os.geteuid()}
    server = HostServer(
        own / SOCKET,
        known.drivers,
        known.checks,
        options.state.absolute(),
        options.run.absolute(),
        users,
        asking.pw_gid if asking is not None else -1,
    )
    await server.start()
    notify_service("READY=1")
    telling = asyncio.create_task(keep_notifying(lambda: f"{server.done} requests done, {server.refused} refused"))
    try:
        await stop.wait()
    finally:
        notify_service("STOPPING=1")
        telling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await telling
        await server.close()


def main() -> None:
    """Entry point: exit status 1 with one line where it cannot start."""
    options = parse_arguments()
    level = getattr(logging, options.log_level.upper())
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr)
    bound_pauses()
    try:
        asyncio.run(serve(options))
    except SplitplaneError as problem:
        sys.exit(f"vr-host: {problem}")
    except OSError as problem:
        sys.exit(f"vr-host: {problem.filename}: {problem.strerror}")


if __name__ == "__main__":
    main()
