"""Which accelerator machines run on: KVM only where a machine really boots under it.

That /dev/kvm opens says little: inside some virtual machines it does, and a guest's kernel hangs. So a small machine
is booted once in each boot of the host, with the image's kernel and nothing else. It has to come as far as looking
for its root file system, which it does not find, panics, and so ends by itself. One that hangs says nothing and takes
a whole core: it is ended once it has had more time of one than any needs to its first line, however busy the host is.
What was found is kept in a file.
"""

import asyncio
import contextlib
import json
import os
import subprocess
from pathlib import Path

from controller.guests import pidfile
from controller.guests.guest_files import replace_file
from controller.guests.machine.command_line import QEMU, Accelerator, Sizes, base_options
from controller.guests.machine.image import Image

DEVICE = Path("/dev/kvm")
LIMIT_S = 6.0
"""Where KVM works the probe takes less than a second."""

SILENT_CPU_S = 2.0
"""A kernel says its first line after unpacking itself: half a second of a core."""

FILE = "accelerator.json"
_BOOTED = b"Unable to mount root fs"
_MEMORY_MIB = 128
_MAX_OUTPUT_BYTES = 1 << 20
_LOOK_S = 0.2
_SAY = "console=ttyS0 panic=-1 loglevel=6 earlyprintk=serial,ttyS0"


class AcceleratorProbe:
    """Chooses the accelerator of this host and remembers it in a directory."""

    def __init__(self, state: Path, device: Path = DEVICE, limit_s: float = LIMIT_S) -> None:
        self._file, self._device, self._limit_s = state / FILE, device, limit_s
        self._turn = asyncio.Lock()
        self._found: Accelerator | None = None
        self.reason = ""  # why machines are emulated

    async def choose(self, image: Image) -> Accelerator:
        """Return the accelerator for machines of this host; the first call of a boot may take `LIMIT_S`."""
        async with self._turn:
            if self._found is None:
                self._found = self._remembered()
            if self._found is None:
                self.reason = await self._try(image)
                self._found = Accelerator.TCG if self.reason else Accelerator.KVM
                kept = {"boot": pidfile.boot_id(), "accelerator": self._found.value, "reason": self.reason}
                with contextlib.suppress(OSError):
                    replace_file(self._file, json.dumps(kept).encode(), os.geteuid(), 0o600)
            return self._found

    def _remembered(self) -> Accelerator | None:
        try:
            kept = json.loads(self._file.read_text())
            if kept["boot"] != pidfile.boot_id():
                return None
            self.reason = str(kept["reason"])
            return Accelerator(kept["accelerator"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    async def _try(self, image: Image) -> str:
        """Return "" where a machine boots under KVM, else why not."""
        if not os.access(self._device, os.R_OK | os.W_OK):
            return f"{self._device} cannot be opened"
        process = await asyncio.create_subprocess_exec(
            QEMU,
            *base_options(Accelerator.KVM, Sizes(_MEMORY_MIB, 1)),
            *("-kernel", str(image.kernel), "-append", f"{image.append} {_SAY}", "-serial", "stdio"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        said = bytearray()
        reading = asyncio.create_task(_read_all(process, said))
        try:
            async with asyncio.timeout(self._limit_s):
                while not (await asyncio.wait({reading}, timeout=_LOOK_S))[0]:
                    if not said and pidfile.cpu_s(process.pid) > SILENT_CPU_S:
                        return f"a guest's kernel said nothing under KVM in {SILENT_CPU_S:.0f} s of a core"
                await process.wait()
        except TimeoutError:
            return f"a guest did not boot under KVM in {self._limit_s:.0f} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            await reading
        if process.returncode:
            how = "ended by signal" if process.returncode < 0 else "ended with status"
            return f"QEMU {how} {abs(process.returncode)} under KVM"
        return "" if _BOOTED in said else "a guest's kernel did not boot under KVM"


async def _read_all(process: asyncio.subprocess.Process, said: bytearray) -> None:
    assert process.stdout is not None
    while len(said) < _MAX_OUTPUT_BYTES and (piece := await process.stdout.read(65536)):
        said += piece
