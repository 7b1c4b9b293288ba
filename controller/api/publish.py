"""Writes the documents that describe the interfaces: ``python -m controller.api.publish docs``."""

import json
import sys
from pathlib import Path
from typing import Any

from controller.api.app import make_app
from controller.spec.document import schema

DOCUMENTS = ("schema.json", "openapi.json")


def documents() -> dict[str, str]:
    """Return the text of each published document by file name."""
    contents: tuple[dict[str, Any], ...] = (schema(), make_app().openapi())
    return {
        name: json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        for name, content in zip(DOCUMENTS, contents, strict=True)
    }


def main() -> None:
    """Write every document into the directory given as the only argument."""
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else "docs")
    for name, text in documents().items():
        (directory / name).write_text(text)


if __name__ == "__main__":
    main()
