"""`watch()`: tallies the copies of a stretch of a program by source line, judged by the copy model.

Hooks hand each copy to every open watch. A watch counts it where the thread is one of its own, its warm-up is over,
and no judgement fails. Tallies live in a plain dict that each thread fills for itself, so that threads share nothing.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from types import CodeType, FrameType, TracebackType
from typing import Any, Literal, ParamSpec, TypeVar

from h2dlint.copies import SMALL_BYTES
from h2dlint.model import Verdict
from h2dlint.runtime import hooks
from h2dlint.runtime.judging import Judgement, judge_exactly, judge_move
from h2dlint.runtime.lines import locate
from h2dlint.runtime.observation import SYNC, Observation
from h2dlint.runtime.syncs import SyncListener

P = ParamSpec("P")
R = TypeVar("R")
Mode = Literal["report", "warn", "error"]
Key = tuple[int, int, Judgement, bool, str]
"""A place by `id` of its code object (whose own hash goes over all of the bytecode) and the offset in it."""

Place = tuple[int, int, int, str, bool]
"""Thread, `id` of the code object, offset in it, operation, and whether the copy goes to the GPU."""

Spot = tuple[str, tuple[int, int, int, int], Judgement, bool, str]

MISSING_TORCH = "h2dlint watch needs PyTorch in the environment of the program: install torch"

_PROMPT_NS = 50_000
"""A copy that took less did not wait for a GPU that had work to do."""

_getframe = sys._getframe
_MOST_ADDRESSES = 4096
_pinned: set[int] = set()
_known: dict[Place, list[int]] = {}
"""The places of the one armed watch whose copies were good; empty where several are armed, or none."""
_MOVES = frozenset(("to", "cuda", "cpu", "copy_"))
_SYNC = Judgement(
    SYNC,
    Verdict("blocks", "unknown", "PyTorch's sync debug mode says that this call waits for the GPU"),
    (),
    "unknown",
    "unknown",
    False,
)


class BlockingCopyError(RuntimeError):
    """Raised at a copy that holds the host, under `watch(mode="error")`. The copy itself has been made."""


class BlockingCopyWarning(UserWarning):
    """Given once for each line with a copy that holds the host, under `watch(mode="warn")`."""


class _Local(threading.local):
    """What belongs to one thread: the reasons of the `allow` regions that it is in."""

    def __init__(self) -> None:
        self.reasons: list[str] = []


_local = _Local()
_open: tuple[Watch, ...] = ()
_lock = threading.Lock()
_library: dict[str, bool] = {}


@contextmanager
def allow(reason: str) -> Iterator[None]:
    """A region of this thread whose copies are counted apart and never raise; `reason` stands in the report.

    Raises ValueError for an empty reason. Costs nothing but itself where no watch is open.
    """
    if not reason.strip():
        raise ValueError("allow() wants a reason")
    _local.reasons.append(reason)
    try:
        yield
    finally:
        _local.reasons.pop()


class Watch:
    """A stretch of a program that is watched; a context manager, a decorator, and the report of what it saw.

    mode       "report" only counts; "warn" warns once a line; "error" raises BlockingCopyError at the copy
    threads    "this" watches the thread that opens the watch, "all" every thread
    warmup     steps that pass unseen: calls of `step()`, or of the decorated function. None: 0, and 1 as a decorator
    from_call  a line's copies before its n-th are cold: listed, but no fault
    syncs      also listen to `torch.cuda.set_sync_debug_mode`, from the first copy on

    Not seen: copies inside compiled graphs, replays of CUDA graphs, tensor subclasses, what C++ does by itself.
    """

    def __init__(
        self,
        mode: Mode = "report",
        *,
        threads: Literal["this", "all"] = "this",
        warmup: int | None = None,
        from_call: int = 1,
        syncs: bool = True,
    ) -> None:
        if mode not in ("report", "warn", "error"):
            raise ValueError(f"mode is 'report', 'warn' or 'error', not {mode!r}")
        if threads not in ("this", "all"):
            raise ValueError(f"threads is 'this' or 'all', not {threads!r}")
        self.mode = mode
        self.threads = threads
        self.from_call = from_call
        self._warmup = warmup
        self._steps = 0
        self._tallies: dict[int, tuple[str, dict[Key, list[int]]]] = {}
        self._syncs = syncs
        self._deaf = syncs
        self._armed = False
        self._owner = 0
        self._failures = 0
        self._codes: dict[int, CodeType] = {}
        self._good: dict[Place, list[int]] = {}
        self._warned: set[tuple[int, int]] = set()

    def __enter__(self) -> Watch:
        self._enroll()
        self._arm(self._warmup or 0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Watch every call of `function` from the second on (or after `warmup` calls); the report is `.watch`.

        The hooks stay in place between calls, so that a call costs no patching; `.watch.close()` removes them.
        """
        warmup = 1 if self._warmup is None else self._warmup

        @functools.wraps(function)
        def watched(*args: P.args, **kwargs: P.kwargs) -> R:
            if self._armed:
                return function(*args, **kwargs)
            if self not in _open:
                self._enroll()
            self._arm(warmup)
            try:
                return function(*args, **kwargs)
            finally:
                self._steps += 1
                self._disarm()

        watched.watch = self  # type: ignore[attr-defined]
        return watched

    def step(self) -> None:
        """Say that one step of the program is done; after `warmup` of them the watch counts."""
        self._steps += 1
        self._armed = self in _open and self._steps >= (self._warmup or 0)
        _choose_known()

    def close(self) -> None:
        """Stop watching and remove the hooks; the report stays. Does nothing where the watch is not open."""
        global _open
        with _lock:
            if self not in _open:
                return
            _open = tuple(each for each in _open if each is not self)
        hooks.uninstall()
        self._disarm()

    def _enroll(self) -> None:
        global _open
        _require_torch()
        with _lock:
            if self in _open:
                raise RuntimeError("this watch is open already")
            _open = (*_open, self)
        _pinned.clear()
        hooks.install(_receive)

    def _arm(self, warmup: int) -> None:
        """Count from now on what the calling thread copies, if the warm-up is over."""
        if self._owner != get_ident():
            self._owner = get_ident()
            self._good.clear()
        self._armed = self._steps >= warmup
        _choose_known()

    def _disarm(self) -> None:
        self._armed = False
        _choose_known()
        _listener.stop(self)
        self._deaf = self._syncs

    @property
    def notes(self) -> list[str]:
        """What the report does not cover."""
        notes = []
        if self._failures:
            notes.append(f"{self._failures} copies could not be judged and are not counted")
        if "torch._dynamo" in sys.modules:
            notes.append("torch.compile may be in use: copies inside compiled graphs are not seen")
        return notes

    def rows(self) -> list[Observation]:
        """What was seen so far, the most host time first."""
        merged: dict[Spot, list[int]] = {}
        names: dict[Spot, set[str]] = {}
        for name, tally in list(self._tallies.values()):
            for (number, offset, judgement, small, allowed), (count, size, ns, worst) in list(tally.items()):
                # One instruction has several offsets: CPython stands elsewhere in it once it has specialised it.
                code = self._codes[number]
                spot = (code.co_filename, locate(code, offset), judgement, small, allowed)
                total = merged.setdefault(spot, [0, 0, 0, 0])
                total[0] += count
                total[1] += size
                total[2] += ns
                total[3] = max(total[3], worst)
                names.setdefault(spot, set()).add(name)
        rows = [self._describe(spot, total, names[spot]) for spot, total in merged.items()]
        return sorted(rows, key=lambda row: (-row.host_ns, row.filename, row.row, row.column))

    @property
    def found(self) -> list[Observation]:
        """The faults among `rows()`."""
        return [row for row in self.rows() if row.found]

    def _describe(self, spot: Spot, total: list[int], names: set[str]) -> Observation:
        filename, (row, column, end_row, end_column), judgement, small, allowed = spot
        count, size, ns, worst = total
        return Observation(
            filename=filename,
            row=row,
            column=column,
            end_row=end_row,
            end_column=end_column,
            operation=judgement.operation,
            direction=judgement.verdict.direction,
            verdict=judgement.verdict.kind,
            reason=judgement.verdict.reason,
            codes=judgement.codes,
            memory=judgement.memory,
            layout=judgement.layout,
            count=count,
            bytes=size,
            host_ns=ns,
            worst_ns=worst,
            small=small,
            cold=count < self.from_call,
            allowed=allowed,
            threads=tuple(sorted(names)),
        )

    def _count(self, frame: FrameType, judgement: Judgement, size: int, ns: int) -> list[int]:
        """Add one copy to the tally of its place in this thread, and return the tally."""
        reasons = _local.reasons
        small = judgement.staged and size <= SMALL_BYTES
        allowed = reasons[-1] if reasons and judgement.codes else ""
        key = (id(frame.f_code), frame.f_lasti, judgement, small, allowed)
        try:
            tally = self._tallies[get_ident()][1][key]
        except KeyError:
            _, own = self._tallies.setdefault(get_ident(), (threading.current_thread().name, {}))
            tally = own[key] = [0, 0, 0, 0]
            self._codes[id(frame.f_code)] = frame.f_code
        tally[0] += 1
        tally[1] += size
        tally[2] += ns
        if ns > tally[3]:
            tally[3] = ns
        if self.mode != "report" and judgement.codes and not small and not allowed and tally[0] >= self.from_call:
            self._complain(frame, judgement, size)
        return tally

    def _complain(self, frame: FrameType, judgement: Judgement, size: int) -> None:
        row, *_ = locate(frame.f_code, frame.f_lasti)
        message = (
            f"{frame.f_code.co_filename}:{row}: {'/'.join(judgement.codes)} {judgement.operation} of {size} bytes "
            f"holds the host: {judgement.verdict.reason}"
        )
        if self.mode == "error":
            raise BlockingCopyError(message)
        place = (id(frame.f_code), frame.f_lasti)
        if place not in self._warned:
            self._warned.add(place)
            warnings.warn_explicit(message, BlockingCopyWarning, frame.f_code.co_filename, row)


