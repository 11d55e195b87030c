"""From which row count on a loop over rows costs too much: `python -m benchmarks.gpu.break_even DATA.json`.

The loop is what a reader expects, and it needs no second buffer, so the fix keeps it for as long as it takes the host
at most `PATIENCE` times what staging does, for every row length measured. With more rows it stages the data. Hosts
differ by a factor of two in these microseconds, but hardly in the ratio, so a ratio decides.
"""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any

PATIENCE = 1.75
LOOP, STAGING = "rows by index", "staging"


def find_largest_loop(table: list[dict[str, Any]]) -> int:
    """The largest row count up to which the loop is affordable at each row length.

    Raises ValueError for an empty table.
    """
    counts = sorted({row["rows"] for row in table})
    if not counts:
        raise ValueError("no measurements")
    affordable = 0
    for count in counts:
        ways = [row["ways"] for row in table if row["rows"] == count]
        if any(each[LOOP]["host"] > PATIENCE * each[STAGING]["host"] for each in ways):
            break
        affordable = count
    return affordable


def main(argv: list[str]) -> int:
    print(find_largest_loop(json.loads(pathlib.Path(argv[0]).read_text())["rows"]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
