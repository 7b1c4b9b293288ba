"""The document of apply, as pydantic models: the source of docs/schema.json and of every check of a single value."""

import json
import re
from ipaddress import IPv4Interface, IPv4Network, IPv6Interface, ip_interface
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from controller.model import (
    SHARE_WHOLE,
    SHARED_QUOTAS,
    UNTAGGED,
    USUAL_PUNTS,
    GuestConfig,
    GuestKind,
    PlaneKind,
    RouteSource,
    Share,
    Suite,
)

MAX_VLAN = 4094
MAX_DATAPATH_ID = (1 << 64) - 1
MAX_DEVICE_ID = (1 << 64) - 1
MAX_PORT = 0xFFFFFEFF  # P4Runtime's SDN_PORT_MAX
RESERVED_INTERFACES = frozenset({"lo", "all", "default"})  # taken by the kernel, or by names under /proc/sys/net

RESERVED_DAEMONS = frozenset(
    {"vrc", "interfaces", "config", "kernel", "supervisor", "machine", "guest", "limits"}
)  # of a guest's states

NAME = r"^[a-z0-9][a-z0-9-]{0,30}$"
INTERFACE_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,14}$"
PORT_NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,62}$"
MAC = r"^([0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}$"
VLAN_RANGE = r"^(untagged|[0-9]{1,4}(-[0-9]{1,4})?)$"
SERVER_ADDRESS = r"^(unix:/.{1,106}|[A-Za-z0-9_.-]+:[0-9]{1,5}|\[[0-9A-Fa-f:.]+\]:[0-9]{1,5})$"
DEVICE_NAME = r"^[^\s/]{1,15}$"
MEMORY = r"^[1-9][0-9]{0,6}[MG]$"
PART = r"^[0-9]{1,3}(\.[0-9]{1,4})? ?%$"
IMAGE = r"^/[^\x00-\x1f]{1,1023}$"
PROGRAM = r"^/[^\x00-\x1f\x7f]{1,255}$"
WORD = r"^[^\x00-\x08\x0b-\x1f\x7f]{0,4096}$"
DAEMON_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,30}$"
FILE_NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$"
USER_NAME = r"^[a-z_][a-z0-9_-]{0,31}$"

MIN_MEMORY_MIB, MAX_MEMORY_MIB, DEFAULT_MEMORY_MIB = 128, 64 << 10, 256
MAX_VCPUS = 64
MAX_WEIGHT = 1000

PATTERN_WORDS = {
    NAME: "lower-case letters, digits and '-', at most 31 characters",
    INTERFACE_NAME: "letters, digits and '_.-', at most 15 characters (IFNAMSIZ)",
    PORT_NAME: "a port name as the plane reports it",
    MAC: "a MAC address such as '02:00:00:00:00:01' (quoted)",
    VLAN_RANGE: "a VLAN id, a range such as 200-210, or 'untagged'",
    SERVER_ADDRESS: "HOST:PORT, [IPV6]:PORT or unix:/PATH",
    DEVICE_NAME: "the name of a network interface, at most 15 characters (IFNAMSIZ)",
    MEMORY: "a size such as 256M or 2G",
    PART: "a part of the whole such as 10 % or 2.5 %",
    IMAGE: "the absolute path of an image's directory",
    PROGRAM: "the absolute path of a program",
    WORD: "a word without control characters, at most 4096 long",
    DAEMON_NAME: "letters, digits and '_.-', at most 31 characters",
    FILE_NAME: "the name of a file: letters, digits and '_.-', at most 63 characters",
    USER_NAME: "the name of a user",
}
"""What a pattern wants, in words."""


def parse_datapath_id(value: object) -> object:
    """Return a datapath id given as an integer or as hexadecimal text as an integer."""
    if isinstance(value, str):
        text = value.replace(":", "")
        if not re.fullmatch(r"(0[xX])?[0-9A-Fa-f]{1,16}", text):
            raise ValueError(f"{value!r} is no datapath id; write an integer or hexadecimal text such as '0x1'")
        return int(text, 16)
    return value


def parse_vlans(text: int | str) -> range:
    """Return the VLAN ids that one item of a port's list means; "untagged" is VLAN 0. ValueError where it is none."""
    if text == "untagged":
        return range(UNTAGGED, UNTAGGED + 1)
    first, _, last = str(text).partition("-")
    low, high = int(first), int(last or first)
    if not 1 <= low <= high <= MAX_VLAN:
        raise ValueError(f"{text!r} is no VLAN range; VLAN ids go from 1 to {MAX_VLAN}, or write 'untagged'")
    return range(low, high + 1)


