"""The forwarder's programs on the oldest kernel it supports: Debian 12's 6.1, in a machine of the guest image.

The image's initial file system gets the native tests beside it, and what they need of this host; its first program
copies them into the root file system, where they run.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IMAGE, BUILD = ROOT / "build/guest", ROOT / "build/forwarder"
LIMIT_S = 540

# Not all of them: emulated, they take ten times as long.
RUNS = {
    "tests/pipeline/differential_test": "*/0",
    "tests/engine/xdp_engine_test": "*.ForwardsIn*:*.PuntsReachTheSink:*.GoesOnWhenTheProcessIsKilled*",
}
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


def make_initrd(directory: Path) -> Path:
    """Return the image's initial file system with the tests in it; the kernel takes archives one after the other."""
    tests = directory / "more/tests"
    tests.mkdir(parents=True)
    ethtool = shutil.which("ethtool")
    assert ethtool is not None
    for program in (*(BUILD / name for name in RUNS), Path(ethtool)):
        for file in needed_by(program):
            shutil.copy(file, tests)
    runs = "\n".join(
        f"{Path(name).name} '--gtest_filter={which}' --gtest_color=no; echo \"{Path(name).name} ended: $?\""
        for name, which in RUNS.items()
    )
    (tests / "run").write_text(_FIRST.format(runs=runs))
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


@pytest.mark.root
def test_programs_load_and_do_the_same_on_linux_6_1(tmp_path: Path) -> None:
    assert (IMAGE / "image.json").exists(), f"{IMAGE} is missing; run: scripts/setup tests"
    command = (
        *("qemu-system-x86_64", "-nodefaults", "-no-user-config", "-machine", "q35", "-accel", "tcg", "-cpu", "max"),
        *("-smp", "2", "-m", "1024", "-display", "none", "-serial", "stdio", "-no-reboot"),
        *("-kernel", str(IMAGE / "vmlinuz"), "-initrd", str(make_initrd(tmp_path))),
        *("-append", "console=ttyS0 quiet panic=-1 splitplane.init=/tests/run"),  # a panic ends QEMU too
        *("-drive", f"file={IMAGE / 'root.squashfs'},format=raw,if=virtio,readonly=on"),
    )
    ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S, check=True)
    said = ran.stdout.decode(errors="replace").replace("\r", "")
    assert re.search(r"^kernel 6\.1\.", said, re.MULTILINE), said[-3000:]
    assert dict(re.findall(r"^(\w+) ended: (\d+)$", said, re.MULTILINE)) == {Path(name).name: "0" for name in RUNS}, (
        said[-6000:]
    )
