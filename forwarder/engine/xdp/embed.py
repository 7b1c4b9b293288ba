"""Writes a BPF object as the initializer of a C array: without what only a debugger wants, with its BTF.

embed.py LLVM_STRIP OBJECT OUTPUT
"""

import subprocess
import sys
import tempfile
from pathlib import Path


def main() -> None:
    """Strip and write."""
    strip, source, output = sys.argv[1:]
    with tempfile.NamedTemporaryFile(suffix=".o") as stripped:
        subprocess.run((strip, "-g", "-o", stripped.name, source), check=True)
        octets = Path(stripped.name).read_bytes()
    lines = (",".join(map(str, octets[at : at + 32])) for at in range(0, len(octets), 32))
    Path(output).write_text(",\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
