"""What is asked of the operator API, and answered, in bodies and queries that are of it alone."""

from typing import Literal

from pydantic import BaseModel, Field

from controller.audit.log import MAX_ROWS, Action, Filter
from controller.pki.planes import MAX_NAMES

MAX_ARGUMENTS = 1024


class DocumentBody(BaseModel):
    """A document of apply: its text, the name to use in messages, and the FRR files it names."""

    source: str = Field(max_length=4096)
    text: str
    files: dict[str, str] = Field(default_factory=dict)


class ExecBody(BaseModel):
    """A command to run in a guest."""

    argv: list[str] = Field(min_length=1, max_length=MAX_ARGUMENTS)


class AuditQuery(BaseModel, extra="forbid"):
    """Which rows of the audit log to list; what is left out says nothing."""

    since: float | None = Field(None, allow_inf_nan=False, description="seconds since the epoch")
    user: str | None = Field(None, description="name or number, of the process or of who logged in")
    tenant: str | None = None
    kind: Literal["plane", "tenant", "slice", "router", "link"] | None = None
    name: str | None = None
    action: Action | None = None
    outcome: Literal["done", "failed", "refused", "unchanged", "unfinished"] | None = None
    limit: int = Field(1000, ge=1, le=MAX_ROWS, description="the last so many")

    def filter(self) -> Filter:
        """Return what the log takes."""
        return Filter(**self.model_dump(exclude={"limit"}))


class Move(BaseModel):
    """Where a router's routes are to be: hardware, software, auto, or a plane."""

    to: str = Field(max_length=255)


class Command(BaseModel):
    """The command that does it, in the namespaces of the controller."""

    argv: list[str]


class CertificateBody(BaseModel):
    """What a certificate of a plane is to say beside the plane's name: DNS names and IP addresses; and the directory
    of the controller's host where it is kept, and renewed by the controller."""

    names: list[str] = Field(default_factory=list, max_length=MAX_NAMES)
    directory: str = Field("", max_length=4096)


class RevokeBody(BaseModel):
    """The serial of one certificate, in hexadecimal; all of the plane where it is left out."""

    serial: str = Field("", max_length=64)


class Revoked(BaseModel):
    """The serials that are refused from now on."""

    revoked: list[str]


class PlaneIdentity(BaseModel):
    """What a plane needs for TLS, each as PEM."""

    key: str
    certificate: str
    ca: str


class About(BaseModel):
    """What answers here."""

    version: str
    protocol: int
