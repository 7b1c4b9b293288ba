"""The installation as the manual has it fits the tree; scripts/install-test follows it, on a bare Debian."""

import configparser
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from controller.spec.check import check
from controller.spec.merge import merge
from controller.spec.parse import parse
from controller.spec.state import Ids, State

ROOT = Path(__file__).parents[2]
MANUAL = [(ROOT / "docs" / name).read_text() for name in ("operations.md", "forwarder.md")]
UNITS = ("vr-host", "vr-controller", "vr-forwarder")
PYTHON_OF = {"12": "cp311", "13": "cp313"}
releases = pytest.mark.parametrize("release", PYTHON_OF)


def install_test(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [str(ROOT / "scripts" / "install-test"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def commands(release: str) -> list[str]:
    done = install_test("--commands", release)
    assert done.returncode == 0, done.stderr
    return [line.split(" # ")[0].rstrip() for line in done.stdout.splitlines() if not line.startswith("# ")]


def packages(release: str) -> set[str]:
    lines = (line for line in commands(release) if line.startswith("apt-get install "))
    return {word for line in lines for word in line.split()[2:] if not word.startswith("-")}


@releases
def test_a_host_gets_the_libraries_of_its_own_release(release: str) -> None:
    named = {name for name in packages(release) if name.startswith(("libgrpc++", "libprotobuf"))}
    assert len(named) == 2
    assert all(name.endswith("t64") == (release == "13") for name in named)
    assert "libbpf1" in packages(release)


@releases
def test_a_host_gets_nothing_to_compile_with(release: str) -> None:
    compilers = re.compile(r".*-dev|build-essential|g?cc(-.*)?|g\+\+(-.*)?|clang(-.*)?|meson|ninja-build")
    assert [name for name in packages(release) if compilers.fullmatch(name)] == []


@releases
def test_the_wheel_is_named_as_it_is_made(release: str) -> None:
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    version, tag = settings["metadata"]["version"], PYTHON_OF[release]
    assert f"| Debian {release} | `splitplane-{version}-{tag}-{tag}-linux_x86_64.whl` |" in MANUAL[0]
    assert not any("none-any" in text for text in MANUAL)


@releases
def test_what_is_copied_from_the_checkout_is_there(release: str) -> None:
    copied = {word for line in commands(release) for word in line.split() if word.startswith("docs/")}
    assert {f"docs/{unit}.service" for unit in UNITS} < copied
    assert all((ROOT / path).is_file() for path in copied)


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_starts_what_is_installed(unit: str) -> None:
    text = (ROOT / "docs" / f"{unit}.service").read_text()
    started = re.findall(r"^ExecStart(?:Pre)?=(\S+)", text, re.MULTILINE)
    assert set(started) == {f"/opt/splitplane/bin/{unit}"}
    lines = commands("12")
    assert f"systemctl enable --now {unit}" in lines
    scripts = configparser.ConfigParser()
    scripts.read(ROOT / "setup.cfg")
    by_pip = f"{unit} =" in scripts["options.entry_points"]["console_scripts"]
    assert by_pip or f"install -D -m 755 {unit} /opt/splitplane/bin/{unit}" in lines


def test_the_first_router_is_a_whole_document_for_the_ports_of_the_configuration() -> None:
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", MANUAL[1], re.MULTILINE | re.DOTALL)
    state, where = merge(parse(text, "forwarder.md"), State(), Ids(identity=0xAB), {})
    check(state, where)
    assert list(state.routers) == ["red/r1"]
    suggested = re.sub(r'^# (\d+ = ")', r"\1", (ROOT / "docs/vr-forwarder.toml").read_text(), flags=re.MULTILINE)
    ports = tomllib.loads(suggested)["ports"]
    assert {str(port.number): port.device for port in state.planes["f1"].ports} == ports


def test_a_release_that_is_none_is_refused() -> None:
    done = install_test("11")
    assert done.returncode == 2
    assert done.stderr.startswith("usage: ")
