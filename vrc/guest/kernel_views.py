"""/proc and /sys as a guest sees them: its own processes and network."""

from vrc.guest.kernel import MS_NODEV, MS_NOEXEC, MS_NOSUID, MS_RDONLY, mount


def mount_kernel_views() -> None:
    """Mount /proc and /sys of the PID and network namespaces that the calling process, root of the host, is in."""
    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    mount("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY)
