"""The command line of a machine's QEMU: pure, from its sizes and its image."""

from dataclasses import dataclass
from enum import StrEnum

from controller.guests.launcher import HOME, Descriptor
from controller.guests.machine.image import Image
from controller.guests.machine.seed import SESSION
from controller.guests.machine.terminal import TERMINALS

QEMU = "/usr/bin/qemu-system-x86_64"
PYTHON = "/usr/bin/python3"  # of the relay: a virtual environment may lie where a machine's user cannot read
CONTROL_PORT, TERMINAL_PORT = "splitplane.control", "splitplane.terminal"

_TRANSLATED_MIB = 128  # of translated code that an emulated machine keeps: with 64 a boot translates much of it twice

_SANDBOX = "on,obsolete=deny,elevateprivileges=allow,resourcecontrol=deny"
"""QEMU's system call filter. It may start processes, the relays, and so call setsid(2), which everything but
`elevateprivileges=allow` forbids; it has no privileges to elevate (`as_user`)."""


class Accelerator(StrEnum):
    """What runs a machine's instructions: the host's processor, or software."""

    KVM = "kvm"
    TCG = "tcg"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How big a machine is."""

    memory_mib: int
    vcpus: int


def accelerator_options(accelerator: Accelerator) -> list[str]:
    """Return the options that choose how instructions are run."""
    if accelerator is Accelerator.KVM:
        return ["-accel", "kvm", "-cpu", "host"]
    # A fifth level of page tables would be walked in software, and maps nothing that the fourth does not. Where a
    # processor says that it moves octets fast (ERMS, FSRM), Linux copies and clears pages by `rep movsb` and
    # `rep stosb`, which are emulated octet by octet; else it moves words.
    return ["-accel", f"tcg,tb-size={_TRANSLATED_MIB}", "-cpu", "max,la57=off,erms=off,fsrm=off"]


def base_options(accelerator: Accelerator, sizes: Sizes) -> list[str]:
    """Return the options of any machine of ours: nothing is there that is not asked for."""
    return [
        *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-machine", "q35,usb=off,vmport=off"),
        *accelerator_options(accelerator),
        *("-m", str(sizes.memory_mib), "-smp", str(sizes.vcpus), "-rtc", "base=utc"),
        *("-sandbox", _SANDBOX),
    ]


def machine_command(name: str, accelerator: Accelerator, sizes: Sizes, image: Image) -> list[str]:
    """Return QEMU's command; files and sockets are the descriptors that the launcher opened."""
    kernel = f"{image.append} console=ttyS0 panic=-1 splitplane.seed=/dev/vdb".strip()
    relay = f"{PYTHON} -I -S {HOME}/relay.py {HOME}/relay {HOME}/session/session.sock"
    link = f"user,id=session,restrict=on,ipv6=off,guestfwd=tcp:{SESSION[0]}:{SESSION[1]}-cmd:{relay}"
    return [
        QEMU,
        *("-name", f"{name},debug-threads=off"),
        *base_options(accelerator, sizes),
        *("-kernel", f"/proc/self/fd/{Descriptor.KERNEL}", "-initrd", f"/proc/self/fd/{Descriptor.INITRD}"),
        *("-append", kernel),
        *_disk("root", Descriptor.ROOT, 1),
        *_disk("seed", Descriptor.SEED, 2),
        *("-netdev", link, "-device", "virtio-net-pci,netdev=session,romfile="),
        *("-device", "virtio-rng-pci"),
        *("-device", "virtio-serial-pci", "-chardev", _socket("control", Descriptor.CONTROL)),
        *("-device", f"virtserialport,chardev=control,name={CONTROL_PORT}"),
        *(word for number in range(TERMINALS) for word in _terminal(number)),
        *("-add-fd", f"fd={Descriptor.CONSOLE_LOG},set=3"),
        *("-chardev", f"{_socket('console', Descriptor.CONSOLE)},logfile=/dev/fdset/3,logappend=on"),
        *("-serial", "chardev:console"),
        *("-chardev", _socket("qmp", Descriptor.QMP), "-mon", "chardev=qmp,mode=control"),
    ]


def _disk(name: str, descriptor: Descriptor, number: int) -> list[str]:
    file = f"file=/dev/fdset/{number},file.locking=off"
    drive = f"if=none,id={name},format=raw,readonly=on,{file}"
    return ["-add-fd", f"fd={descriptor},set={number}", "-drive", drive, "-device", f"virtio-blk-pci,drive={name}"]


def _terminal(number: int) -> list[str]:
    name = f"terminal{number}"
    chardev = _socket(name, Descriptor[name.upper()])
    return ["-chardev", chardev, "-device", f"virtserialport,chardev={name},name={TERMINAL_PORT}{number}"]


def _socket(name: str, descriptor: Descriptor) -> str:
    return f"socket,id={name},fd={descriptor},server=on,wait=off"
