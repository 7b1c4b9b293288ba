"""What a plane's section means: the keys that each kind has, and the model made of them."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from controller.model import Capacity, FallbackConfig, PlaneConfig, PlaneKind, PlanePort, PuntRates
from controller.spec.document import (
    CapacitySection,
    FallbackSection,
    PlaneOptions,
    PlanePortSection,
    PlaneSection,
)

DEFAULT_DEVICE_ID = 1

_KEYS = {
    PlaneKind.OPENFLOW: ("datapath_id", "shared_meters"),
    PlaneKind.P4RUNTIME: ("address", "device_id", "ports"),
    PlaneKind.FAKE: ("datapath_id",),
}
_NEEDED = {
    PlaneKind.OPENFLOW: {"datapath_id": "a datapath_id"},
    PlaneKind.P4RUNTIME: {"address": "an address", "ports": "ports, which P4Runtime does not list"},
    PlaneKind.FAKE: {},
}

Problem = tuple[tuple[str | int, ...], str]
"""The keys that lead to what is wrong inside the section, and what is wrong."""


def problems(section: PlaneSection) -> Iterator[Problem]:
    """Walk over what a section has too much, lacks, or says twice."""
    kind, name = section.plane_kind, section.name
    for home, keys in _KEYS.items():
        for key in keys:
            if key not in _KEYS[kind] and getattr(section, key) is not None:
                remedy = f"leave it out, or write kind: {home}"
                yield (key,), f"plane {name} of kind {kind} has no {key}; {remedy}"
    for key, words in _NEEDED[kind].items():
        if not getattr(section, key):
            yield (), f"plane {name} of kind {kind} needs {words}"
    numbers: dict[int, str] = {}
    devices: dict[str, str] = {}
    for port in _ports(section):
        if (first := numbers.setdefault(port.number, port.name)) != port.name:
            yield ("ports", port.name), f"ports {first} and {port.name} of plane {name} have the number {port.number}"
        if port.device and (first := devices.setdefault(port.device, port.name)) != port.name:
            yield ("ports", port.name), f"ports {first} and {port.name} of plane {name} have the device {port.device}"
    yield from _meter_problems(section)


def _meter_problems(section: PlaneSection) -> Iterator[Problem]:
    taken: set[str] = set()
    for index, classes in enumerate(section.shared_meters or []):
        where, plane = ("shared_meters", index), f"plane {section.name}"
        if len(classes) < 2:
            yield where, f"{plane}: a meter is shared by two punt classes at least; name another one, or leave it out"
        for each in classes:
            if each not in PuntRates._fields:
                yield where, f"{plane}: no punt class is called {each}; there are {', '.join(PuntRates._fields)}"
            elif each in taken:
                yield where, f"{plane}: shared_meters names the punt class {each} twice; keep one"
            taken.add(each)


def plane_config(section: PlaneSection) -> PlaneConfig:
    """Return a plane without problems as the model has it; the order of ports means nothing."""
    device_id = section.device_id
    if device_id is None and section.plane_kind is PlaneKind.P4RUNTIME:
        device_id = DEFAULT_DEVICE_ID
    return PlaneConfig(
        section.name,
        section.plane_kind,
        section.datapath_id or 0,
        section.address or "",
        device_id or 0,
        tuple(sorted(_ports(section), key=lambda port: port.number)),
        None if section.fallback is None else FallbackConfig(**section.fallback.model_dump()),
        Capacity() if section.capacity is None else Capacity(**section.capacity.model_dump(exclude_none=True)),
        _shared_meters(section),
    )


def _shared_meters(section: PlaneSection) -> tuple[tuple[str, ...], ...]:
    """Return the sets of classes, the most urgent first: their order in the document means nothing."""
    order = PuntRates._fields.index
    sets = (tuple(sorted(classes, key=order)) for classes in section.shared_meters or [])
    return tuple(sorted(sets, key=lambda classes: order(classes[0])))


def _ports(section: PlaneSection) -> list[PlanePort]:
    return [
        PlanePort(name, port) if isinstance(port, int) else PlanePort(name, port.number, port.device or "")
        for name, port in (section.ports or {}).items()
    ]


def with_options(known: PlaneConfig | None, name: str, options: PlaneOptions) -> PlaneSection:
    """Return the section of a plane that becomes what ``options`` say and otherwise stays what it is.

    A new plane with an address and no kind is a P4Runtime device; of a plane that changes its kind nothing stays.
    """
    kind = options.kind or (known.kind.value if known is not None else None)
    if kind is None:
        kind = "openflow" if options.address is None else "p4runtime"
    kept = _keys_of(known) if known is not None and known.kind.value == kind else {}
    if known is not None and known.fallback is not None:
        kept["fallback"] = FallbackSection(**asdict(known.fallback))
    if known is not None and known.capacity != Capacity():
        kept["capacity"] = CapacitySection(**{table: room for table, room in asdict(known.capacity).items() if room})
    given = {key: value for key, value in options if value is not None and key != "kind"}
    return PlaneSection(name=name, kind=kind, **kept | given)


def _keys_of(plane: PlaneConfig) -> dict[str, Any]:
    if plane.kind is not PlaneKind.P4RUNTIME:
        shared = [list(classes) for classes in plane.shared_meters]
        return {"datapath_id": plane.datapath_id or None, "shared_meters": shared or None}
    ports = {port.name: PlanePortSection(number=port.number, device=port.device or None) for port in plane.ports}
    return {"address": plane.address, "device_id": plane.device_id, "ports": ports}


def reached_at(plane: PlaneConfig) -> str:
    """Return where a plane is found, as the operator reads it; empty for one in memory."""
    match plane.kind:
        case PlaneKind.OPENFLOW:
            return f"datapath {plane.datapath_id:#x}"
        case PlaneKind.P4RUNTIME:
            return f"{plane.address} device {plane.device_id}"
        case PlaneKind.FAKE:
            return ""
