"""Commands that change what is declared: apply, diff, delete, plane attach and detach."""

import contextlib
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from controller.vrctl import output
from controller.vrctl.client import path_of
from controller.vrctl.output import Format
from controller.vrctl.shell import (
    FAILED,
    INTERRUPTED,
    File,
    Output,
    Router,
    app,
    client,
    delete_app,
    plane_app,
    router_path,
)

_NUMBER = re.compile("[0-9]{1,20}")
"""Of a port. The controller says which are too large; Python itself does not take thousands of digits."""


def _follow_document(resource: str, file: Path, form: Format) -> None:
    from controller.vrctl.documents import read_document
    from controller.vrctl.progress import follow

    document = read_document(file)
    try:
        outcome = follow(client().lines("POST", path_of(resource), document))
    except KeyboardInterrupt:
        output.complain("a change that has begun goes on; vrctl audit shows what became of it")
        raise typer.Exit(INTERRUPTED) from None
    show_outcome(outcome, form)


def show_outcome(outcome: dict[str, Any], form: Format) -> None:
    """Print what a change did and what waits; exits where something failed."""
    try:
        if form is Format.TABLE:
            _show_changes(outcome["changes"])
        else:
            output.write_value(outcome, form)
    finally:  # standard output may have no reader, or no room
        for line in (*outcome["remarks"], *outcome["waiting"]):
            output.warn(line)
        for line in outcome["failed"]:
            output.complain(line)
        if outcome["failed"]:
            raise typer.Exit(FAILED)


def _show_changes(changes: list[dict[str, Any]]) -> None:
    if not changes:
        print("nothing to change")
    for change in changes:
        print(change["verb"], change["kind"], change["name"])
        for line in change["details"]:
            print("   ", line)


@app.command()
def apply(file: File, form: Output = Format.TABLE) -> None:
    """Make what a file names exactly as it declares; what it does not name stays."""
    _follow_document("apply", file, form)


@app.command()
def diff(file: File, form: Output = Format.TABLE) -> None:
    """Show what apply would change; nothing is changed."""
    from controller.vrctl.documents import read_document

    changes = client().call("POST", path_of("diff"), read_document(file))
    if form is Format.TABLE:
        _show_changes(changes)
    else:
        output.write_value(changes, form)


@delete_app.callback()
def _delete(
    context: typer.Context,
    file: Annotated[Path | None, typer.Option("-f", "--file", help="delete what this file names")] = None,
    form: Annotated[Format, typer.Option("-o", "--output", help="how to print, with -f")] = Format.TABLE,
) -> None:
    if (file is None) == (context.invoked_subcommand is None):
        raise typer.BadParameter("give either -f FILE or one of tenant, router, plane with a name")
    if file is not None:
        _follow_document("delete", file, form)
    elif form is not Format.TABLE:
        raise typer.BadParameter("give -o behind the name")


def _change(method: str, target: str, body: object = None, form: Format = Format.TABLE) -> None:
    show_outcome(client().call(method, target, body), form)


@delete_app.command("tenant")
def delete_tenant(name: Annotated[str, typer.Argument(metavar="NAME")], form: Output = Format.TABLE) -> None:
    """Delete a tenant with its slices and routers."""
    _change("DELETE", path_of("tenants", name), form=form)


@delete_app.command("router")
def delete_router(router: Router, form: Output = Format.TABLE) -> None:
    """Delete a router: its flows, its guest and its certificate."""
    _change("DELETE", path_of(*router_path(router)), form=form)


@delete_app.command("plane")
def delete_plane(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    force: Annotated[bool, typer.Option("--force", help="do not wait for what was deleted on it")] = False,
    form: Output = Format.TABLE,
) -> None:
    """Forget a plane that no tenant uses."""
    _change("DELETE", path_of("planes", name, force=force), form=form)


@plane_app.command("attach")
def plane_attach(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    datapath_id: Annotated[str | None, typer.Option(help="OpenFlow: hexadecimal, such as 0x1")] = None,
    address: Annotated[str | None, typer.Option(help="P4Runtime: HOST:PORT or unix:/PATH")] = None,
    device_id: Annotated[int | None, typer.Option(help="P4Runtime: 1 where left out")] = None,
    port: Annotated[
        list[str] | None, typer.Option(metavar="NAME=NUMBER[:DEVICE]", help="P4Runtime: a port; give all of them")
    ] = None,
    kind: Annotated[str | None, typer.Option(help="openflow, p4runtime (with --address) or fake")] = None,
    form: Output = Format.TABLE,
) -> None:
    """Use a plane: a new one by its datapath id or its address, or a detached one again."""
    number = None if datapath_id is None else _datapath_id(datapath_id)
    options = {"kind": kind, "datapath_id": number, "address": address, "device_id": device_id}
    _change("POST", path_of("planes", name, "attach"), options | {"ports": _ports(port or [])}, form)


def _datapath_id(text: str) -> int:
    with contextlib.suppress(ValueError):
        number = int(text.replace(":", ""), 16)
        if number.bit_length() <= 64:
            return number
    raise typer.BadParameter(f"{text!r} is no datapath id; write it as 0x1")


def _ports(options: list[str]) -> dict[str, object] | None:
    """Return ports given as "p1=1" or "p2=2:s1-eth2" as the API takes them."""
    found: dict[str, object] = {}
    for option in options:
        name, _, rest = option.partition("=")
        number, colon, device = rest.partition(":")
        if not name or not _NUMBER.fullmatch(number) or bool(colon) != bool(device):
            raise typer.BadParameter(f"{option!r} is no port; write it as p1=1 or p2=2:s1-eth2")
        if name in found:
            raise typer.BadParameter(f"port {name} is given twice")
        found[name] = {"number": int(number), "device": device} if device else int(number)
    return found or None


@plane_app.command("detach")
def plane_detach(name: Annotated[str, typer.Argument(metavar="NAME")], form: Output = Format.TABLE) -> None:
    """Stop using a plane; it goes on forwarding from what is installed."""
    _change("POST", path_of("planes", name, "detach"), {}, form)
