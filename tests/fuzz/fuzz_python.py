"""Fuzzes one Python target, coverage-guided; scripts/fuzz runs it.

fuzz_python.py FILE [options of libFuzzer] [corpus]…

The file has `try_one`, `seeds`, and in one line ``INSTRUMENTED``: the modules whose coverage guides.
"""

import ast
import importlib
import sys
from hashlib import sha1
from pathlib import Path

import atheris

_ROOT = Path(__file__).parents[2]


def main() -> None:
    """Fuzz until libFuzzer's options say that it is enough; an exception ends it and keeps the input."""
    file, options = Path(sys.argv[1]), sys.argv[2:]
    sys.path[:0] = [str(_ROOT), str(file.parent)]
    line = next(line for line in file.read_text().splitlines() if line.startswith("INSTRUMENTED = "))
    with atheris.instrument_imports(include=list(ast.literal_eval(line.partition("=")[2].strip()))):
        target = importlib.import_module(file.stem)
    corpora = [Path(option) for option in options if not option.startswith("-")]
    if len(corpora) > 1:  # the first is where libFuzzer writes to
        for octets in target.seeds():
            (corpora[0] / sha1(octets).hexdigest()).write_bytes(octets)
    atheris.Setup([sys.argv[0], *options], target.try_one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
