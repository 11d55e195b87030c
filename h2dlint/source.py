"""The bytes of one file: encoding, newline style, gate words, columns, and edits that touch nothing else.

Everything after this stage sees text with "\\n" newlines and no byte order mark, which is also what Python's own parser
sees, so that the positions of `ast` fit. Edits are carried back to the file's own bytes.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import re
import tokenize
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from weakref import WeakKeyDictionary

from h2dlint.model import Edit

ASYNC_WORDS = (b"non_blocking",)
OPT_IN_WORDS = (b"non_blocking", b".to(", b".cuda", b"copy_", b"device", b"cuda")

_BOM = b"\xef\xbb\xbf"
_NEWLINE = re.compile(r"\r\n?|\n")
_BYTE_NEWLINE = re.compile(rb"\r\n?|\n")


class SourceError(ValueError):
    """A file that Python could not read either. `row` is where, from 1; the message is one line."""

    def __init__(self, filename: str, row: int, message: str) -> None:
        super().__init__(f"{filename}:{row}: {message}")
        self.filename = filename
        self.row = row
        self.message = message


@dataclass(frozen=True, slots=True)
class Source:
    """One file. `raw` is its decoded text with its own newlines, `text` the same with "\\n"; neither has the BOM."""

    filename: str
    data: bytes
    encoding: str
    raw: str
    text: str

    @property
    def lines(self) -> list[str]:
        """The lines without newlines; row r is `lines[r - 1]`. Unlike `str.splitlines`, a form feed ends no line."""
        return self.text.split("\n")


def read_source(filename: str, data: bytes) -> Source:
    """Decode the bytes as Python does: byte order mark, coding cookie, else UTF-8. Raises SourceError."""
    if b"\0" in data:
        row = len(_BYTE_NEWLINE.findall(data[: data.index(b"\0")])) + 1
        raise SourceError(filename, row, "holds a null byte, which Python cannot read; is it UTF-16 or a binary file?")
    encoding = _detect_encoding(filename, data)
    body = data.removeprefix(_BOM)
    try:
        raw = body.decode(encoding)
    except (LookupError, UnicodeError) as error:
        if not isinstance(error, UnicodeDecodeError):
            raise SourceError(filename, 1, f"cannot be decoded as {encoding}: {error}") from None
        row = len(_BYTE_NEWLINE.findall(body[: error.start])) + 1
        declared = "and no encoding is declared" if encoding == "utf-8" else "though its first lines declare it"
        raise SourceError(
            filename,
            row,
            f"is not {encoding} (byte 0x{body[error.start]:02x}) {declared}; save it as UTF-8 or declare its encoding, "
            "e.g. '# -*- coding: latin-1 -*-' in the first line",
        ) from None
    return Source(filename, data, encoding, raw, _NEWLINE.sub("\n", raw))


def wrap_text(filename: str, text: str) -> Source:
    """A source from text that was decoded already. Raises SourceError.

    Its bytes are those of the encoding that it declares, or UTF-8 where that one cannot hold it.
    """
    if "\0" in text:
        raise SourceError(filename, text.count("\n", 0, text.index("\0")) + 1, "holds a null byte")
    raw = text.removeprefix("\ufeff")
    try:
        data, encoding = text.encode(), "utf-8"
    except UnicodeEncodeError as error:
        row = text.count("\n", 0, error.start) + 1
        raise SourceError(filename, row, "holds a lone surrogate, which Python cannot compile") from None
    with contextlib.suppress(SourceError, UnicodeError, LookupError):
        declared = _detect_encoding(filename, data)
        data, encoding = data if declared == "utf-8" else raw.encode(declared), declared
    return Source(filename, data, encoding, raw, _NEWLINE.sub("\n", raw))


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Without garbage collection: trees and answers are kept for the whole run, and each collection walks them all."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def parse(source: Source) -> ast.Module:
    """The syntax tree. Raises SourceError for what Python cannot parse, too deep nesting included."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source.text, source.filename)
    except SyntaxError as error:
        raise SourceError(source.filename, error.lineno or 1, f"syntax error: {error.msg}") from None
    except (RecursionError, MemoryError):
        raise SourceError(source.filename, 1, "is nested too deeply for Python's parser") from None
    except ValueError as error:
        raise SourceError(source.filename, 1, f"syntax error: {error}") from None


