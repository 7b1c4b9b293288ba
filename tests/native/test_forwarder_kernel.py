"""The forwarder's programs on the kernel of the guest image, in a machine of it: Debian 12's 6.1, the oldest that is
supported, or Debian 13's 6.12.

The image's initial file system gets the native tests beside it, and what they need of this host; its first program
copies them into the root file system, where they run.
"""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from controller.guests.machine.command_line import Accelerator, accelerator_options

ROOT = Path(__file__).parents[2]
IMAGE, BUILD = ROOT / "build/guest", ROOT / "build/forwarder"
LIMIT_S = 540
EMULATED = accelerator_options(Accelerator.TCG)

# Not all of them: emulated, they take ten times as long.
RUNS = {
    "tests/pipeline/differential_test": "*/0",
    "tests/engine/losses_test": "*.APortThatIsDown:*.WhatTheDriver*:*.DevicesTell*",
    "tests/engine/shares_test": "*.OneThatHas*",
    "tests/engine/xdp_engine_test": "*.ForwardsIn*:*.PuntsReachTheSink:*.GoesOnWhenTheProcessIsKilled*:*Link*",
}
LOADER = "tests/engine/load_program"
KERNELS = {"splitplane-bookworm": "6.1.", "splitplane-trixie": "6.12."}
_LIBRARY = re.compile(r"=> (/\S+) ")
# After the power-off nothing can be read any more, so what waits for it is the shell itself.
_FIRST = """\
#!/bin/sh
export PATH=/tests:/usr/sbin:/usr/bin:/sbin:/bin LD_LIBRARY_PATH=/tests
echo "kernel $(uname -r)"
{runs}
echo o >/proc/sysrq-trigger
while :; do :; done
"""


def needed_by(program: Path) -> list[Path]:
    """Return a program and its libraries."""
    listed = subprocess.run(("ldd", program), capture_output=True, text=True, check=True).stdout
    return [program, *map(Path, _LIBRARY.findall(listed))]


def objects() -> list[Path]:
    """Return the program as each clang of this machine has compiled it."""
    return sorted((BUILD / LOADER).parent.glob("program-clang-*.bpf.o"))


def make_initrd(directory: Path) -> Path:
    """Return the image's initial file system with the tests in it; the kernel takes archives one after the other."""
    tests = directory / "more/tests"
    tests.mkdir(parents=True)
    ethtool = shutil.which("ethtool")
    assert ethtool is not None
    for program in (*(BUILD / name for name in RUNS), BUILD / LOADER, Path(ethtool)):
        for file in needed_by(program):
            shutil.copy(file, tests)
    for compiled in objects():
        shutil.copy(compiled, tests)
    runs = {
        **{Path(name).name: f"'--gtest_filter={which}' --gtest_color=no" for name, which in RUNS.items()},
        **{f"{Path(LOADER).name} /tests/{compiled.name}": "" for compiled in objects()},
    }
    lines = [f'{run} {options}; echo "{run} ended: $?"' for run, options in runs.items()]
    (tests / "run").write_text(_FIRST.format(runs="\n".join(lines)))
    (tests / "run").chmod(0o755)
    mounted, check, rest = (ROOT / "guest/init").read_text().partition('[ -x "/root$init" ]')
    assert rest
    (directory / "init").write_text(f"{mounted}cp -a /more/. /root/\n{check}{rest}")
    (directory / "init").chmod(0o755)
    names = "\n".join(str(path.relative_to(directory)) for path in sorted(directory.rglob("*")))
    archive = ("cpio", "--create", "--format=newc", "--quiet")
    more = subprocess.run(archive, cwd=directory, input=names.encode(), stdout=subprocess.PIPE, check=True).stdout
    made = directory / "initrd.img"
    made.write_bytes((IMAGE / "initrd.img").read_bytes() + more)
    return made


def said_by(command: tuple[str, ...]) -> str:
    """Return what a machine says until its end; AssertionError with the last of it where that does not come.

    It has a session of its own, as machines of guests have: the kernel gives each session as much of the cores as any
    other (autogroup), and in that of all tests a machine was not done in nine minutes where four others were busy.
    """
    how = {"stdin": subprocess.DEVNULL, "capture_output": True, "start_new_session": True}
    try:
        ran = subprocess.run(command, **how, timeout=LIMIT_S, check=True)
    except subprocess.TimeoutExpired as error:
        raise AssertionError(f"not ended within {LIMIT_S} s:\n{_text(error.stdout or b'')[-6000:]}") from None
    return _text(ran.stdout)


def _text(octets: bytes) -> str:
    return octets.decode(errors="replace").replace("\r", "")


@pytest.mark.root
def test_programs_load_and_do_the_same_on_the_images_kernel(tmp_path: Path) -> None:
    assert (IMAGE / "image.json").exists(), f"{IMAGE} is missing; run: scripts/setup tests"
    image = json.loads((IMAGE / "image.json").read_text())
    # As guests start: without `no_timer_check` a kernel that got no core for a while takes its timer for broken.
    append = f"{image['append']} console=ttyS0 panic=-1 splitplane.init=/tests/run"  # a panic ends QEMU too
    command = (
        *("qemu-system-x86_64", "-nodefaults", "-no-user-config", "-machine", "q35", *EMULATED),
        *("-smp", "2", "-m", "1024", "-display", "none", "-serial", "stdio", "-no-reboot"),
        *("-kernel", str(IMAGE / "vmlinuz"), "-initrd", str(make_initrd(tmp_path))),
        *("-append", append),
        *("-drive", f"file={IMAGE / 'root.squashfs'},format=raw,if=virtio,readonly=on"),
    )
    said = said_by(command)
    kernel = KERNELS[image["name"]]
    assert re.search(rf"^kernel {re.escape(kernel)}", said, re.MULTILINE), said[-3000:]
    wanted = [Path(name).name for name in RUNS] + [f"{Path(LOADER).name} /tests/{one.name}" for one in objects()]
    assert "SKIPPED" not in said, said[-6000:]
    assert dict(re.findall(r"^(.+) ended: (\d+)$", said, re.MULTILINE)) == dict.fromkeys(wanted, "0"), said[-6000:]
