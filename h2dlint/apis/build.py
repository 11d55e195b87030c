"""Makes `rows.json` of the *.toml files: `python -m h2dlint.apis.build`.

The TOML files are the source; the JSON file is the same content in a form that is read in under a millisecond.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from h2dlint.apis import Entry, drop_names, expand_names, find_errors, find_source

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = Path(__file__).parent
FILES = ("torch.toml", "torch_ops.toml", "numpy.toml", "others.toml")


def read_file(name: str) -> dict[str, Any]:
    """One of the tables of this folder as the TOML reader gives it."""
    file: dict[str, Any] = tomllib.loads((FOLDER / name).read_text(encoding="utf-8"))
    return file


def build_json() -> str:
    """The text of `rows.json`: the files in order, one a line."""
    files = (json.dumps(read_file(name), separators=(",", ":")) for name in FILES)
    return "[\n" + ",\n".join(files) + "\n]\n"


def validate_file(file: Mapping[str, Any], where: str) -> list[str]:
    """What is wrong with a table of this folder: its rows, names that stand twice, rows that nothing proves."""
    known = ("row", "aliases", "sources", "first")
    errors = [f"{where}: {key}: expected one of {', '.join(known)}" for key in file if key not in known]
    seen: set[str] = set()
    for number, group in enumerate(file["row"], 1):
        names = [name for _, name in expand_names(group)]
        here = f"{where}: row {number} ({names[0] if names else 'no names'})"
        errors += [f"{here}: {name} stands twice" for name in names if name in seen or names.count(name) > 1]
        errors += [f"{here}: {name} has no source" for name in names if not find_source(name, Entry("", group, file))]
        errors += [f"{here}: {error}" for error in find_errors(drop_names(group))]
        seen.update(names)
    return errors


def main() -> int:
    """Write `rows.json`, or print what is wrong with the files: 0 or 1."""
    errors = [error for name in FILES for error in validate_file(read_file(name), name)]
    if errors:
        print(*errors, sep="\n", file=sys.stderr)
        return 1
    (FOLDER / "rows.json").write_text(build_json(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
