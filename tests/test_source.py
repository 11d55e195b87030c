"""Bytes in, text out, and edits that touch nothing else."""

from __future__ import annotations

import ast
import codecs

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from h2dlint.model import Edit, Span
from h2dlint.source import (
    Source,
    SourceError,
    count_bytes,
    count_characters,
    parse,
    read_source,
    splice,
    statement_rows,
    wrap_text,
)


def edit(row: int, column: int, end_row: int, end_column: int, content: str) -> Edit:
    return Edit(Span("a.py", row, column, end_row, end_column), content)


@pytest.mark.parametrize(
    ("data", "encoding", "text"),
    [
        (b"", "utf-8", ""),
        (b"x = 1", "utf-8", "x = 1"),
        (b"x\r\ny\r\n", "utf-8", "x\ny\n"),
        (b"x\ry\r\nz\n", "utf-8", "x\ny\nz\n"),
        (codecs.BOM_UTF8 + b"x = 1\n", "utf-8", "x = 1\n"),
        (codecs.BOM_UTF8 + b"# coding: utf-8\n", "utf-8", "# coding: utf-8\n"),
        (b"# -*- coding: latin-1 -*-\nx = '\xe9'\n", "iso-8859-1", "# -*- coding: latin-1 -*-\nx = 'é'\n"),
        (b"#!/usr/bin/python\n# vim: set fileencoding=cp1252 :\nx = '\x80'", "cp1252", None),
        (b"#!/usr/bin/python\r# coding: latin-1\rx = '\xe9'\r", "iso-8859-1", None),
        ("x = 'é'\n".encode(), "utf-8", "x = 'é'\n"),
        (b"a = 1\n\x0cb = 2\n", "utf-8", "a = 1\n\x0cb = 2\n"),
    ],
)
def test_reads_as_python_does(data: bytes, encoding: str, text: str | None) -> None:
    source = read_source("a.py", data)
    assert source.encoding == encoding
    if text is not None:
        assert source.text == text
    assert ast.dump(parse(source)) == ast.dump(ast.parse(data)), "Python's own reading of the bytes"


@pytest.mark.parametrize(
    ("data", "row", "words"),
    [
        (b"x = 1\ny = '\xe9'\n", 2, ["not utf-8", "0xe9", "no encoding is declared", "coding: latin-1"]),
        (b"# coding: ascii\nx = '\xe9'\n", 2, ["not ascii", "declare"]),
        (b"# coding: nonsense\n", 1, ["nonsense"]),
        (b"# coding: rot13\nk = 1\n", 1, ["rot13"]),
        (codecs.BOM_UTF8 + b"# coding: latin-1\n", 1, ["declaration"]),
        (b"x = 1\ny\0 = 2\n", 2, ["null byte"]),
        ("x = 1\n".encode("utf-16"), 1, ["null byte", "UTF-16"]),
    ],
)
def test_says_in_one_line_why_it_cannot_read(data: bytes, row: int, words: list[str]) -> None:
    with pytest.raises(SourceError) as caught:
        read_source("a.py", data)
    assert caught.value.row == row
    assert "\n" not in str(caught.value)
    for word in ["a.py", *words]:
        assert word in str(caught.value)


@pytest.mark.parametrize("text", ["def f(:\n", "x = (\n", "if x:\ny\n", "x = 1\n\tif\n", "(" * 100_000, "x = '\ud800'"])
def test_what_python_cannot_parse_is_one_line(text: str) -> None:
    with pytest.raises(SourceError) as caught:
        parse(wrap_text("a.py", text))
    assert "\n" not in str(caught.value)


def test_a_cookie_in_text_has_no_meaning() -> None:
    source = wrap_text("a.py", "# coding: latin-1\nx = 'é€'\n")
    assert parse(source).body[0].value.value == "é€"  # type: ignore[attr-defined]


def test_text_gets_the_bytes_of_the_encoding_that_it_declares() -> None:
    data = "# coding: latin-1\nx = 'é'\n".encode("latin-1")
    assert wrap_text("a.py", read_source("a.py", data).raw) == read_source("a.py", data)


def test_no_warning_of_the_parser_gets_out(recwarn: pytest.WarningsRecorder) -> None:
    parse(wrap_text("a.py", "x = '\\d'\nx is 1\n"))
    assert not recwarn.list