def _vlan_item(item: int | str) -> int | str:
    parse_vlans(item)
    return item


def parse_mac(text: str) -> bytes:
    """Return the six octets of a MAC address written with colons."""
    return bytes.fromhex(text.replace(":", ""))


def _unicast_mac(text: str) -> str:
    octets = parse_mac(text)
    if octets[0] & 1 or not any(octets):
        raise ValueError(f"{text} is not a unicast MAC address")
    return text.lower()


def _interface_address(text: str) -> str:
    if "/" not in text:
        raise ValueError(f"{text} has no prefix length; write {text}/24 or the like")
    try:
        address = ip_interface(text)
    except ValueError:
        raise ValueError(f"{text!r} is no address with a prefix length such as 192.0.2.1/24") from None
    if "%" in text or address.is_multicast or address.is_unspecified or address.is_loopback:
        raise ValueError(f"{text} cannot be an interface's address")
    network = address.network
    ends = (network.network_address, network.broadcast_address)
    if isinstance(network, IPv4Network) and network.prefixlen < 31 and address.ip in ends:
        raise ValueError(f"{text} is the network or broadcast address of its subnet")
    if network.prefixlen == 0:
        raise ValueError(f"{text} makes the whole Internet directly connected")
    return str(address)


def _interface_name(name: str) -> str:
    if name in RESERVED_INTERFACES:
        raise ValueError(f"interface name {name!r} is taken by the kernel")
    return name


def _server_address(text: str) -> str:
    if not text.startswith("unix:") and not 1 <= int(text.rpartition(":")[2]) <= 65_535:
        raise ValueError(f"{text!r} has no port from 1 to 65535")
    return text


def parse_memory(text: str) -> int:
    """Return what 256M or 2G means, in MiB."""
    return int(text[:-1]) << (10 if text.endswith("G") else 0)


def _memory(text: str) -> str:
    if not MIN_MEMORY_MIB <= parse_memory(text) <= MAX_MEMORY_MIB:
        raise ValueError(f"{text} is no size for a guest; memory goes from 128M to 64G")
    return text


def parse_part(text: str) -> int:
    """Return what 10 % means, in millionths."""
    return round(float(text.rstrip("% ")) * SHARE_WHOLE / 100)


def _part(text: str) -> str:
    if not 0 < parse_part(text) <= SHARE_WHOLE:
        raise ValueError(f"{text} is no part of the whole; give more than 0 % and at most 100 %, or leave it out")
    return text


def subnet(text: str) -> IPv4Interface | IPv6Interface:
    """Return a checked address with its subnet."""
    return ip_interface(text)


Name = Annotated[str, Field(pattern=NAME)]
InterfaceName = Annotated[str, Field(pattern=INTERFACE_NAME), AfterValidator(_interface_name)]
PortName = Annotated[str, Field(pattern=PORT_NAME)]
Mac = Annotated[str, Field(pattern=MAC), AfterValidator(_unicast_mac)]
Address = Annotated[str, Field(description="with prefix length"), AfterValidator(_interface_address)]
Part = Annotated[str, Field(pattern=PART), AfterValidator(_part)]
Vlan = Annotated[int, Field(ge=1, le=MAX_VLAN)]
VlanItem = Annotated[Vlan | Annotated[str, Field(pattern=VLAN_RANGE)], AfterValidator(_vlan_item)]
DatapathId = Annotated[
    int,
    BeforeValidator(parse_datapath_id, json_schema_input_type=int | str),
    Field(ge=1, le=MAX_DATAPATH_ID),
]


ServerAddress = Annotated[str, Field(pattern=SERVER_ADDRESS), AfterValidator(_server_address)]
DeviceId = Annotated[int, Field(ge=0, le=MAX_DEVICE_ID)]
PortNumber = Annotated[int, Field(ge=1, le=MAX_PORT)]
PlaneKindName = Literal["openflow", "p4runtime", "fake"]


