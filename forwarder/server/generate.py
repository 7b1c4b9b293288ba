# SPDX-License-Identifier: Apache-2.0
"""Runs protoc, for meson, which wants all outputs in one folder: generate.py PROTOC PLUGIN PROTOS OUTPUT NAME…

Each NAME is a .proto file below PROTOS without its ending; the first one has the service. What protoc makes keeps its
folders below OUTPUT; beside it, NAME.cc includes it; protos.h is
what targets wait for.
"""

import subprocess
import sys
from pathlib import Path


def main() -> None:
    """Write the sources and what includes them."""
    protoc, plugin, protos, output, *names = sys.argv[1:]
    sources = [f"{protos}/{name}.proto" for name in names]
    subprocess.run([protoc, f"-I{protos}", f"--cpp_out={output}", *sources], check=True)
    grpc = [f"--plugin=protoc-gen-grpc={plugin}", f"--grpc_out={output}"]
    subprocess.run([protoc, f"-I{protos}", *grpc, sources[0]], check=True)
    folder = Path(output)
    for name in names:
        (folder / f"{Path(name).name}.cc").write_text(f'#include "{name}.pb.cc"\n')
    (folder / "protos.h").write_text("#pragma once\n")
    (folder / f"{Path(names[0]).name}.grpc.cc").write_text(f'#include "{names[0]}.grpc.pb.cc"\n')


if __name__ == "__main__":
    main()
