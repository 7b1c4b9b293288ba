"""The pipeline that a device runs, and its P4Info by names: no id is written by hand anywhere else in this back end.

Values travel in canonical form: the shortest string of octets that holds the number (P4Runtime 1.4, section 8.4).
"""

import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import TypeVar

from finsy.proto import p4i, p4r
from google.protobuf import text_format

T = TypeVar("T")

_COOKIE_OCTETS = 8
_MATCH_KINDS = {p4i.MatchField.EXACT: "exact", p4i.MatchField.LPM: "lpm"}


def canonical(value: int, bits: int) -> bytes:
    """Return a number as P4Runtime writes it; ValueError where it does not fit ``bits``."""
    if not 0 <= value < 1 << bits:
        raise ValueError(f"{value} does not fit {bits} bits")
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


@dataclass(frozen=True, slots=True)
class Field:
    """A match field, an action's parameter or a part of a controller header."""

    name: str
    id: int
    bits: int

    def octets(self, value: int) -> bytes:
        """Return a value in canonical form; ValueError where it does not fit."""
        return canonical(value, self.bits)


def _numbers(fields: Mapping[str, Field], octets: Mapping[int, bytes]) -> dict[str, int] | None:
    """Return the values of all fields by name, None where there are others, or one is too large."""
    if octets.keys() != {field.id for field in fields.values()}:
        return None
    values = {name: int.from_bytes(octets[field.id], "big") for name, field in fields.items()}
    return None if any(value >> fields[name].bits for name, value in values.items()) else values


@dataclass(frozen=True, slots=True)
class Action:
    """An action and its parameters."""

    name: str
    id: int
    params: Mapping[str, Field]

    def message(self, values: Mapping[str, int]) -> p4r.Action:
        """Return the action with all its parameters; ValueError where one does not fit."""
        params = [
            p4r.Action.Param(param_id=param.id, value=param.octets(values[name]))
            for name, param in self.params.items()
        ]
        return p4r.Action(action_id=self.id, params=params)


@dataclass(frozen=True, slots=True)
class Table:
    """A table: its match fields in the order of their ids, its actions, and its size in entries."""

    name: str
    id: int
    fields: Mapping[str, Field]
    actions: Mapping[str, Action]
    size: int
    max_group_size: int = 0  # of its action selector
    _action_of: dict[int, Action] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._action_of.update((action.id, action) for action in self.actions.values())

    def find_action(self, message: p4r.Action) -> tuple[str, dict[str, int]] | None:
        """Return an action's name and its parameters by name, None where it is not exactly one of this table's."""
        action = self._action_of.get(message.action_id)
        if action is None:
            return None
        values = _numbers(action.params, {param.param_id: param.value for param in message.params})
        return None if values is None else (action.name, values)

    def find_key(self, message: p4r.TableEntry) -> tuple[int, ...] | None:
        """Return the values of an entry's exact match fields in the order of `fields`, None where some are missing
        or of another kind."""
        if not all(each.HasField("exact") for each in message.match):
            return None
        values = _numbers(self.fields, {each.field_id: each.exact.value for each in message.match})
        return None if values is None else tuple(values.values())

    def exact_match(self, key: tuple[int, ...]) -> list[p4r.FieldMatch]:
        """Return the match of an entry from the values of its fields in the order of `fields`."""
        return [
            p4r.FieldMatch(field_id=one.id, exact=p4r.FieldMatch.Exact(value=one.octets(value)))
            for one, value in zip(self.fields.values(), key, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Digest:
    """A digest: the members of its struct and their bits, in the order in which they travel."""

    name: str
    id: int
    members: tuple[tuple[str, int], ...]  # none where it is no struct


class Schema:
    """Tables, controller headers and digests of a P4Info, by name."""

    def __init__(self, p4info: p4i.P4Info) -> None:
        actions = {one.preamble.id: _action(one) for one in p4info.actions}
        group_sizes = {one.preamble.id: one.max_group_size for one in p4info.action_profiles}
        self._tables = {one.preamble.name: _table(one, actions, group_sizes) for one in p4info.tables}
        self._headers = {
            one.preamble.name: {part.name: Field(part.name, part.id, part.bitwidth) for part in one.metadata}
            for one in p4info.controller_packet_metadata
        }
        self._digests = {one.preamble.name: _digest(one, p4info) for one in p4info.digests}

    def table(self, name: str) -> Table:
        """Return a table; ValueError where the pipeline has none of that name."""
        return _named(self._tables, "table", name)

    def header(self, name: str) -> dict[str, Field]:
        """Return the fields of a controller header; ValueError where the pipeline has none of that name."""
        return _named(self._headers, "controller header", name)

    def digest(self, name: str) -> Digest:
        """Return a digest; ValueError where the pipeline has none of that name."""
        return _named(self._digests, "digest", name)


def _named(things: Mapping[str, T], kind: str, name: str) -> T:
    if name not in things:
        raise ValueError(f"the pipeline has no {kind} {name}")
    return things[name]


def _action(message: p4i.Action) -> Action:
    params = {one.name: Field(one.name, one.id, one.bitwidth) for one in message.params}
    return Action(message.preamble.name, message.preamble.id, params)


def _table(message: p4i.Table, actions: Mapping[int, Action], group_sizes: Mapping[int, int]) -> Table:
    fields = sorted((one for one in message.match_fields if one.match_type in _MATCH_KINDS), key=lambda one: one.id)
    return Table(
        message.preamble.name,
        message.preamble.id,
        {one.name: Field(one.name, one.id, one.bitwidth) for one in fields},
        {actions[ref.id].name: actions[ref.id] for ref in message.action_refs},
        message.size,
        group_sizes.get(message.implementation_id, 0),
    )


def _digest(message: p4i.Digest, p4info: p4i.P4Info) -> Digest:
    struct = p4info.type_info.structs.get(message.type_spec.struct.name)
    members = () if struct is None else struct.members
    bits = tuple((one.name, one.type_spec.bitstring.bit.bitwidth) for one in members)
    return Digest(message.preamble.name, message.preamble.id, bits)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """What is pushed to a device, and the cookie by which it is known again."""

    p4info: p4i.P4Info
    device_config: bytes
    schema: Schema
    cookie: int

    @property
    def message(self) -> p4r.ForwardingPipelineConfig:
        """The pipeline as P4Runtime carries it."""
        cookie = p4r.ForwardingPipelineConfig.Cookie(cookie=self.cookie)
        return p4r.ForwardingPipelineConfig(p4info=self.p4info, p4_device_config=self.device_config, cookie=cookie)


@functools.cache
def golden_pipeline() -> Pipeline:
    """Return the pipeline of p4src as compiled for v1model."""
    golden = resources.files("p4src") / "golden"
    text, device_config = (golden / "v1model.p4info.txtpb").read_bytes(), (golden / "v1model.json").read_bytes()
    p4info = text_format.Parse(text, p4i.P4Info())
    digest = hashlib.sha256(text + device_config).digest()
    return Pipeline(p4info, device_config, Schema(p4info), int.from_bytes(digest[:_COOKIE_OCTETS], "big"))
