"""Commands for certificates: plane certificate, plane revoke, pki."""

from pathlib import Path
from typing import Annotated, Any

import typer

from controller.errors import SplitplaneError
from controller.vrctl import output
from controller.vrctl.client import path_of
from controller.vrctl.output import Format
from controller.vrctl.shell import Output, client, pki_app, plane_app

Plane = Annotated[str, typer.Argument(metavar="NAME")]


@plane_app.command("certificate")
def plane_certificate(
    name: Plane,
    directory: Annotated[
        Path, typer.Option("-d", "--directory", exists=True, file_okay=False, help="where to write the three files")
    ] = Path(),
    names: Annotated[
        list[str] | None,
        typer.Option("--name", metavar="DNS|IP", help="another name or address of the device; repeatable"),
    ] = None,
    renew: Annotated[
        bool, typer.Option("--renew/--no-renew", help="have the controller renew the files where they are")
    ] = True,
) -> None:
    """Issue key.pem, cert.pem and ca.pem for the device of a plane, as a server and as a client of TLS."""
    from controller.pki.files import write_together

    kept = str(directory.absolute()) if renew else ""
    issued = client().call("POST", path_of("planes", name, "certificate"), {"names": names or [], "directory": kept})
    # The certificate first, as in a renewal: of what is cut short the controller finishes what has a key.
    files = {"cert.pem": issued["certificate"], "key.pem": issued["key"], "ca.pem": issued["ca"]}
    try:
        write_together(directory, {file: content.encode() for file, content in files.items()}, sync=True)
    except OSError as problem:
        raise SplitplaneError(f"{problem.filename or directory}: {problem.strerror}; nothing was written") from None


@plane_app.command("revoke")
def plane_revoke(
    name: Plane,
    serial: Annotated[str, typer.Option("--serial", help="only this one, of vrctl get certificates")] = "",
    form: Output = Format.TABLE,
) -> None:
    """Refuse the certificates of a plane from now on; what is connected with one is cut."""
    answer = client().call("POST", path_of("planes", name, "revoke"), {"serial": serial})
    if form is not Format.TABLE:
        output.write_value(answer, form)
        return
    for one in answer["revoked"]:
        print("revoke certificate", one)


@pki_app.command("rotate")
def pki_rotate(form: Output = Format.TABLE) -> None:
    """Make new certificate authorities; those before stay trusted until `vrctl pki retire`."""
    _show(client().call("POST", path_of("pki", "rotate"), {}), form)


@pki_app.command("retire")
def pki_retire(
    force: Annotated[bool, typer.Option("--force", help="also where that locks a plane or a router out")] = False,
    form: Output = Format.TABLE,
) -> None:
    """Trust the certificate authorities before the last rotation no more."""
    _show(client().call("POST", path_of("pki", "retire", force=force), {}), form)


def _show(answer: dict[str, Any], form: Format) -> None:
    if form is not Format.TABLE:
        output.write_value(answer, form)
    else:
        for line in answer["authorities"]:
            print(line)
    for line in answer["waiting"]:
        output.warn(line)
