"""Builds a libFuzzer target from C and C++ with clang, under AddressSanitizer and UndefinedBehaviorSanitizer.

fuzz_build.py CLANG OUTPUT SOURCE_ROOT GENERATED SOURCES...
"""

import subprocess
import sys
import tempfile
from pathlib import Path

_FLAGS = ("-O1", "-g", "-fsanitize=fuzzer-no-link,address,undefined", "-fno-sanitize-recover=all")


def main() -> None:
    """Compile each and link."""
    clang, output, root, generated, *sources = sys.argv[1:]
    with tempfile.TemporaryDirectory() as directory:
        objects = []
        for source in sources:
            standard = "-std=gnu11" if source.endswith(".c") else "-std=c++20"
            built = Path(directory) / f"{len(objects)}.o"
            command = (clang, *_FLAGS, standard, "-I", root, "-I", generated, "-c", source, "-o", str(built))
            subprocess.run(command, check=True)
            objects.append(str(built))
        link = (f"{clang}++", "-fsanitize=fuzzer,address,undefined", *objects, "-lpthread")
        subprocess.run((*link, "-o", output), check=True)


if __name__ == "__main__":
    main()
