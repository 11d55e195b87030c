"""Copies that held the host, from a trace: the value that both trace readers make, and the rows of the report.

A *stall* is one copy whose call kept the host for long. Its place is a Python frame, as far as the trace recorded one.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from h2dlint.model import Direction

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Frame:
    """A Python function on the stack; `line` is the first one of its definition, as profilers record it."""

    filename: str
    line: int
    function: str


@dataclass(frozen=True, slots=True)
class Stall:
    """One copy that held the host for `ns`.

    `kind` is the profiler's own name of it. `frame` is the innermost function outside PyTorch, `call` what that
    function called ("copy_"), the `turn`-th of `turns` calls of that name in that run of the function. `line` is
    the exact line where the trace has it, else 0. `label` is what else says where it was: an operator, an NVTX range.
    """

    kind: str
    direction: Direction
    memory: Literal["pageable", "pinned", "unknown"]
    bytes: int
    ns: int
    frame: Frame | None = None
    call: str = ""
    turn: int = 0
    turns: int = 0
    line: int = 0
    label: str = ""


@dataclass(frozen=True, slots=True)
class Moment:
    """When and in which thread a stall's call began; times in the trace's own unit."""

    thread: object
    start: float


class Cover(Generic[T]):
    """Finds for each moment the spans that hold it, from spans that arrive in any order.

    Memory grows with the moments and the spans that hold one, not with the spans seen.
    """

    def __init__(self, moments: Sequence[Moment]) -> None:
        self._starts: dict[object, list[tuple[float, int]]] = {}
        for number, moment in enumerate(moments):
            self._starts.setdefault(moment.thread, []).append((moment.start, number))
        for starts in self._starts.values():
            starts.sort()
        self._spans: list[list[tuple[float, T]]] = [[] for _ in moments]

    def add(self, thread: object, start: float, length: float, what: T) -> None:
        """One span of a thread."""
        starts = self._starts.get(thread)
        if not starts:
            return
        for moment, number in starts[bisect.bisect_left(starts, (start, -1)) :]:
            if moment > start + length:
                break
            self._spans[number].append((length, what))

    def holds(self, thread: object, start: float, length: float) -> bool:
        """Whether a span holds any moment."""
        starts = self._starts.get(thread)
        if not starts:
            return False
        at = bisect.bisect_left(starts, (start, -1))
        return at < len(starts) and starts[at][0] <= start + length

    def __iter__(self) -> Iterator[list[T]]:
        """For each moment in order, the spans that hold it, the shortest (innermost) first."""
        for spans in self._spans:
            yield [what for _, what in sorted(spans, key=lambda pair: pair[0])]


@dataclass(frozen=True, slots=True)
class Row:
    """All stalls of one kind at one place; `codes` and `messages` are of the findings there.

    `line` is 0 where neither the trace nor the source tells it; `lines` are then the candidates.
    """

    filename: str
    line: int
    lines: tuple[int, ...]
    function: str
    call: str
    kind: str
    direction: Direction
    memory: str
    label: str
    count: int
    bytes: int
    total_ns: int
    worst_ns: int
    codes: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """Where a stall is in the source: the file as found, and its line or the lines that it may be."""

    filename: str = ""
    line: int = 0
    lines: tuple[int, ...] = ()
    function: str = ""
    codes: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()


def rank_stalls(stalls: Iterable[tuple[Stall, Place]]) -> list[Row]:
    """One row for each place and kind, the most time lost first."""
    groups: dict[tuple[object, ...], list[tuple[Stall, Place]]] = {}
    for stall, place in stalls:
        groups.setdefault((place, stall.kind, stall.call, stall.label), []).append((stall, place))
    rows = [_make_row(group) for group in groups.values()]
    return sorted(rows, key=lambda row: (-row.total_ns, row.filename, row.line))


def _make_row(group: list[tuple[Stall, Place]]) -> Row:
    stall, place = group[0]
    times = [each.ns for each, _ in group]
    return Row(
        filename=place.filename,
        line=place.line,
        lines=place.lines,
        function=place.function,
        call=stall.call,
        kind=stall.kind,
        direction=stall.direction,
        memory=stall.memory,
        label=stall.label,
        count=len(group),
        bytes=sum(each.bytes for each, _ in group),
        total_ns=sum(times),
        worst_ns=max(times),
        codes=place.codes,
        messages=place.messages,
    )
