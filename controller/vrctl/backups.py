"""Commands backup and restore."""

from pathlib import Path
from typing import Annotated

import typer

from controller.errors import SplitplaneError
from controller.vrctl.client import path_of
from controller.vrctl.shell import app, client


@app.command()
def backup(file: Annotated[Path, typer.Argument(metavar="FILE", help="a new file")]) -> None:
    """Write the declared state and the certificate authority to one file; keep it secret."""
    from controller.vrctl.files import write_private

    size = write_private(file, client().pieces("POST", path_of("backup")))
    print(f"{file}: {size} octets")


@app.command()
def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="a file that backup wrote")],
    force: Annotated[bool, typer.Option("--force", help="replace a state that is not empty")] = False,
) -> None:
    """Replace the state by a backup; the controller restarts, planes and guests go on."""
    try:
        with file.open("rb") as opened:
            answer = client().send_file(path_of("restore", force=force), opened)
    except OSError as problem:
        raise SplitplaneError(f"{file}: {problem.strerror}; give the file that vrctl backup wrote") from None
    print(f"restored: {answer['restored']}")
