"""Shares of routers and slices, written into a forwarder by P4Runtime.

    slice    ExternEntry{0x82, 0x82000001, P4Data: struct{slice_id, weight, guarantee, ceiling}}
    router   ExternEntry{0x82, 0x82000002, P4Data: struct{vrf_id, slice_id, weight, guarantee, ceiling}}
"""

import time
from collections.abc import Sequence

from finsy.proto import p4d, p4r

from bench.max_min import Share
from bench.p4reference import Device

_TYPE, _SLICE, _ROUTER = 0x82, 0x82000001, 0x82000002
_WHOLE = 1_000_000  # SP_SHARE_WHOLE


def write(
    address: str, device_id: int, routers: Sequence[tuple[Share, int]], slices: dict[int, Share] | None = None
) -> None:
    """Give the routers with vrf_id 1, 2, … their shares and slices (0: none). NetworkError where one is refused."""
    device = Device(address, device_id, time.time_ns() // 1_000_000)
    try:
        device.become_primary()
        found = [_entity(_SLICE, id, *_numbers(share)) for id, share in (slices or {}).items()]
        found += [_entity(_ROUTER, vrf, slice, *_numbers(share)) for vrf, (share, slice) in enumerate(routers, 1)]
        device.update(p4r.Update.INSERT, found)
    finally:
        device.close()


def _numbers(share: Share) -> tuple[int, int, int]:
    return round(share.weight), round(share.guarantee * _WHOLE), round(share.ceiling * _WHOLE)


def _entity(extern_id: int, *numbers: int) -> p4r.Entity:
    data = p4d.P4Data()
    for number in numbers:
        octets = number.to_bytes(max(1, (number.bit_length() + 7) // 8), "big")
        data.struct.members.add(bitstring=octets)
    entity = p4r.Entity()
    entity.extern_entry.extern_type_id, entity.extern_entry.extern_id = _TYPE, extern_id
    entity.extern_entry.entry.Pack(data)
    return entity
