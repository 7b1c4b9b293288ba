"""A machine of the guest image for tests: QEMU without acceleration, a seed, and what stands for the controller."""

import asyncio
import base64
import contextlib
import io
import json
import shlex
import tarfile
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from machines import IMAGE, ROOT, needs_image
from vrc_guest import make_identities

from controller.guests.machine.command_line import CONTROL_PORT, PYTHON, QEMU, Accelerator, Sizes, base_options
from controller.guests.machine.seed import SESSION
from controller.guests.users import guest_id_base, vrc_uid
from controller.pki.authority import IDENTITY_FILES as IDENTITY

DEADLINE_S = 180.0
VRC_UID = vrc_uid(1)
APP = "/usr/lib/splitplane/app"
BGP = "hostname r1\nrouter bgp 65001\n neighbor 10.0.0.2 remote-as 65002\n!\nip route 10.5.0.0/24 Null0\n"


def guest_config(text: str = BGP) -> dict[str, Any]:
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8", "PYTHONPATH": APP}
    return {
        "router": "red/r1",
        "hostname": "r1",
        "directory": "/run/guest",
        "binds": [
            ["/run/splitplane/session", "/run/splitplane/session"],
            ["/run/seed/identity", "/run/splitplane/identity"],
        ],
        "folders": {"etc": "/etc/frr", "run": "/run/frr"},
        "id_base": guest_id_base(1),
        "hidden": [],
        "interfaces": [],
        "vrc": {
            "uid": VRC_UID,
            "argv": [
                *("/usr/bin/python3", "-s", "-P", "-m", "vrc.agent", "--router", "red/r1"),
                *("--session", "unix:/run/splitplane/session/session.sock"),
                *("--identity", "/run/splitplane/identity"),
            ],
            "environment": environment,
        },
        "frr": {
            "ids": [0, 0, 0],
            "text": text,
            "daemons": ["zebra", "staticd", "bgpd"],
            "hold_time_s": 30,
            "fpm": True,
        },
    }


def static_config(*routes: str) -> dict[str, Any]:
    """guest.json for routes that are written as `ip route replace` takes them."""
    config = guest_config()
    del config["frr"]
    numbered = [[line, route.split()[0], route] for line, route in enumerate(routes, 1)]
    return config | {"folders": {"etc": "", "run": ""}, "ip": {"ids": [0, 0], "routes": numbered}}


def seed_of(files: dict[str, bytes]) -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o400
            tar.addfile(member, io.BytesIO(content))
    return archive.getvalue()


