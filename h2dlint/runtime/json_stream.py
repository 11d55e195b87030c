"""Reads the events of a Chrome trace one by one, so that a trace of any size needs a few megabytes."""

from __future__ import annotations

import codecs
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

_CHUNK = 1 << 20
_AFTER = frozenset(",:]} \t\r\n")
_LONGEST = 1 << 26
"""Characters that a single event or header value may have."""


def read_events(path: Path) -> Iterator[dict[str, Any]]:
    """The trace events of a `.json` or `.json.gz` file: of its `traceEvents`, or of a bare array.

    Raises ValueError for what is no trace, is cut short, or holds a value of more than 64 MiB; OSError as reading does.
    """
    with _open(path) as stream:
        text = _Text(stream, path)
        match text.peek():
            case "[":
                yield from _read_array(text)
            case "{":
                yield from _read_object(text)
            case _:
                raise ValueError(f"{path}: not a JSON trace")


def _open(path: Path) -> BinaryIO:
    stream = path.open("rb")
    magic = stream.read(2)
    stream.seek(0)
    return gzip.open(stream) if magic == b"\x1f\x8b" else stream  # type: ignore[return-value]


class _Text:
    """A window on the decoded file that only moves forward."""

    def __init__(self, stream: BinaryIO, path: Path) -> None:
        self._stream, self._path = stream, path
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")(errors="replace")
        self._json = json.JSONDecoder(strict=False)
        self._text, self._at, self._ended = "", 0, False

    def peek(self) -> str:
        """The next character that is no white space; "" at the end."""
        while True:
            while self._at < len(self._text):
                if not self._text[self._at].isspace():
                    return self._text[self._at]
                self._at += 1
            if not self._fill(_CHUNK):
                return ""

    def skip(self, wanted: str) -> None:
        """Step over the next character, which must be one of `wanted`."""
        found = self.peek()
        if not found or found not in wanted:
            self._fail(f"expected {' or '.join(wanted)}")
        self._at += 1

    def value(self) -> Any:
        """Decode the next value; reads on until it is whole."""
        self.peek()
        more = _CHUNK
        while True:
            try:
                value, end = self._json.raw_decode(self._text, self._at)
            except (json.JSONDecodeError, RecursionError) as error:
                if isinstance(error, RecursionError) or len(self._text) - self._at > _LONGEST or not self._fill(more):
                    self._fail("not valid JSON or cut short")
            else:
                # A number may go on behind the window.
                whole = end < len(self._text) and (self._text[end] in _AFTER or not isinstance(value, (int, float)))
                if whole or not self._fill(more):
                    self._at = end
                    return value
            more *= 2

    def _fill(self, size: int) -> bool:
        """Read on by `size` bytes, dropping what is behind; False at the end of the file."""
        if self._ended:
            return False
        try:
            data = self._stream.read(size)
        except EOFError:
            self._fail("cut short")
        self._ended = not data
        self._text = self._text[self._at :] + self._decoder.decode(data, final=self._ended)
        self._at = 0
        return True

    def _fail(self, what: str) -> None:
        near = self._text[self._at : self._at + 40]
        raise ValueError(f"{self._path}: {what}, near {near!r}")


def _read_object(text: _Text) -> Iterator[dict[str, Any]]:
    text.skip("{")
    while text.peek() != "}":
        key = text.value()
        text.skip(":")
        if key == "traceEvents" and text.peek() == "[":
            yield from _read_array(text)
        else:
            text.value()
        if text.peek() != "}":
            text.skip(",")


def _read_array(text: _Text) -> Iterator[dict[str, Any]]:
    text.skip("[")
    while text.peek() != "]":
        event = text.value()
        if isinstance(event, dict):
            yield event
        if text.peek() != "]":
            text.skip(",")
    text.skip("]")