class Section(BaseModel):
    """A mapping of the document: unknown keys are errors and nothing is converted silently."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class PlanePortSection(Section):
    """A port of a P4Runtime device."""

    number: PortNumber
    device: Annotated[str, Field(pattern=DEVICE_NAME)] | None = Field(
        default=None, description="interface of the controller's host whose carrier is the port's state"
    )


class FallbackSection(Section):
    """The plane that routes what this one has no room for, and the link to it."""

    plane: Name
    port: PortName = Field(description="this plane's port of the link")
    peer_port: PortName = Field(description="the other plane's port of the link")


class CapacitySection(Section):
    """How many routes a plane has room for; as many as it says where left out."""

    ipv4_route: int | None = Field(default=None, ge=1, le=16_000_000)
    ipv6_route: int | None = Field(default=None, ge=1, le=16_000_000)


class PlaneSection(Section):
    """A programmable forwarder that tenants share. The keys after `kind` belong to one kind each."""

    name: Name
    kind: PlaneKindName = Field(default="openflow", description="'fake' is in memory; only our tests connect it")
    datapath_id: DatapathId | None = Field(default=None, description="OpenFlow: integer or hexadecimal text")
    address: ServerAddress | None = Field(default=None, description="P4Runtime: HOST:PORT or unix:/PATH")
    device_id: DeviceId | None = Field(default=None, description="P4Runtime: 1 where left out")
    ports: dict[PortName, PortNumber | PlanePortSection] | None = Field(
        default=None, description="P4Runtime: port → its number, or number and device"
    )
    fallback: FallbackSection | None = None
    capacity: CapacitySection | None = None
    shared_meters: list[list[Name]] | None = Field(default=None, description="OpenFlow: punt classes that share one")

    @property
    def plane_kind(self) -> PlaneKind:
        """The kind in the model's terms."""
        return PlaneKind(self.kind)


class PlaneOptions(Section):
    """What attaching a plane may say of it; what is left out stays as it is."""

    kind: PlaneKindName | None = None
    datapath_id: DatapathId | None = None
    address: ServerAddress | None = None
    device_id: DeviceId | None = None
    ports: dict[PortName, PortNumber | PlanePortSection] | None = None


class PuntRatesSection(Section):
    """Packets per second that each router of the slice may punt, by punt class."""

    bfd: int = Field(default=USUAL_PUNTS.bfd, ge=1, le=1_000_000)
    routing: int = Field(
        default=USUAL_PUNTS.routing, ge=1, le=1_000_000, description="OSPF, IS-IS, RIP, Babel, EIGRP, VRRP"
    )
    bgp: int = Field(default=USUAL_PUNTS.bgp, ge=1, le=1_000_000)
    arp: int = Field(default=USUAL_PUNTS.arp, ge=1, le=1_000_000, description="ARP and neighbor discovery")
    icmp: int = Field(default=USUAL_PUNTS.icmp, ge=1, le=1_000_000, description="to the router itself")
    local: int = Field(default=USUAL_PUNTS.local, ge=1, le=1_000_000, description="else to the router itself")
    glean: int = Field(default=USUAL_PUNTS.glean, ge=1, le=1_000_000)
    ttl: int = Field(default=USUAL_PUNTS.ttl, ge=1, le=1_000_000)
    mtu: int = Field(default=USUAL_PUNTS.mtu, ge=1, le=1_000_000)
    unreachable: int = Field(default=USUAL_PUNTS.unreachable, ge=1, le=1_000_000)
    options: int = Field(default=USUAL_PUNTS.options, ge=1, le=1_000_000)


class QuotaSection(Section):
    """Hard limits of one slice, reserved for it; an equal part of what is unreserved where left out."""

    ipv4_routes: int | None = Field(default=None, ge=0, le=16_000_000)
    ipv6_routes: int | None = Field(default=None, ge=0, le=16_000_000)
    neighbors: int = Field(default=1024, ge=1, le=65_536)
    nexthops: int | None = Field(default=None, ge=1, le=1_000_000)
    groups: int | None = Field(default=None, ge=0, le=1_000_000)
    sets: int = Field(default=65_536, ge=1, le=1_000_000, description="nexthop sets that VRCs name")
    members: int = Field(default=524_288, ge=1, le=16_000_000, description="of these sets")
    interfaces: int | None = Field(default=None, ge=0, le=65_536)
    memory: int | None = Field(
        default=None, ge=65_536, le=1 << 40, description="octets of the controller, of its --memory"
    )
    hardware_ipv4_routes: int | None = Field(
        default=None,
        ge=0,
        le=16_000_000,
        description="entries in hardware, on a plane with a fallback, which routes the rest",
    )
    hardware_ipv6_routes: int | None = Field(default=None, ge=0, le=16_000_000)
    punts_per_s: PuntRatesSection = PuntRatesSection()