class MachineBed:
    """One machine; `hello` gets the first octets of every session that its VRC begins."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.hello: asyncio.Queue[bytes] = asyncio.Queue()
        self.process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._asked = 0

    @property
    def console(self) -> str:
        return (self.base / "console.log").read_text(errors="replace")

    def good_seed(self, config: dict[str, Any] | None = None) -> bytes:
        identity = self.base / "identity"
        identity.mkdir()
        make_identities(identity)
        machine = {"router": "red/r1", "hostname": "m1", "time": int(time.time()), "session": SESSION}
        return seed_of(
            {
                "guest.json": json.dumps(config or guest_config()).encode(),
                "machine.json": json.dumps(machine).encode(),
                **{f"identity/{name}": (identity / name).read_bytes() for name in IDENTITY},
            }
        )

    async def _session(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.hello.put_nowait(await reader.read(600))
        writer.close()

    async def boot(self, seed: bytes, memory_mib: int, vcpus: int = 1) -> None:
        image = json.loads((IMAGE / "image.json").read_text())
        (self.base / "seed.img").write_bytes(seed)
        program = str(ROOT / "controller/guests/machine/relay.py")
        relay = shlex.join([PYTHON, "-I", "-S", program, str(self.base), str(self.base / "session.sock")])
        append = f"{image['append']} console=ttyS0 panic=-1 splitplane.seed=/dev/vdb"
        self.process = await asyncio.create_subprocess_exec(
            *(QEMU, *base_options(Accelerator.TCG, Sizes(memory_mib, vcpus))),
            *("-kernel", str(IMAGE / image["kernel"]), "-initrd", str(IMAGE / image["initrd"]), "-append", append),
            *("-drive", f"id=root,file={IMAGE / image['root']},format=raw,if=none,read-only=on"),
            *("-drive", f"id=seed,file={self.base}/seed.img,format=raw,if=none,read-only=on"),
            *("-device", "virtio-blk-pci,drive=root", "-device", "virtio-blk-pci,drive=seed"),
            *("-netdev", f"user,id=session,restrict=on,ipv6=off,guestfwd=tcp:{SESSION[0]}:{SESSION[1]}-cmd:{relay}"),
            *("-device", "virtio-net-pci,netdev=session,romfile=", "-device", "virtio-rng-pci"),
            *("-chardev", f"socket,id=control,path={self.base}/control.sock,server=on,wait=off"),
            *("-device", "virtio-serial-pci", "-device", f"virtserialport,chardev=control,name={CONTROL_PORT}"),
            *(
                "-chardev",
                f"socket,id=console,path={self.base}/console.sock,server=on,wait=off,logfile={self.base}/console.log",
            ),
            *("-serial", "chardev:console"),
        )
        await self.connect()

    async def connect(self) -> None:
        """Open the control channel (again)."""
        if self._writer:
            self._writer.close()
        self._writer = None
        async with asyncio.timeout(DEADLINE_S):
            while self._writer is None:  # not there yet, or nobody listens yet
                with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
                    path = str(self.base / "control.sock")
                    self._reader, self._writer = await asyncio.open_unix_connection(path, limit=16 << 20)
                await asyncio.sleep(0.05)
        self._writer.write(b"\n")

    async def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        assert self._reader
        assert self._writer
        self._asked += 1
        self._writer.write(json.dumps({"op": op, "id": self._asked, **fields}).encode() + b"\n")
        async with asyncio.timeout(DEADLINE_S):
            while True:
                line = await self._reader.readline()
                assert line, f"the machine ended\n{self.console[-2000:]}"
                answer: dict[str, Any] = json.loads(line)
                if answer.get("id") == self._asked:
                    return answer

    async def run(self, *argv: str, stdin: bytes = b"", where: str = "guest", **fields: Any) -> dict[str, Any]:
        """Run a command inside; the answer with its outputs as text."""
        sent = base64.b64encode(stdin).decode()
        answer = await self.ask("exec", argv=list(argv), stdin=sent, **{"in": where}, **fields)
        return answer | {name: base64.b64decode(answer.get(name, "")).decode() for name in ("stdout", "stderr")}

    async def up(self) -> None:
        """Wait until every daemon runs."""
        status: dict[str, Any] = {}
        try:
            async with asyncio.timeout(DEADLINE_S):
                while not (status := await self.ask("status"))["ok"] or set(status["daemons"].values()) != {"up"}:  # noqa: ASYNC110
                    await asyncio.sleep(0.2)
        except TimeoutError:
            raise AssertionError(f"never got there: {status}\n{self.console[-2000:]}") from None

    async def gone(self) -> int:
        """Wait for QEMU's end; its exit status."""
        assert self.process
        async with asyncio.timeout(DEADLINE_S):
            return await self.process.wait()


@asynccontextmanager
async def machine_bed() -> AsyncIterator[MachineBed]:
    needs_image()
    with tempfile.TemporaryDirectory(prefix="sp-machine-") as name:
        bed = MachineBed(Path(name))
        listener = await asyncio.start_unix_server(bed._session, f"{name}/session.sock")
        try:
            yield bed
        finally:
            if bed.process and bed.process.returncode is None:
                bed.process.kill()
                await bed.process.wait()
            if bed._writer:
                bed._writer.close()
            listener.close()
