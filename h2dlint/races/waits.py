"""Which calls make the host wait, and for what: the device, a stream, an event, or the stream that is current.

Silence is cheaper than a false alarm: a call that may wait counts as one that does.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from h2dlint.facts import Interpreter, call_name, make_args
from h2dlint.library import target_of
from h2dlint.model import Fact, Site
from h2dlint.races.paths import values_of, walk_scope
from h2dlint.values import Cls, Const, Dev, Flag, Func, LibObject, Map, Num, Ref, Seq, Unknown

if TYPE_CHECKING:
    from h2dlint.facts import Frame
    from h2dlint.project import Scope

MAX_DEPTH = 3
READS = frozenset(("item", "tolist", "cpu", "numpy"))
# Their result's size depends on the data, so a GPU tensor is waited for.
SIZED_BY_DATA = frozenset(
    (
        "nonzero",
        "argwhere",
        "unique",
        "unique_consecutive",
        "masked_select",
        "bincount",
        "equal",
        "allclose",
        "is_nonzero",
    )
)
MAKERS = frozenset(("tensor", "as_tensor", "asarray", "new_tensor"))
# Words of project helpers and other libraries that wait; of `join` and the like only without arguments.
WORDS = frozenset(
    ("wait", "result", "barrier", "drain", "monitored_barrier", "empty_cache", "block_until_ready", "wait_for")
)
NUMBERS = frozenset(("int", "float", "bool", "print", "str", "repr"))


@dataclass(frozen=True, slots=True)
class Wait:
    """`on` is the stream or event; None for the device and for the current stream."""

    kind: Literal["device", "current", "stream", "event"]
    on: ast.expr | None = None


class Waits:
    """The waits of one project, worked out once a call and once a function."""

    def __init__(self, interp: Interpreter) -> None:
        self.interp = interp
        self.moves: dict[ast.AST, Site] = {}
        self._calls: dict[ast.Call, Wait | None] = {}
        self._scopes: dict[tuple[Scope, int], bool] = {}

    def of(self, call: ast.Call, frame: Frame) -> Wait | None:
        """What the host waits for in this call; None when it does not wait."""
        if call not in self._calls:
            self._calls[call] = self._of(call, frame)
        return self._calls[call]

    def may_wait(self, scope: Scope, depth: int = MAX_DEPTH) -> bool:
        """Whether a wait is seen in the function, or in what it calls."""
        key = scope, depth
        if key not in self._scopes:
            self._scopes[key] = False  # recursion adds nothing
            self._scopes[key] = self._may_wait(scope, depth)
        return self._scopes[key]

    def callees(self, call: ast.Call, frame: Frame) -> list[Func]:
        """The functions of the project that a call may enter."""
        return [one for one in values_of(call.func, frame, self.interp) if isinstance(one, Func)]

    def managed(self, context: ast.expr, frame: Frame) -> bool:
        """Whether entering or leaving `with context` may wait."""
        if not isinstance(context, ast.Call):
            return False
        for one in values_of(context.func, frame, self.interp):
            match one:
                case Func(scope=scope) if self.may_wait(scope):
                    return True
                case Cls(scope=scope):
                    for name in ("__init__", "__enter__", "__exit__"):
                        method = self.interp.find_method(scope, name)
                        if method is not None and self.may_wait(method):
                            return True
                case Unknown() if says_wait(call_name(context.func)):
                    return True
        return False

    def _may_wait(self, scope: Scope, depth: int) -> bool:
        frame = self.interp.open_frame(scope)
        for node in walk_scope(scope.node):
            match node:
                case ast.Call() if self.of(node, frame) is not None:
                    return True
                case ast.Call() if depth and any(
                    self.may_wait(one.scope, depth - 1) for one in self.callees(node, frame)
                ):
                    return True
                case ast.With(items=items) | ast.AsyncWith(items=items):
                    if depth and any(self.managed(item.context_expr, frame) for item in items):
                        return True
                case ast.Attribute(attr="query") | ast.Yield() | ast.YieldFrom():
                    return True
                case _:
                    continue
        return False

    def _of(self, call: ast.Call, frame: Frame) -> Wait | None:
        moved = self.moves.get(call)
        if moved is not None:
            # A copy into pageable memory waits, whatever its flag says.
            return Wait("current") if moved.verdict.kind == "blocks" and moved.verdict.direction == "d2h" else None
        callees = values_of(call.func, frame, self.interp)
        for one in callees:
            match one:
                case Ref(name=name) if self._syncs(name):
                    return Wait("device")
                case Func(scope=scope) if self._syncs(self.interp.dotted_name(scope)):
                    return Wait("device")
                case _:
                    continue
        name = call_name(call.func)
        if name in MAKERS:
            return self._maker(call, frame)
        if isinstance(call.func, ast.Attribute):
            return self._method(call, call.func.value, name, callees, frame)
        if name in NUMBERS and call.args:
            facts = [one for one in values_of(call.args[0], frame, self.interp) if isinstance(one, Fact)]
            return Wait("current") if any(fact.device == "gpu" for fact in facts) else None
        return Wait("device") if says_wait(name) and not any(isinstance(one, (Func, Cls)) for one in callees) else None

    def _syncs(self, name: str) -> bool:
        row = self.interp.table.lookup(name)
        return row is not None and row.effect == "sync"

    def _maker(self, call: ast.Call, frame: Frame) -> Wait | None:
        device = next((keyword.value for keyword in call.keywords if keyword.arg == "device"), None)
        if device is None or any(
            isinstance(one, Dev) and one.kind == "cpu" for one in values_of(device, frame, self.interp)
        ):
            return None
        return Wait("current")

    def _method(
        self, call: ast.Call, receiver: ast.expr, name: str, callees: Iterable[object], frame: Frame
    ) -> Wait | None:
        values = values_of(receiver, frame, self.interp)
        if name == "synchronize":
            return self._synchronize(receiver, values)
        if name in READS:
            return Wait("current") if may_be_on_gpu(values) else None
        if name in SIZED_BY_DATA:
            on = [*values, *(one for arg in call.args[:1] for one in values_of(arg, frame, self.interp))]
            return (
                Wait("current")
                if may_be_on_gpu(on) and not any(isinstance(one, Fact) and one.device == "cpu" for one in on)
                else None
            )
        if name in ("to", "cuda", "copy_", "xpu"):
            return self._blocking_move(call, name, values, frame)
        if name in ("wait", "wait_event", "wait_stream") and (
            is_lib(values, "Event") or is_lib(values, "tream") or says_event(receiver)
        ):
            return None
        if (
            says_wait(name)
            and not any(isinstance(one, Func) for one in callees)
            and not isinstance(receiver, ast.Constant)
        ):
            return Wait("device")
        return None

    def _synchronize(self, receiver: ast.expr, values: Iterable[object]) -> Wait:
        if is_lib(values, "Event"):
            return Wait("event", receiver)
        if is_lib(values, "tream"):
            return Wait("stream", receiver)
        return Wait("event" if says_event(receiver) else "stream", receiver)

    def _blocking_move(self, call: ast.Call, name: str, values: tuple[object, ...], frame: Frame) -> Wait | None:
        if any(keyword.arg == "non_blocking" for keyword in call.keywords) or not may_be_tensor(values):
            return None
        if name == "copy_":
            sources = values_of(call.args[0], frame, self.interp) if call.args else ()
            ends = [one.device for one in (*values, *sources) if isinstance(one, Fact)]
            return Wait("current") if ("gpu" in ends and len(set(ends)) > 1) or "unknown" in ends else None
        if name == "to":
            devices = {one.kind for one in target_of(self.interp, make_args(call, frame)).devices or ()}
        else:
            devices = {"gpu"}
        here = {one.device for one in values if isinstance(one, Fact)}
        return None if not devices or (here == devices and "unknown" not in here) else Wait("current")


def says_wait(name: str) -> bool:
    """Whether a name that leads nowhere says that it waits."""
    word = name.lower()
    return word in WORDS or ("sync" in word and "async" not in word and "no_sync" not in word)


def says_event(node: ast.expr) -> bool:
    return "event" in ast.unparse(node).lower()


def is_lib(values: Iterable[object], word: str) -> bool:
    return any(isinstance(one, LibObject) and word in one.name for one in values)


def may_be_tensor(values: Iterable[object]) -> bool:
    return not any(isinstance(one, (Const, Num, Seq, Map, Flag, Dev)) for one in values)


def may_be_on_gpu(values: Iterable[object]) -> bool:
    """Whether a tensor is there that is not known to be on the host."""
    known = list(values)
    if not may_be_tensor(known):
        return False
    return not known or any(not isinstance(one, Fact) or one.device != "cpu" for one in known)