def _choose_known() -> None:
    """Let the short way add to the tallies of the one armed watch; it has no time to look for others."""
    global _known
    armed = [each for each in _open if each._armed]
    _known = armed[0]._good if len(armed) == 1 else {}


def _hear_sync() -> None:
    """PyTorch says that the call now running waits for the GPU."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_library(frame.f_code.co_filename):
        if frame.f_code.co_filename == hooks.__file__:
            return  # the wait of a copy that is counted as one
        frame = frame.f_back
    for watch in _open:
        if watch._syncs and watch._armed and (watch.threads == "all" or watch._owner == get_ident()):
            watch._count(frame, _SYNC, 0, 0)


_listener = SyncListener(_hear_sync)


def _receive(operation: str, source: Any, destination: Any, upload: bool, non_blocking: bool, ns: int) -> None:
    """The sink of the hooks: one copy, already made. This is the overhead of a copy, so the good ones go a short way.

    Where the only armed watch has found a good copy before, one that is prompt and surely good too adds to its tally.
    """
    frame = _getframe(2)
    place = (get_ident(), id(frame.f_code), frame.f_lasti, operation, upload)
    host = source if upload else destination
    tally = _known.get(place)
    if tally is not None and non_blocking is True and ns < _PROMPT_NS:
        try:
            # The far end's layout plays no part for a packed pinned host side; a repeated source does.
            if (
                host.data_ptr() in _pinned
                and host.is_contiguous()
                and (operation != "copy_" or source.numel() == destination.numel())
            ):
                tally[0] += 1
                tally[1] += host.nbytes
                tally[2] += ns
                if ns > tally[3]:
                    tally[3] = ns
                return
        except RuntimeError:  # no strides or no pointer: the long way counts what cannot be judged
            pass
    _receive_unknown(frame, place, source, destination, non_blocking, ns)


def _receive_unknown(
    frame: FrameType, place: Place, source: Any, destination: Any, non_blocking: bool, ns: int
) -> None:
    """The long way of a copy; opens the short one to those that will be made at its place."""
    thread, _, _, operation, upload = place
    caller = _leave_library(frame)
    good: bool | None = None
    for watch in _open:
        if not watch._armed or (watch._owner != thread and watch.threads == "this"):
            continue
        tally = _judge_and_count(watch, caller, operation, source, destination, non_blocking, ns)
        if tally is None or caller is not frame or non_blocking is not True:
            continue
        if good is None:
            good = _is_good(operation, source, destination, source if upload else destination)
        if good:
            watch._good[place] = tally


def _is_good(operation: str, source: Any, destination: Any, host: Any) -> bool:
    """Whether the model surely calls a non_blocking copy of these tensors async: pinned, whole, not repeated.

    An address once seen pinned is taken for it while copies from it are prompt: asking the driver costs a microsecond.
    """
    if not (source.is_contiguous() and destination.is_contiguous() and host.is_pinned()):
        return False
    if operation == "copy_" and source.numel() != destination.numel():
        return False
    if len(_pinned) >= _MOST_ADDRESSES:
        _pinned.clear()
    _pinned.add(host.data_ptr())
    return True


def _judge_and_count(
    watch: Watch, frame: FrameType, operation: str, source: Any, destination: Any, non_blocking: bool, ns: int
) -> list[int] | None:
    """The long way: ask the model; None where it cannot be asked."""
    if watch._deaf:  # not before a copy, for asking for the mode of CUDA initialises it
        watch._deaf = not _listener.start(watch)
    try:
        if operation in _MOVES:
            judgement, size = judge_move(operation, source, destination, non_blocking)
        else:
            judgement, size = _judge_host_data(operation, source, destination)
    except Exception:  # a tensor that has no strides or pointer must not stop the program that is watched
        watch._failures += 1
        return None
    return watch._count(frame, judgement, size, ns)


def _judge_host_data(operation: str, source: Any, destination: Any) -> tuple[Judgement, int]:
    """The judgement of an index, a value that is set, or the data of a new tensor, and the bytes that crossed."""
    import torch

    if not isinstance(source, torch.Tensor) and operation == "index":
        source = torch.as_tensor(source, device="cpu")
    elif not isinstance(source, torch.Tensor):
        source = torch.empty(min(destination.numel(), 1), device="cpu")
    judgement = judge_exactly(operation, source, destination, False)
    moved = destination if operation == "new_on_device" else source
    return judgement, moved.numel() * moved.element_size()


def _leave_library(frame: FrameType) -> FrameType:
    """The innermost frame that belongs neither to torch nor to this package."""
    while _is_library(frame.f_code.co_filename) and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _is_library(filename: str) -> bool:
    """Whether a frame belongs to torch or to this package, so that the line to name is further up."""
    known = _library.get(filename)
    if known is None:
        import torch

        roots = (os.path.dirname(torch.__file__) + os.sep, os.path.dirname(__file__) + os.sep, warnings.__file__)
        known = _library[filename] = filename.startswith(roots)
    return known


def _require_torch() -> None:
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise ModuleNotFoundError(MISSING_TORCH, name="torch") from error
