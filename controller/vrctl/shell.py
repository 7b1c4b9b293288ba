"""What all commands of vrctl share: the application, its options, and the controller they ask."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from controller.errors import NoSuch
from controller.vrctl.client import Client, Refused, Unreachable, socket_path
from controller.vrctl.output import Format

FAILED, WRONG_USAGE, UNREACHABLE, INTERRUPTED = 1, 2, 3, 130
"""Exit status beside 0."""

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Manage the tenants, routers and planes of a Splitplane controller.",
)
delete_app = typer.Typer(
    invoke_without_command=True, rich_markup_mode=None, help="Delete what a file or a name names."
)
plane_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Attach and detach planes, and their certificates."
)
pki_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Replace the certificate authorities.")
app.add_typer(delete_app, name="delete")
app.add_typer(plane_app, name="plane")
app.add_typer(pki_app, name="pki")


@dataclass
class _Session:
    """What the options before the command say."""

    client: Client


_session = _Session(Client(socket_path(None)))


def client() -> Client:
    """Return the client of the controller that the options name."""
    return _session.client


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"vrctl {version('splitplane')}")
        raise typer.Exit


@app.callback()
def _options(
    socket: Annotated[
        Path | None,
        # What cannot be read is no wrong usage: who connects says why.
        typer.Option(help="the controller's socket", envvar="SPLITPLANE_SOCKET", show_envvar=True, readable=False),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", help="show the version and exit", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    _session.client = Client(socket_path(socket))


def complete_router(incomplete: str) -> list[str]:
    """Return the routers whose names begin so, for shell completion; none where no controller answers."""
    try:
        names = [str(view["router"]) for view in client().get("routers")]
    except (Unreachable, Refused):
        return []
    return [name for name in names if name.startswith(incomplete)]


Output = Annotated[Format, typer.Option("-o", "--output", help="how to print")]
File = Annotated[Path, typer.Option("-f", "--file", help="YAML file, '-' for standard input")]
Router = Annotated[str, typer.Argument(help="tenant/router, or router", autocompletion=complete_router)]


def router_path(name: str) -> tuple[str, str, str]:
    """Return the path of a router in the API, looked up where the tenant is left out. NoSuch where it is none."""
    full_name = name if "/" in name else str(client().get("find", name)["router"])
    tenant, _, router = full_name.partition("/")
    if not tenant or not router or "/" in router:
        raise NoSuch("router", full_name, "see vrctl get routers")
    return "routers", tenant, router