@pytest.mark.parametrize(
    ("data", "edits", "after"),
    [
        (b"a = 1\n", [], b"a = 1\n"),
        (b"a = 1", [edit(1, 4, 1, 5, "2")], b"a = 2"),
        (b"a\r\nb\r\n", [edit(2, 0, 2, 1, "c\nd")], b"a\r\nc\r\nd\r\n"),
        (b"a\r\nb\nc\r", [edit(2, 1, 2, 1, "\nx"), edit(3, 0, 3, 1, "y\nz")], b"a\r\nb\nx\ny\rz\r"),
        (b"a\r\nb", [edit(2, 1, 2, 1, "\nc")], b"a\r\nb\r\nc"),
        (codecs.BOM_UTF8 + b"a = 1\n", [edit(1, 0, 1, 1, "b")], codecs.BOM_UTF8 + b"b = 1\n"),
        ("é = f(ü)\n".encode(), [edit(1, 5, 1, 6, "g")], "é = g(ü)\n".encode()),
        (b"# coding: latin-1\n'\xe9'; f()\n", [edit(2, 6, 2, 7, "g")], b"# coding: latin-1\n'\xe9'; g()\n"),
        (b"f(\n  1,\n)\nx\n", [edit(1, 0, 3, 1, "g()")], b"g()\nx\n"),
        (b"a\n", [edit(1, 0, 1, 1, "b"), edit(1, 0, 1, 1, "b")], b"b\n"),
        (b"a\n", [edit(1, 0, 1, 0, "2"), edit(1, 0, 1, 0, "1")], b"21a\n"),
        (b"a\n\x0cb\n", [edit(2, 1, 2, 2, "c")], b"a\n\x0cc\n"),
    ],
)
def test_splice_touches_only_the_spans(data: bytes, edits: list[Edit], after: bytes) -> None:
    source = splice(read_source("a.py", data), edits)
    assert source.data == after
    assert source == read_source("a.py", after)


@pytest.mark.parametrize(
    ("data", "edits"),
    [
        (b"abc\n", [edit(1, 0, 1, 2, "x"), edit(1, 1, 1, 3, "y")]),
        (b"abc\n", [edit(1, 2, 1, 1, "x")]),
        (b"abc\n", [edit(1, 0, 1, 9, "x")]),
        (b"# coding: latin-1\na\n", [edit(2, 0, 2, 1, "€")]),
        (b"# coding: utf-7\nx = '+AGE-'\n", [edit(2, 0, 2, 1, "y")]),
    ],
)
def test_splice_refuses(data: bytes, edits: list[Edit]) -> None:
    with pytest.raises(ValueError):
        splice(read_source("a.py", data), edits)


ROWS = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"), min_size=1, max_size=12), min_size=1, max_size=6
)


@given(ROWS, st.lists(st.sampled_from(["\n", "\r\n", "\r"]), min_size=6, max_size=6), st.data())
@settings(max_examples=200, deadline=None)
def test_splice_keeps_every_byte_outside(rows: list[str], ends: list[str], data: st.DataObject) -> None:
    rows[0] = "#" + rows[0].replace("coding", "").removeprefix("\ufeff")
    if len(rows) > 1:
        rows[1] = "#" + rows[1].replace("coding", "")
    pieces = [row + end for row, end in zip(rows, ends)]
    source = wrap_text("a.py", "".join(pieces))
    row = data.draw(st.integers(0, len(rows) - 1))
    column = data.draw(st.integers(0, len(rows[row])))
    place = count_bytes(rows[row], column)
    after = splice(source, [edit(row + 1, place, row + 1, place, "NEW")])
    before = len("".join(pieces[:row])) + column
    assert after.raw == source.raw[:before] + "NEW" + source.raw[before:]


@pytest.mark.parametrize(("line", "column", "characters"), [("abc", 2, 2), ("é = x", 2, 1), ("𝔘x", 4, 1), ("é", 0, 0)])
def test_columns(line: str, column: int, characters: int) -> None:
    assert count_characters(line, column) == characters
    assert count_bytes(line, characters) == column


STATEMENTS = """\
@decorate(
    f())
def g(a=f(),
      b=2):
    # about the body
    x = 1; f(
        2)
    if f():
        y = f()
    elif f(
    ):
        pass
    match f():
        case [a] if f():
            z = f()
    try:
        pass
    except f():
        w = (
            f())
    with f() as q: f()
"""
EXPECTED = {
    2: (1, 5),
    3: (1, 5),
    6: (6, 7),
    8: (8, 8),
    9: (9, 9),
    10: (10, 11),
    13: (13, 13),
    15: (15, 15),
    20: (19, 20),
    21: (21, 21),
}


@pytest.mark.parametrize("row", EXPECTED)
def test_statement_rows(row: int) -> None:
    tree = ast.parse(STATEMENTS)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "f"]
    call = next(node for node in calls if node.lineno == row)
    assert statement_rows(tree, row, call.col_offset) == EXPECTED[row]


def test_sources_are_values() -> None:
    assert read_source("a.py", b"x") == Source("a.py", b"x", "utf-8", "x", "x")
