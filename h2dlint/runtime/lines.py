"""Where in its source an instruction stands."""

from __future__ import annotations

import dis
import functools
from itertools import islice
from types import CodeType


@functools.lru_cache(maxsize=4096)
def locate(code: CodeType, offset: int) -> tuple[int, int, int, int]:
    """First row, column, last row and end column of the expression at byte `offset` of `code`.

    All count from 1, columns in characters, the end exclusive. Columns are 0 where Python does not record them (3.10,
    or `-X no_debug_ranges`).
    """
    positions = getattr(code, "co_positions", None)
    if positions is not None:
        row, end_row, column, end = next(islice(positions(), offset // 2, None), (None, None, None, None))
        if row is not None and end_row is not None and column is not None and end is not None:
            start = _count_characters(code.co_filename, row, column) + 1
            return row, start, end_row, _count_characters(code.co_filename, end_row, end) + 1
    row = code.co_firstlineno
    for start, line in dis.findlinestarts(code):
        if start <= offset and line is not None:
            row = line
    return row, 0, row, 0


def _count_characters(filename: str, row: int, column: int) -> int:
    """A column in UTF-8 bytes -> in characters, as far as the source can be read."""
    import linecache

    line = linecache.getline(filename, row)
    return len(line.encode()[:column].decode(errors="ignore")) if line else column
