"""Where things are that an attacker reaches."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self


@dataclass(frozen=True, slots=True)
class Target:
    """Where they are; a file has it for a program of its own."""

    router: str  # the hostile one, "tenant/router"
    socket: str
    identity: str
    openflow: tuple[str, int]
    p4runtime: str | None
    device_id: int
    api: str  # Unix sockets
    control: str | None
    guest: int  # first process of the hostile router's guest

    def write(self, path: Path) -> None:
        """Write it for `read`."""
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return what was written."""
        return cls(**json.loads(path.read_text()))
