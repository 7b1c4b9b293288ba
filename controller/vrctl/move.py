"""`vrctl move`: where a router's routes are to be, and waiting until they are there."""

import shutil
import sys
import time
from collections.abc import Callable
from typing import Annotated, Any

import typer

from controller.vrctl import output
from controller.vrctl.changes import show_outcome
from controller.vrctl.client import Refused, Unreachable, path_of
from controller.vrctl.output import Format
from controller.vrctl.shell import INTERRUPTED, Output, Router, app, client, router_path

EVERY_S = 0.2
"""The controller is asked so often; it answers from memory."""

LINE_EVERY_S = 5.0
"""How often progress is a line of its own, where stderr is no terminal."""

_AWAY = ("no-plane", "starting")
"""States of routers in which nothing can be said of their routes."""


@app.command()
def move(
    router: Router,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="PLACE",
            help="hardware, software, auto (in hardware as far as there is room), or the name of the plane or of its "
            "fallback",
            autocompletion=lambda: ["hardware", "software", "auto"],
        ),
    ] = None,
    abort: Annotated[bool, typer.Option("--abort", help="take the routes back where they came from")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="until the routes are there")] = True,
    form: Output = Format.TABLE,
) -> None:
    """Move the routes of a router between a plane and its fallback, without losing a packet.

    Shows how far it is, and what holds at the end. Ctrl-C ends the waiting, not the move.
    """
    if (to is None) is not abort:
        raise typer.BadParameter("give either --to with a place or --abort")
    path = router_path(router)
    name = "/".join(path[1:])
    try:
        method, body = ("DELETE", None) if abort else ("POST", {"to": to})
        outcome = client().call(method, path_of(*path, "move"), body)
        if form is Format.TABLE or not wait:
            show_outcome(outcome, form)
        if wait:
            _wait(path, name)
            now = client().get(*path, "placement")
            print(summary(now)) if form is Format.TABLE else show_outcome(outcome | {"now": now}, form)
    except KeyboardInterrupt:
        more = "vrctl get routers shows how far it is" if abort else f"vrctl move {name} --abort takes it back"
        output.complain(f"{name}: the move goes on; {more}")
        raise typer.Exit(INTERRUPTED) from None


def summary(now: dict[str, Any]) -> str:
    """Return where the routes of a router are, in one line."""
    routes, hardware = now["routes"], now["hardware"]
    place, there = ("software", routes - hardware) if now["placement"] == "software" else ("hardware", hardware)
    whole = f"{there:,} of {routes:,} routes in {place}"
    return f"{now['router']}: " + (f"{whole}; {now['reason']}" if there < routes and now["reason"] else whole)


def _wait(path: tuple[str, ...], name: str) -> None:
    """Return once no move of a router is under way; Refused where it is placed elsewhere meanwhile."""
    line, placement = _Line(), ""
    try:
        while True:
            try:
                view = client().get(*path)
            except Unreachable as problem:
                line.show(f"{problem}; waiting for it")
            else:
                if placement and view["placement"] not in ("", placement):
                    raise Refused(
                        "Superseded",
                        f"{name} was moved again, to {view['placement']}: vrctl get routers shows how far it is",
                    )
                placement = view["placement"] or placement
                if view["move"] is None and view["state"] not in _AWAY:
                    return
                line.show(f"{name}: {_progress(view)}")
            time.sleep(EVERY_S)
    finally:
        line.close()


def _progress(view: dict[str, Any]) -> str:
    move, reason = view["move"], view["reason"]
    if view["state"] in _AWAY or move is None:
        return f"waits: {reason or 'the controller is starting'}"
    done = f"{move['done']:,} of {move['total']:,} entries moved, " if move["total"] else ""
    return f"{done}on its way to {move['to']}" + (f" ({reason})" if reason else "")


class _Line:
    """One line that is refreshed on a terminal; elsewhere a line where it says something new, now and then."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._terminal = sys.stderr.isatty()
        self._shown, self._due = "", clock() + LINE_EVERY_S

    def show(self, text: str) -> None:
        """Show how far it is."""
        if self._terminal:
            sys.stderr.write(f"\r{text[: shutil.get_terminal_size().columns - 1]}\x1b[K")
            sys.stderr.flush()
            self._shown = text
        elif self._clock() >= self._due and text != self._shown:
            print(text, file=sys.stderr, flush=True)
            self._shown, self._due = text, self._clock() + LINE_EVERY_S

    def close(self) -> None:
        """Leave the terminal's line to what comes next."""
        if self._terminal and self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
