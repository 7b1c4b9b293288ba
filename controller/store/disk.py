"""What has to be on the disk before anything relies on it."""

import os
from pathlib import Path


def sync_directory(directory: Path) -> None:
    """Wait until what was renamed in a directory is on the disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
