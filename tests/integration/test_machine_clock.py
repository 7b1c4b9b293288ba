"""The first program of a machine on what Linux says of its clock, up to there; with the image's kernel, emulated."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from controller.guests.machine.command_line import Accelerator, accelerator_options

pytestmark = pytest.mark.root
ROOT = Path(__file__).parents[2]
IMAGE = ROOT / "build/guest"
LIMIT_S = 120
SAID = "tsc: PIT calibration deviates from HPET: 804011 2594774"  # one boot in six or so, among eight busy processes
OTHERWISE = "tsc: Detected 2594.318 MHz processor"


def clocks_of(directory: Path, *said: str) -> list[str]:
    """Boot with an init that has Linux say one thing after the other, and that tells of the clock source after each
    instead of going on."""
    begun, root, _ = (ROOT / "guest/init").read_text().partition("\nroot=/dev/vda")
    assert root
    before, test, after = begun.partition("\nif dmesg")
    assert test
    source = "$(cat /sys/devices/system/clocksource/clocksource0/current_clocksource)"
    told = f'{test}{after}\necho "clock source: {source}" >/dev/console\n'
    looks = "".join(f"\necho '{line}' >/dev/kmsg{told}" for line in said)
    (directory / "init").write_text(f"{before}{looks}poweroff -f\n")
    (directory / "init").chmod(0o755)
    archive = ("cpio", "--create", "--format=newc", "--quiet")
    more = subprocess.run(archive, cwd=directory, input=b"init\n", stdout=subprocess.PIPE, check=True).stdout
    initrd = directory / "initrd.img"
    initrd.write_bytes((IMAGE / "initrd.img").read_bytes() + more)
    image = json.loads((IMAGE / "image.json").read_text())
    ran = subprocess.run(
        (
            *("qemu-system-x86_64", "-nodefaults", "-no-user-config", "-machine", "q35", "-display", "none"),
            *accelerator_options(Accelerator.TCG),
            *("-m", str(image["minimum_memory_mib"]), "-serial", "stdio", "-no-reboot"),
            *("-kernel", str(IMAGE / image["kernel"]), "-initrd", str(initrd)),
            *("-append", f"{image['append']} console=ttyS0 panic=-1"),
        ),
        stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S, check=True,
    )  # fmt: skip
    return re.findall(r"clock source: (\S+)", ran.stdout.decode(errors="replace"))


def test_a_clock_that_was_measured_wrong_is_not_used(tmp_path: Path) -> None:
    otherwise, measured_wrong = clocks_of(tmp_path, OTHERWISE, SAID)
    assert otherwise != "hpet"
    assert measured_wrong == "hpet"
