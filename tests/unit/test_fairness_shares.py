"""What bench/fairness gives routers: extern entries of a forwarder, weights of control groups."""

from pathlib import Path

import pytest
from finsy.proto import p4d, p4r

from bench import p4shares
from bench.max_min import Share
from lab.cpu_groups import CpuGroups
from lab.wires import WiresError


class _Device:
    """Keeps what is written."""

    written: list[p4r.Entity]

    def __init__(self, address: str, device_id: int, since_ms: int) -> None:
        assert since_ms > 1_600_000_000_000  # larger than that of who came before

    def become_primary(self) -> None:
        pass

    def update(self, kind: int, entities: list[p4r.Entity]) -> None:
        assert kind == p4r.Update.INSERT
        _Device.written = entities

    def close(self) -> None:
        pass


def _numbers(entity: p4r.Entity) -> tuple[int, list[bytes]]:
    data = p4d.P4Data()
    assert entity.extern_entry.extern_type_id == 0x82
    assert entity.extern_entry.entry.Unpack(data)
    return entity.extern_entry.extern_id, [member.bitstring for member in data.struct.members]


def test_slices_come_before_their_routers_in_shortest_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(p4shares, "Device", _Device)
    p4shares.write("unix:nowhere", 1, [(Share(2), 0), (Share(1, 0.1, 0.5), 7)], {7: Share(3)})
    assert [_numbers(entity) for entity in _Device.written] == [
        (0x82000001, [b"\x07", b"\x03", b"\x00", b"\x00"]),
        (0x82000002, [b"\x01", b"\x00", b"\x02", b"\x00", b"\x00"]),
        (0x82000002, [b"\x02", b"\x07", b"\x01", b"\x01\x86\xa0", b"\x07\xa1\x20"]),
    ]


def test_weights_of_groups_are_in_proportion(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("one", "other")]
    groups = CpuGroups(files, 1)
    groups.weigh([2.0, 1.0])
    assert [int(file.read_text()) for file in files] == [19096, 9548]
    with pytest.raises(WiresError, match="a weight of 28"):
        groups.weigh([28.0, 1.0])
