"""PyTorch profiler (Kineto) traces -> the copies that held the host.

What a trace holds of a copy: a `gpu_memcpy` event that names both memories, a `cuda_runtime` event (the call, on the
host) of the same correlation, a synchronisation under the same operator where the copy was a blocking one, and, with
`with_stack=True`, `python_function` events: one for each call, Python functions named by file and *first* line, C
functions by name. So the line of a copy is not in the trace; which call of that name it was, is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from h2dlint.model import Direction
from h2dlint.runtime.json_stream import read_events
from h2dlint.runtime.stalls import Cover, Frame, Moment, Stall

_FRAME = re.compile(r"(?P<file>.+)\((?P<line>\d+)\): (?P<function>.+)", re.DOTALL)
_BUILTIN = re.compile(r"<built-in (?:method|function) (?P<name>\w+)")
_MEMCPY_KIND = re.compile(r"Memcpy (?P<way>\w+) \((?P<source>\w+) -> (?P<target>\w+)\)")
_DIRECTIONS: dict[str, Direction] = {"HtoD": "h2d", "DtoH": "d2h"}


@dataclass(slots=True)
class _Copy:
    """A copy as the first pass gathers it; times in microseconds."""

    thread: object
    start: float
    length: float
    operator: object
    kind: str = ""
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class _Span:
    """A Python call or an operator that was running; `number` and `parent` are Kineto's ids of Python calls."""

    name: str
    python: bool
    thread: object
    start: float
    number: object
    parent: object


def read_kineto(path: Path, min_ns: int) -> list[Stall]:
    """The copies between host and device whose calls held the host for at least `min_ns`, in order of time.

    Reads the file three times, so that memory grows with the copies and not with the trace. Raises ValueError and
    OSError as `read_events`.
    """
    copies = [copy for copy in _gather_copies(path) if copy.length * 1000 >= min_ns]
    copies.sort(key=lambda copy: copy.start)
    if not copies:
        return []
    cover: Cover[_Span] = Cover([Moment(copy.thread, copy.start) for copy in copies])
    for event in read_events(path):
        if event.get("cat") in ("python_function", "cpu_op", "user_annotation") and event.get("ph") == "X":
            _add_span(cover, event)
    stalls = [_describe(copy, spans) for copy, spans in zip(copies, cover, strict=True)]
    return _count_turns(path, stalls)


def _gather_copies(path: Path) -> list[_Copy]:
    """Every copy between host and device with the time of its call, a wait that belongs to it included."""
    calls: dict[object, _Copy] = {}
    moved: dict[object, tuple[str, int]] = {}
    waits: list[tuple[object, object, float, float]] = []
    for event in read_events(path):
        category, name, args = event.get("cat"), str(event.get("name", "")), event.get("args") or {}
        if category == "gpu_memcpy":
            if any(way in name for way in _DIRECTIONS):
                moved[args.get("correlation")] = (name, int(args.get("bytes") or 0))
        elif category in ("cuda_runtime", "cuda_driver") and event.get("ph") == "X":
            thread, start, length = _read_times(event)
            operator = args.get("External id")
            if "emcpy" in name:
                calls[args.get("correlation")] = _Copy(thread, start, length, operator)
            elif name in ("cudaStreamSynchronize", "cudaDeviceSynchronize", "hipStreamSynchronize"):
                waits.append((thread, operator, start, length))
    copies = []
    for correlation, (kind, size) in moved.items():
        copy = calls.get(correlation)
        if copy is not None:
            copy.kind, copy.bytes = kind, size
            copies.append(copy)
    _add_waits(copies, waits)
    return copies


def _add_waits(copies: list[_Copy], waits: list[tuple[object, object, float, float]]) -> None:
    """A blocking copy is a copy and then a wait in the same operator: the wait belongs to the copy before it."""
    latest: dict[object, _Copy] = {}
    events: list[tuple[float, int, object, Any]] = [
        (copy.start, 0, (copy.thread, copy.operator), copy) for copy in copies if copy.operator is not None
    ]
    events += [(start, 1, (thread, operator), length) for thread, operator, start, length in waits]
    for _, what, key, value in sorted(events, key=lambda event: event[:2]):
        if what == 0:
            latest[key] = value
        elif key in latest:
            latest.pop(key).length += value


def _add_span(cover: Cover[_Span], event: dict[str, Any]) -> None:
    thread, start, length = _read_times(event)
    if not cover.holds(thread, start, length):
        return
    args = event.get("args") or {}
    python = event["cat"] == "python_function"
    span = _Span(str(event.get("name", "")), python, thread, start, args.get("Python id"), args.get("Python parent id"))
    cover.add(thread, start, length, span)


def _read_times(event: dict[str, Any]) -> tuple[object, float, float]:
    return (event.get("pid"), event.get("tid")), float(event.get("ts") or 0), float(event.get("dur") or 0)


def _describe(copy: _Copy, spans: list[_Span]) -> tuple[Stall, _Span | None, _Span | None]:
    """The stall without its turn, the span of its frame and the span of the call that the frame made."""
    way = _MEMCPY_KIND.match(copy.kind)
    direction = _DIRECTIONS[way["way"]] if way else "unknown"
    operators = [span.name for span in spans if not span.python]
    stall = Stall(copy.kind, direction, _read_memory(copy.kind), copy.bytes, round(copy.length * 1000))
    stall = replace(stall, label=operators[0] if operators else "")
    called: _Span | None = None
    for span in spans:
        if not span.python:
            continue
        frame = read_frame(span.name)
        if frame is not None and not is_library(frame.filename):
            call = name_call(called.name) if called else ""
            return replace(stall, frame=frame, call=call), span, called
        called = span
    return stall, None, None


def _read_memory(kind: str) -> Literal["pageable", "pinned", "unknown"]:
    return "pageable" if "Pageable" in kind else "pinned" if "Pinned" in kind else "unknown"


def _count_turns(path: Path, stalls: list[tuple[Stall, _Span | None, _Span | None]]) -> list[Stall]:
    """Third pass: which of its frame's calls of the same name each stall was in."""
    wanted: dict[tuple[object, object, str], list[float]] = {
        (frame.thread, frame.number, stall.call): [] for stall, frame, called in stalls if frame and called
    }
    if not wanted:
        return [stall for stall, _, _ in stalls]
    for event in read_events(path):
        if event.get("cat") == "python_function" and event.get("ph") == "X":
            thread, start, _ = _read_times(event)
            parent = (event.get("args") or {}).get("Python parent id")
            starts = wanted.get((thread, parent, name_call(str(event.get("name", "")))))
            if starts is not None:
                starts.append(start)
    done = []
    for stall, frame, called in stalls:
        if frame and called:
            starts = sorted(wanted[frame.thread, frame.number, stall.call])
            stall = replace(stall, turn=starts.index(called.start) + 1, turns=len(starts))
        done.append(stall)
    return done


def read_frame(name: str) -> Frame | None:
    """A frame from the name of a `python_function` event, None for C functions and modules."""
    match = _FRAME.fullmatch(name)
    return Frame(match["file"], int(match["line"]), match["function"]) if match else None


def name_call(name: str) -> str:
    """The bare name of the function that a `python_function` event is a call of."""
    match = _BUILTIN.match(name)
    if match:
        return match["name"]
    frame = read_frame(name)
    return frame.function if frame else ""


def is_library(filename: str) -> bool:
    """Whether a frame is PyTorch's own or the interpreter's; Kineto cuts the search path off the file's name."""
    parts = Path(filename).parts
    return filename.startswith("<") or (parts[:1] == ("torch",) or "site-packages/torch/" in filename)
