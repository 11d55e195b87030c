"""Edits into text. Every character outside the edits stays as it is."""

from __future__ import annotations

from collections.abc import Iterable

from h2dlint.model import Edit


class OverlapError(ValueError):
    """Two edits of one splice want the same characters."""


def splice(text: str, edits: Iterable[Edit]) -> str:
    """`text` (newlines as \\n) with the edits done; equal edits count once, insertions at one place keep their order.

    Raises OverlapError where two edits meet, ValueError where one lies outside the text.
    """
    starts = _line_starts(text)
    placed = sorted(
        ((_offset(text, starts, e.span.row, e.span.column), _offset(text, starts, e.span.end_row, e.span.end_column), e)
         for e in dict.fromkeys(edits)),
        key=lambda item: (item[0], item[1]),
    )  # fmt: skip
    pieces: list[str] = []
    done = 0
    for start, end, edit in placed:
        if start < done:
            raise OverlapError(f"two edits meet at row {edit.span.row}")
        pieces += [text[done:start], edit.content]
        done = end
    return "".join([*pieces, text[done:]])


def overlap(first: Iterable[Edit], second: Iterable[Edit]) -> bool:
    """Whether two fixes touch the same characters; edits that both make alike (one import) do not count."""
    shared = set(first) & set(second)
    return any(
        (_start(a) < _end(b) and _start(b) < _end(a)) or _start(a) == _start(b)
        for a in set(first) - shared
        for b in set(second) - shared
    )


def _start(edit: Edit) -> tuple[int, int]:
    return edit.span.row, edit.span.column


def _end(edit: Edit) -> tuple[int, int]:
    return edit.span.end_row, edit.span.end_column


def _line_starts(text: str) -> list[int]:
    starts = [0]
    for index, character in enumerate(text):
        if character == "\n":
            starts.append(index + 1)
    return starts


def _offset(text: str, starts: list[int], row: int, column: int) -> int:
    """The index into `text` of a row and a column in UTF-8 bytes."""
    if not 1 <= row <= len(starts):
        raise ValueError(f"row {row} lies outside the text")
    start = starts[row - 1]
    end = starts[row] - 1 if row < len(starts) else len(text)
    line = text[start:end].encode()
    if column > len(line):
        raise ValueError(f"column {column} lies outside row {row}")
    return start + len(line[:column].decode())
