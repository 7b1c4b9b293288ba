# SPDX-License-Identifier: Apache-2.0
"""Writes what the server needs of p4src/golden as C++: embed.py P4INFO JSON OUTPUT.

P4Info does not tell the entries of constant tables, the JSON for BMv2 does: one line for each, with the table, the
priority as P4Runtime counts it, VALUE/MASK for each field, the action and its values, all numbers in hexadecimal.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_TEMPLATE = """#include "server/golden.h"

namespace splitplane {{

std::string_view golden_p4info() {{
    static constexpr char kText[] = R"p4info({p4info})p4info";
    return {{kText, sizeof kText - 1}};
}}

std::string_view golden_entries() {{
    static constexpr char kText[] = R"entries({entries})entries";
    return {{kText, sizeof kText - 1}};
}}

}}  // namespace splitplane
"""


def _digits(value: str) -> str:
    digits = value.removeprefix("0x")
    return "0" * (len(digits) % 2) + digits


def _entries(program: Any) -> Iterator[str]:
    names = {action["id"]: action["name"] for action in program["actions"]}
    for pipeline in program["pipelines"]:
        for table in pipeline["tables"]:
            count = len(table.get("entries", ()))
            for entry in table.get("entries", ()):
                fields = [f"{_digits(key['key'])}/{_digits(key['mask'])}" for key in entry["match_key"]]
                action = entry["action_entry"]
                values = [_digits(value) for value in action["action_data"]]
                priority = format(count + 1 - entry["priority"], "x")
                yield " ".join((table["name"], priority, *fields, names[action["action_id"]], *values))


def main() -> None:
    """Write the file."""
    p4info, program, output = (Path(name) for name in sys.argv[1:])
    entries = "\n".join(_entries(json.loads(program.read_text())))
    output.write_text(_TEMPLATE.format(p4info=p4info.read_text(), entries=entries))


if __name__ == "__main__":
    main()
