"""Whether machines boot under KVM, where what stands for QEMU boots, ends, or takes a core and says nothing."""

from pathlib import Path

import pytest

from controller.guests.machine import accelerator
from controller.guests.machine.accelerator import AcceleratorProbe
from controller.guests.machine.image import Image

pytestmark = pytest.mark.asyncio

SPINS = "while :; do :; done"
BOOTS = "echo 'VFS: Unable to mount root fs on unknown-block(0,0)'"


SHORT_S, LONG_S = 0.6, 60.0
"""Limits: of what is to reach it, and of what ends before, however busy the cores are."""


@pytest.mark.parametrize(
    ("program", "limit_s", "reason"),
    [
        (BOOTS, LONG_S, ""),
        ("echo 'Linux version 6'", LONG_S, "a guest's kernel did not boot under KVM"),
        (f"{BOOTS}; exit 3", LONG_S, "QEMU ended with status 3 under KVM"),
        (SPINS, LONG_S, "a guest's kernel said nothing under KVM in 0 s of a core"),
        ("exec sleep 600", SHORT_S, "a guest did not boot under KVM in 1 s"),
        (f"echo 'Linux version 6'; {SPINS}", SHORT_S, "a guest did not boot under KVM in 1 s"),
    ],
)
async def test_a_guest_that_hangs_is_told_from_one_that_boots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, limit_s: float, reason: str
) -> None:
    qemu, device = tmp_path / "qemu", tmp_path / "kvm"
    qemu.write_text(f"#!/bin/sh\n{program}\n")
    qemu.chmod(0o755)
    device.touch()
    monkeypatch.setattr(accelerator, "QEMU", str(qemu))
    monkeypatch.setattr(accelerator, "SILENT_CPU_S", 0.4)
    image = Image(tmp_path, "test", *(tmp_path / name for name in ("kernel", "initrd", "root")), "quiet", 0, "")
    probe = AcceleratorProbe(tmp_path, device, limit_s=limit_s)
    found = await probe.choose(image)
    assert probe.reason == reason
    assert (found is accelerator.Accelerator.KVM) == (not reason)