class ShareSection(Section):
    """What a slice, or a router, gets of each core and of each link that are too small for all."""

    weight: int = Field(default=1, ge=1, le=MAX_WEIGHT, description="its part beside the weights of the others")
    guarantee: Part | None = Field(default=None, description="of the whole: what it gets at least")
    ceiling: Part | None = Field(default=None, description="of the whole: what it gets at most, whatever is left")

    @model_validator(mode="after")
    def _has_room(self) -> "ShareSection":
        if self.config.ceiling and self.config.ceiling < self.config.guarantee:
            raise ValueError(
                f"its ceiling of {self.ceiling} is below its guarantee of {self.guarantee}; "
                "raise the ceiling, or lower the guarantee"
            )
        return self

    @property
    def config(self) -> Share:
        """The share in the model's terms."""
        guarantee, ceiling = (0 if part is None else parse_part(part) for part in (self.guarantee, self.ceiling))
        return Share(self.weight, guarantee, ceiling)


class SliceSection(Section):
    """A tenant's part of one plane."""

    plane: Name
    ports: dict[PortName, list[VlanItem]] = Field(
        default_factory=dict, description="port → VLAN ids, ranges such as 200-210, or 'untagged'"
    )
    quota: QuotaSection = QuotaSection()
    overcommit: bool = Field(
        default=False, description="its quotas are limits of what it shares with others that say so, not reserved"
    )
    share: ShareSection = ShareSection()

    @property
    def said(self) -> frozenset[str]:
        """The quotas that are given and would otherwise be a part of what is unreserved."""
        return frozenset(name for name in SHARED_QUOTAS if getattr(self.quota, name) is not None)


class GuestSection(Section):
    """Where the routing daemons of a router run. The keys after `memory` belong to `kvm`."""

    kind: Literal["netns", "kvm"] = Field(default="netns", description="a network namespace, or a virtual machine")
    memory: Annotated[str, Field(pattern=MEMORY), AfterValidator(_memory)] | None = Field(
        default=None,
        description="128M to 64G: of a machine, or what a namespace may take; 256M or 2G where left out",
    )
    vcpus: Annotated[int, Field(ge=1, le=MAX_VCPUS)] | None = Field(
        default=None, description="processors of the machine; 1 where left out"
    )
    image: Annotated[str, Field(pattern=IMAGE)] | None = Field(
        default=None, description="directory of the machine's image; the controller's --guest-image where left out"
    )

    @property
    def misplaced(self) -> list[str]:
        """The keys that are given and belong to another kind."""
        given = [key for key in ("vcpus", "image") if getattr(self, key) is not None]
        return given if self.kind == "netns" else []

    @property
    def config(self) -> GuestConfig:
        """The guest in the model's terms."""
        memory_mib = parse_memory(self.memory) if self.memory else 0
        if self.kind == "netns":
            return GuestConfig(memory_mib=memory_mib)
        memory_mib = memory_mib or DEFAULT_MEMORY_MIB
        return GuestConfig(GuestKind.KVM, memory_mib, self.vcpus or 1, self.image or "")


class InterfaceSection(Section):
    """One interface of a router: a TAP in the guest, a port and VLAN on the plane."""

    name: InterfaceName
    port: PortName | None = Field(
        default=None, description="left out where a link of the tenant names this interface"
    )
    vlan: Annotated[int, Field(ge=0, le=MAX_VLAN)] | Literal["untagged"] = "untagged"
    mac: Mac | None = Field(default=None, description="issued by the controller where left out")
    mtu: int = Field(default=1500, ge=68, le=9216, description="layer 3, octets")
    addresses: list[Address] = Field(default_factory=list)
    virtual_macs: list[Mac] = Field(default_factory=list, max_length=8, description="of VRRP groups")
    admin: Literal["up", "down"] = "up"

    @property
    def vlan_id(self) -> int:
        """The VLAN id, 0 for untagged."""
        return UNTAGGED if self.vlan == "untagged" else self.vlan


class CommandDaemon(Section):
    """One program of the suite `command`."""

    argv: list[Annotated[str, Field(pattern=WORD)]] = Field(
        min_length=1, max_length=64, description="the program, by its absolute path, and its arguments"
    )
    name: Annotated[str, Field(pattern=DAEMON_NAME)] | None = Field(
        default=None, description="how vrctl calls it; the program's own name where left out"
    )
    reload: Literal["restart", "HUP", "USR1", "USR2"] | list[Annotated[str, Field(pattern=WORD)]] = Field(
        default="restart", description="how it takes changed files: anew, by a signal, or by another command"
    )

    @field_validator("argv", "reload")
    @classmethod
    def _is_a_command(cls, words: str | list[str]) -> str | list[str]:
        if isinstance(words, list) and not (words and re.fullmatch(PROGRAM, words[0])):
            raise ValueError(
                f"{words[0] if words else 'nothing'!r} is no command; begin with {PATTERN_WORDS[PROGRAM]}"
            )
        return words

    @property
    def called(self) -> str:
        """What it is called."""
        return self.name or self.argv[0].rpartition("/")[2][:31]


