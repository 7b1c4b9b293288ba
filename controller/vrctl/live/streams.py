"""Commands that stay: exec, console, logs, events --follow, capture."""

import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from controller.vrctl import output
from controller.vrctl.client import path_of
from controller.vrctl.output import Format
from controller.vrctl.shell import FAILED, INTERRUPTED, Output, Router, app, client, router_path


@app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def exec(
    router: Router, command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="e.g. -- vtysh")]
) -> None:
    """Run a command in a router's guest, such as vtysh; its exit status is ours."""
    from controller.vrctl.live.terminal import run_apart

    if command[0] == "--":
        command = command[1:]
    if not command or not command[0]:
        raise typer.BadParameter("give a command after --, such as vtysh")
    answer = client().call("POST", path_of(*router_path(router), "exec"), {"argv": command})
    _run(answer["argv"], run_apart)


def _run(command: list[str], how: Callable[[Sequence[str]], int]) -> NoReturn:
    """Run a command of the controller's in its namespaces; exits as it does."""
    from controller.vrctl.guest import command_for

    argv = command_for(client().controller_pid(), command)
    sys.stdout.flush()
    try:
        status = how(argv)
    except KeyboardInterrupt:
        status = INTERRUPTED
    except (FileNotFoundError, PermissionError) as problem:
        output.complain(f"{argv[0]}: {problem.strerror}; install util-linux, and run vrctl as root")
        status = FAILED
    raise typer.Exit(status)


@app.command()
def console(router: Router) -> None:
    """Connect this terminal with the console of a router's virtual machine; Ctrl-] ends it."""
    from controller.vrctl.live.terminal import run_apart

    _run(client().get(*router_path(router), "console")["argv"], run_apart)


@app.command()
def logs(
    router: Router,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="go on with what is to come")] = False,
) -> None:
    """Show what a router's guest says: its daemons and its VRC, or a virtual machine's console."""
    from controller.vrctl.live.terminal import show_log

    _run(client().get(*router_path(router), "logs", follow=follow)["argv"], show_log)


@app.command()
def events(
    follow: Annotated[bool, typer.Option("--follow", help="go on with those to come")] = False,
    since: Annotated[int, typer.Option(help="after this sequence number")] = 0,
    form: Output = Format.TABLE,
) -> None:
    """Show what happened: planes, sessions, refusals, repairs."""
    if not follow:
        rows = client().get("events", since=since)
        if form is not Format.TABLE:
            return output.write_value(rows, form)
        for row in rows:
            print(_event_line(row))
        return None
    return _print_followed(client().lines("GET", path_of("events", since=since, follow=True), follow=True), form)


def _print_followed(rows: Iterator[Any], form: Format) -> None:
    import json

    try:
        for row in rows:
            if form is Format.YAML:
                output.write_yaml([row])
            print(
                _event_line(row) if form is Format.TABLE else json.dumps(row) if form is Format.JSON else "", end=""
            )
            print("" if form is Format.YAML else "\n", end="", flush=True)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def _event_line(event: dict[str, Any]) -> str:
    from datetime import datetime

    stamp = datetime.fromtimestamp(event["time"]).strftime("%Y-%m-%d %H:%M:%S")
    return f"{stamp} {event['level']:<7} {event['kind']} {event['subject']}: {event['text']}"


@app.command()
def capture(
    router: Router,
    interface: Annotated[str | None, typer.Argument(metavar="[INTERFACE]", help="default: all")] = None,
    write: Annotated[Path | None, typer.Option("-w", "--write", metavar="FILE", help="write pcap to a file")] = None,
    count: Annotated[int, typer.Option("-c", "--count", min=0, help="stop after so many frames; 0: do not")] = 0,
) -> None:
    """Show what a plane punts from and a guest sends out of an interface; pcap into a file or a pipe.

    Transit packets are forwarded by the plane and are not seen here.
    """
    from controller.vrctl.files import append_all
    from controller.vrctl.live import frames

    target = path_of(*router_path(router), "capture", interface=interface)
    pieces = client().pieces("GET", target, follow=True, shown=write is None)
    if count:
        pieces = islice(frames.head_and_records(pieces), 1 + count)
    try:
        if write is not None:
            append_all(write, pieces)
        elif sys.stdout.isatty():
            for time, frame in frames.records(pieces):
                print(frames.summary(time, frame), flush=True)
        else:
            for piece in pieces:
                sys.stdout.buffer.write(piece)
                sys.stdout.buffer.flush()
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