def splice(source: Source, edits: Iterable[Edit]) -> Source:
    """The source after the edits: equal ones count once, insertions at one place keep their order.

    Every byte outside their spans stays as it is.
    Newlines in the contents take the style of the line that they go to. Raises ValueError for edits that overlap, that
    lie outside the text or that the file's encoding cannot hold.
    """
    if _encode(source, source.raw) != source.data:
        raise ValueError(f"the encoding {source.encoding} does not give the same bytes back")
    pieces = _split_lines(source.raw)
    starts = [0]
    for piece in pieces:
        starts.append(starts[-1] + len(piece))
    placed = [
        (
            starts[edit.span.row - 1] + _characters(pieces, edit.span.row, edit.span.column),
            starts[edit.span.end_row - 1] + _characters(pieces, edit.span.end_row, edit.span.end_column),
            edit.content.replace("\n", _newline_at(pieces, edit.span.row)),
        )
        for edit in dict.fromkeys(edits)
    ]
    parts: list[str] = []
    done = 0
    for start, end, content in sorted(placed, key=lambda one: one[:2]):
        if start < done or end < start:
            raise ValueError("edits overlap")
        parts += source.raw[done:start], content
        done = end
    raw = "".join([*parts, source.raw[done:]])
    try:
        data = _encode(source, raw)
    except UnicodeEncodeError as error:
        raise ValueError(f"the encoding {source.encoding} cannot hold {raw[error.start]!r}") from None
    return Source(source.filename, data, source.encoding, raw, _NEWLINE.sub("\n", raw))


def count_characters(line: str, column: int) -> int:
    """How many characters the first `column` UTF-8 bytes of the line are."""
    return column if line.isascii() else len(line.encode()[:column].decode(errors="ignore"))


def count_bytes(line: str, column: int) -> int:
    """How many UTF-8 bytes the first `column` characters of the line are."""
    return column if line.isascii() else len(line[:column].encode())


def statement_rows(tree: ast.Module, row: int, column: int) -> tuple[int, int]:
    """First and last row of the innermost statement around a position (column in bytes from 0).

    Of a compound statement only the header counts: a comment in its body speaks of other code.
    """
    best = (row, row)
    if tree not in _rows_of:
        _rows_of[tree] = _index_rows(tree)
    for first, head, start, start_column in _rows_of[tree].get(row, ()):
        if start != row or start_column <= column:
            best = (first, head)
    return best


# Of each row the statements with a header on it: first row, last row of the header, row and column of its first token.
_Header = tuple[int, int, int, int]
_rows_of: WeakKeyDictionary[ast.Module, dict[int, list[_Header]]] = WeakKeyDictionary()


def _index_rows(tree: ast.Module) -> dict[int, list[_Header]]:
    """The headers by row; of a row the outer ones first."""
    found: dict[int, list[_Header]] = {}
    pending: list[ast.AST] = [tree]
    while pending:
        for child in ast.iter_child_nodes(pending.pop()):
            if isinstance(child, (ast.excepthandler, ast.match_case)):
                pending.append(child)
            if not isinstance(child, ast.stmt):
                continue
            pending.append(child)
            first, last = _first_row(child), child.end_lineno or child.lineno
            body = getattr(child, "body", None) or getattr(child, "cases", None)
            head = max(first, _first_row(body[0]) - 1) if body else last
            for row in range(first, head + 1):
                found.setdefault(row, []).append((first, head, child.lineno, child.col_offset))
    return found


def _first_row(node: ast.AST) -> int:
    rows: list[int] = [one.lineno for one in getattr(node, "decorator_list", ())]
    first: int = getattr(node.pattern if isinstance(node, ast.match_case) else node, "lineno", 1)
    return min([first, *rows])


def _detect_encoding(filename: str, data: bytes) -> str:
    # tokenize splits at "\n" only; Python itself also ends a line at a lone "\r".
    head = iter([line + b"\n" for line in _BYTE_NEWLINE.split(data[:8192], maxsplit=2)[:2]])
    try:
        encoding, _ = tokenize.detect_encoding(lambda: next(head, b""))
    except SyntaxError as error:
        if "invalid or missing encoding" in str(error):
            return "utf-8"
        raise SourceError(filename, 1, f"has a wrong encoding declaration: {error.msg}") from None
    return "utf-8" if encoding == "utf-8-sig" else encoding


def _encode(source: Source, raw: str) -> bytes:
    return (_BOM if source.data.startswith(_BOM) else b"") + raw.encode(source.encoding)


def _split_lines(raw: str) -> list[str]:
    """The lines with their newlines; the last one, perhaps empty, has none."""
    ends = [0, *(match.end() for match in _NEWLINE.finditer(raw)), len(raw)]
    return [raw[start:end] for start, end in pairwise(ends)]


def _characters(pieces: Sequence[str], row: int, column: int) -> int:
    line = pieces[row - 1].rstrip("\r\n")
    characters = count_characters(line, column)
    if characters > len(line):
        raise ValueError(f"an edit ends outside of line {row}")
    return characters


def _newline_at(pieces: Sequence[str], row: int) -> str:
    """The newline that ends the row, else that of the nearest line before it, else "\\n"."""
    for piece in reversed(pieces[:row]):
        if match := _NEWLINE.search(piece):
            return match[0]
    return "\n"
