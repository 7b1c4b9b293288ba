"""The file of apply, diff and delete, read where the operator sits."""

import sys
from pathlib import Path


def read_document(path: Path) -> dict[str, object]:
    """Read a YAML file and the texts' files it names, as the API takes them; SpecError names what cannot be read."""
    from controller.errors import SpecError
    from controller.spec.parse import parse

    source = str(path) if str(path) != "-" else "<stdin>"
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text("utf-8")
    except OSError as problem:
        raise SpecError(source, None, f"{problem.strerror}; give another file with -f") from None
    except UnicodeDecodeError as problem:
        raise SpecError(source, None, f"is not UTF-8 text: {problem.reason} at octet {problem.start}") from None
    files: dict[str, str] = {}
    base = path.parent if str(path) != "-" else Path()
    for key, name, line in parse(text, source).text_files():
        try:
            files[name] = (base / name).read_text("utf-8")
        except OSError as problem:
            raise SpecError(source, line, f"{key} {name}: {problem.strerror}") from None
        except UnicodeDecodeError:
            raise SpecError(source, line, f"{key} {name} is not UTF-8 text") from None
        except ValueError as problem:  # a NUL in it
            raise SpecError(source, line, f"{key} {name}: {problem}") from None
    return {"source": source, "text": text, "files": files}
