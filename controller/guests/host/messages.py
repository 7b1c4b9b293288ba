"""What vr-controller may ask of vr-host, and nothing else: JSON lines, one request, one reply, matched by their id.

    start     make a guest as it is declared, or bring one that runs to it
    stop, delete
    status, look_after, last_words
    check     would a guest start with this text?

A request names a router by number and name, and says what is declared of it. It says no path of the host but a
machine's image, no user, no program: those are for vr-host to derive (`server.py`). All of it is checked as an
operator's document is, because who has taken over the controller could write it.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from controller.events.untrusted_text import printable
from controller.model import MAX_ROUTERS, GuestKind, RouteSource, Suite
from controller.spec.document import IMAGE, MAX_MEMORY_MIB, MAX_VCPUS, NAME, Address, InterfaceName

MAX_LINE_BYTES = 32 << 20
"""Of a request or reply; a document has 1 MiB, the files that come with it 4 (controller/api/app.py)."""

MAX_INTERFACES = 65_536
"""Of a router, and addresses of one of them: what a quota goes up to (controller/spec/document.py)."""

MAX_PEM = 16 << 10
MAX_ERROR = 200
Pem = Annotated[str, Field(max_length=MAX_PEM)]
_ROUTER = f"{NAME.removesuffix('$')}/{NAME.removeprefix('^')}"


def told(problem: ValidationError) -> str:
    """Say in a line what is wrong with a message, without a word of what it said."""
    first = problem.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(map(str, first["loc"]))
    return printable(f"{where}: {first['msg']}", MAX_ERROR)


class Message(BaseModel):
    """Exactly these fields, of exactly these types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Interface(Message):
    """An interface as the guest is to have it."""

    name: InterfaceName
    mac: Annotated[str, Field(pattern=r"^[0-9a-f]{12}$")]
    mtu: Annotated[int, Field(ge=68, le=9216)]
    addresses: Annotated[list[Address], Field(max_length=MAX_INTERFACES)]
    admin_up: bool


class Identity(Message):
    """A router's certificate, its key and whom it is to trust, in PEM."""

    cert: Pem
    key: Pem
    ca: Pem


class Guest(Message):
    """Which guest is meant, and what its state is judged by."""

    vrf_id: Annotated[int, Field(ge=1, le=MAX_ROUTERS)]
    router: Annotated[str, Field(pattern=_ROUTER)]
    suite: Suite
    kind: GuestKind
    memory_mib: Annotated[int, Field(ge=0, le=MAX_MEMORY_MIB)]


class Declared(Guest):
    """A guest as it is declared, without what comes from the controller's store."""

    text: Annotated[str, Field(max_length=MAX_LINE_BYTES)]
    vcpus: Annotated[int, Field(ge=0, le=MAX_VCPUS)]
    image: Annotated[str, Field(pattern=rf"^$|{IMAGE}")]


class Wanted(Declared):
    """A guest as it is to run."""

    source: RouteSource
    hold_time_s: Annotated[int, Field(ge=1, le=86_400)]
    interfaces: Annotated[list[Interface], Field(max_length=MAX_INTERFACES)]
    identity: Identity


class Start(Message):
    """Make a guest, or bring one that runs to what is declared."""

    op: Literal["start"] = "start"
    guest: Wanted


class Check(Message):
    """Tell whether a guest could start; nothing is changed."""

    op: Literal["check"] = "check"
    guest: Declared


class Ask(Message):
    """End a guest, or say something of it."""

    op: Literal["stop", "delete", "status", "look_after", "last_words"]
    guest: Guest


class Request(Message):
    """One line to vr-host."""

    id: Annotated[int, Field(ge=0)]
    ask: Annotated[Start | Check | Ask, Field(discriminator="op")]


class Status(Message):
    """`GuestStatus`."""

    running: bool
    pid: int
    daemons: dict[str, str]
    restarts: int


class Reply(Message):
    """One line from vr-host: an error, or what was asked for."""

    id: int
    error: str = ""
    lines: list[str] = []
    text: str = ""  # of look_after the trouble, of last_words these
    status: Status | None = None
