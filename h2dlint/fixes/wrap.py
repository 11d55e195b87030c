"""Breaks lines that a fix made too long, the way black does: at the last bracket, then one argument a line."""

from __future__ import annotations

import ast
import io
import itertools
import sys
import tokenize
from functools import lru_cache
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DEFAULT_LIMIT = 88
_OPEN, _CLOSE = "([{", ")]}"


def read_toml(text: str) -> dict[str, Any]:
    """A TOML document. Raises ValueError where it is none."""
    document: dict[str, Any] = tomllib.loads(text)
    return document


@lru_cache(maxsize=256)
def line_limit(folder: Path) -> int:
    """The line length that the nearest pyproject.toml sets for ruff or black, else black's own 88."""
    for parent in (folder, *folder.parents):
        try:
            tools = read_toml((parent / "pyproject.toml").read_text("utf-8")).get("tool", {})
        except (OSError, ValueError):
            continue
        for found in (tools.get("ruff", {}).get("line-length"), tools.get("black", {}).get("line-length")):
            if isinstance(found, int):
                return found
    return DEFAULT_LIMIT


def wrap(line: str, limit: int, unit: str) -> str:
    """`line` (one statement, no newline in it) on several lines if it is longer than `limit`, else as it is."""
    if len(line.expandtabs(4)) <= limit:
        return line
    if parts := _conditional(line.strip()):
        indent = line[: len(line) - len(line.lstrip())]
        rows = [wrap(indent + unit + part, limit, unit) for part in parts[1:]]
        return "\n".join([f"{indent}{parts[0]}(", *rows, f"{indent})"])
    broken = [_broken(line, *pair, limit, unit) for pair in reversed(_top_brackets(line)) if pair[1] - pair[0] > 1]
    fitting = (text for text in broken if len(text.split("\n")[0].expandtabs(4)) <= limit)
    return next(fitting, broken[0] if broken else line)


def _conditional(statement: str) -> tuple[str, ...]:
    """`x = a if b else c` as "x = ", "a", "if b", "else c"; nothing for another statement."""
    try:
        tree = ast.parse(statement).body
    except SyntaxError:
        return ()
    match tree:
        case [ast.Assign(value=ast.IfExp(body=body, test=test, orelse=orelse) as value)] if value.end_col_offset == len(
            statement.encode()
        ):
            parts = [ast.get_source_segment(statement, node) or "" for node in (body, test, orelse)]
            head = statement.encode()[: value.col_offset].decode()
            return head, parts[0], f"if {parts[1]}", f"else {parts[2]}"
        case _:
            return ()


def _broken(line: str, start: int, end: int, limit: int, unit: str) -> str:
    indent = line[: len(line) - len(line.lstrip())]
    inner, body = indent + unit, line[start + 1 : end]
    if len((inner + body).expandtabs(4)) <= limit:
        return f"{line[: start + 1]}\n{inner}{body}\n{indent}{line[end:]}"
    parts, comma = _split(body)
    rows = [wrap(inner + part, limit, unit) + comma for part in parts]
    return "\n".join([line[: start + 1], *rows, indent + line[end:]])


def _tokens(line: str) -> list[tokenize.TokenInfo]:
    try:
        return list(tokenize.generate_tokens(io.StringIO(line.strip() + "\n").readline))
    except (tokenize.TokenError, SyntaxError):
        return []


def _top_brackets(line: str) -> list[tuple[int, int]]:
    """Where the outermost brackets of the line open and close."""
    shift = len(line) - len(line.lstrip())
    found, stack = [], []
    for token in _tokens(line):
        if token.type != tokenize.OP:
            continue
        if token.string in _OPEN:
            stack.append(token.start[1] + shift)
        elif token.string in _CLOSE and stack:
            opened = stack.pop()
            if not stack:
                found.append((opened, token.start[1] + shift))
    return found


def _split(body: str) -> tuple[list[str], str]:
    """What stands between two brackets, in parts for a line each, and what follows each part.

    Arguments part at their commas; a comprehension before each `for` and the `if`s behind it.
    """
    depth = 0
    commas: list[int] = []
    clauses: list[int] = []
    for token in _tokens(f"({body})"):
        if token.type == tokenize.OP:
            depth += (token.string in _OPEN) - (token.string in _CLOSE)
            if token.string == "," and depth == 1:
                commas.append(token.start[1] - 1)
        elif depth == 1 and (token.string == "for" or (token.string == "if" and clauses)):
            clauses.append(token.start[1] - 1)
    edges = [-1, *commas, len(body)]
    if clauses:
        edges = [-1, *(place - 1 for place in clauses), len(body)]
    parts = [body[a + 1 : b].strip() for a, b in itertools.pairwise(edges)]
    return [part for part in parts if part], "," if commas and not clauses else ""