class CommandSection(Section):
    """Programs that write routes to the guest's kernel, kept running by its supervisor."""

    daemons: list[CommandDaemon] = Field(min_length=1, max_length=8, description="in the order of their start")
    user: Annotated[str, Field(pattern=USER_NAME)] = Field(
        default="nobody", description="whose they are, with net_admin, net_raw and net_bind_service; not root"
    )
    files: dict[Annotated[str, Field(pattern=FILE_NAME)], str] = Field(
        default_factory=dict, max_length=16, description="their files, by name, in /run/command/etc"
    )

    @field_validator("user")
    @classmethod
    def _is_not_root(cls, user: str) -> str:
        if user == "root":
            raise ValueError("root is refused; the programs have the capabilities that routing daemons need")
        return user

    @field_validator("daemons")
    @classmethod
    def _have_names(cls, daemons: list[CommandDaemon]) -> list[CommandDaemon]:
        names = [daemon.called for daemon in daemons]
        for name in names:
            if names.count(name) > 1 or name in RESERVED_DAEMONS:
                raise ValueError(f"{name!r} is taken; give its daemon another `name`")
        return daemons

    @property
    def text(self) -> str:
        """The section as JSON, in one way of writing it."""
        daemons = [{"name": one.called, "argv": one.argv, "reload": one.reload} for one in self.daemons]
        return json.dumps({"user": self.user, "files": self.files, "daemons": daemons}, sort_keys=True)


class RouterSection(Section):
    """One virtual router."""

    name: Name
    plane: Name
    hold_time_s: int = Field(default=120, ge=1, le=86_400, description="how long routes outlive a lost session")
    source: Literal["fpm", "netlink"] | None = Field(
        default=None, description="where routes are learned: fpm with FRR, else netlink where left out"
    )
    guest: GuestSection = GuestSection()
    placement: Literal["auto", "hardware", "software"] = Field(
        default="auto",
        description="where its routes are, on a plane with a fallback",
    )
    share: ShareSection = Field(default=ShareSection(), description="of what its slice gets")
    interfaces: list[InterfaceSection] = Field(default_factory=list)
    frr: str | None = Field(default=None, description="FRR's integrated configuration")
    frr_file: str | None = Field(default=None, description="its file instead, relative to this one")
    bird: str | None = Field(default=None, description="BIRD 2's configuration, for a router that runs BIRD")
    bird_file: str | None = Field(default=None, description="its file instead, relative to this one")
    ip: str | None = Field(default=None, description="lines of ip -batch, for a router with static routes alone")
    ip_file: str | None = Field(default=None, description="their file instead, relative to this one")
    command: CommandSection | None = Field(default=None, description="for a router that runs any other programs")

    @property
    def texts(self) -> list[str]:
        """The keys of suites that are given."""
        keys = (key for suite in Suite for key in (suite.value, f"{suite}_file"))
        return [key for key in keys if getattr(self, key, None) is not None]

    @property
    def suite(self) -> Suite:
        """What makes its routes: FRR where no text is given."""
        return Suite(self.texts[0].removesuffix("_file")) if self.texts else Suite.FRR

    @property
    def route_source(self) -> RouteSource:
        """The source in the model's terms."""
        return RouteSource(self.source or (RouteSource.FPM if self.suite is Suite.FRR else RouteSource.NETLINK))


class LinkEndSection(Section):
    """One end of a link."""

    router: Name
    interface: InterfaceName
    port: PortName = Field(description="the port of this end, connected with the other")


class LinkSection(Section):
    """A link between two routers of one plane: a pair of ports connected with each other."""

    ends: list[LinkEndSection] = Field(min_length=2, max_length=2)


class TenantSection(Section):
    """A tenant, its slices, routers and links. What is not named here stays as it is."""

    name: Name
    slices: list[SliceSection] = Field(default_factory=list)
    routers: list[RouterSection] = Field(default_factory=list)
    links: list[LinkSection] = Field(default_factory=list)


class Document(Section):
    """The document of `vrctl apply`."""

    version: Literal[1]
    planes: list[PlaneSection] = Field(default_factory=list)
    tenants: list[TenantSection] = Field(default_factory=list)


def schema() -> dict[str, Any]:
    """Return the JSON Schema of the document (draft 2020-12)."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://splitplane.invalid/schema.json",
        **Document.model_json_schema(),
    }
