"""One way through a function after another, from a copy on: statements, branches, loops, and the calls in them."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from h2dlint.facts import Interpreter, call_name, method_kind
from h2dlint.flow import dotted
from h2dlint.races.expressions import Expressions, comes_round
from h2dlint.races.paths import path_of
from h2dlint.races.state import Box, Kind, Lane, Mark, State, Tup, holds_memory, is_memory, join, join_kinds
from h2dlint.races.waits import Wait, Waits, says_wait
from h2dlint.values import Func

if TYPE_CHECKING:
    from h2dlint.project import Scope

MAX_DEPTH = 3
MAX_ENTERED = 80
# Tests that are true wherever there is something to wait for.
HARMLESS = re.compile(r"cuda|gpu|xpu|device|is not None|event|stream|non_blocking|pin|sync|accelerator", re.IGNORECASE)


@dataclass(slots=True)
class Tools:
    """What one search needs: where the copy is made, what it gives, what its memory is called, which uses count.

    `moving` are the names by which the copy picks its part of the memory, another in each turn; `end` is where that
    part ends, as written.
    """

    interp: Interpreter
    waits: Waits
    start: ast.Call | None
    result: Kind | None
    names: dict[str, Kind]
    wanted: frozenset[Literal["read", "write"]]
    lanes: frozenset[str] | None = None
    moving: frozenset[str] = frozenset()
    end: str = ""
    entered: int = 0


@dataclass(slots=True)
class Exits:
    """How a function can be left: the joined state, and what it returns."""

    state: State | None = None
    kind: Kind | None = None
    kinds: list[Kind] = field(default_factory=list)

    def add(self, state: State | None, kind: Kind | None) -> None:
        if state is None:
            return
        self.state = join(self.state, state.copy())
        self.kind = join_kinds(self.kind, kind)


class Walk(Expressions):
    """Walks one scope; raises FoundUse at the first use that comes too early."""

    def __init__(self, tools: Tools, scope: Scope, depth: int = 0, stream: str = "") -> None:
        self.tools = tools
        self.scope = scope
        self.frame = tools.interp.open_frame(scope)
        self.depth = depth
        self.stream = stream
        self.state = State()
        self.exits = Exits()
        self.breaks: list[list[State]] = []
        self.turns: list[list[State]] = []
        self.counters: list[set[str]] = []
        self.tests: list[tuple[str, bool]] = []

    def run(self, state: State) -> Exits:
        """Walk the whole scope, entered with `state`."""
        self.state = state
        node = self.scope.node
        if isinstance(node, ast.Lambda):
            self.exits.add(self.state, self.value(node.body))
        elif self.block(node.body):
            self.exits.add(self.state, None)
        return self.exits

    # --- statements: each says whether control goes on behind it -------------------------------------------------

    def block(self, body: list[ast.stmt]) -> bool:
        return all(self.statement(one) for one in body)

    def statement(self, node: ast.stmt) -> bool:
        match node:
            case ast.Expr(value=value):
                self.value(value)
            case ast.Assign(targets=targets, value=value):
                kind = self.assigned(value)
                for target in targets:
                    self.bind(target, kind, value)
            case ast.AnnAssign(target=target, value=value) if value is not None:
                self.bind(target, self.assigned(value), value)
            case ast.AugAssign():
                self.augmented(node)
            case ast.Return(value=value):
                kind = self.value(value)
                self.exits.add(self.state, kind)
                return False
            case ast.Raise():
                return False
            case ast.Break() | ast.Continue():
                if self.breaks:
                    (self.breaks if isinstance(node, ast.Break) else self.turns)[-1].append(self.state.copy())
                return False
            case ast.If(test=test, body=body, orelse=orelse):
                return self.branch(test, body, orelse)
            case (
                ast.For(target=target, body=body, orelse=orelse) | ast.AsyncFor(target=target, body=body, orelse=orelse)
            ):
                return self.loop(node, body, orelse)
            case ast.While(body=body, orelse=orelse):
                return self.loop(node, body, orelse)
            case ast.With() | ast.AsyncWith():
                return self.within(node)
            case ast.Try():
                return self.attempt(node)
            case ast.Match(subject=subject, cases=cases):
                self.value(subject)
                return self.ways([case.body for case in cases] + [[]])
            case ast.Assert(test=test):
                self.test(test)
            case ast.Delete(targets=targets):
                for target in targets:
                    if (path := dotted(target)) is not None:
                        self.state.forget(path)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                self.state.forget(name)
            case _:
                if type(node).__name__ == "TryStar":
                    return self.attempt(node)  # type: ignore[arg-type]
        return True

    def assigned(self, value: ast.expr) -> Kind | None:
        """The kind of a value; a stream under another name keeps its own."""
        kind = self.value(value)
        if kind is None and isinstance(value, (ast.Name, ast.Attribute)) and self.is_lib(value, "tream"):
            return Lane(self.lane(value))
        return kind

    def augmented(self, node: ast.AugAssign) -> None:
        kind = self.value(node.value)
        target = self.value(node.target)
        if isinstance(node.op, ast.Add) and isinstance(kind, (Box, Tup)):
            self.bind(node.target, kind, None)
            return
        if is_memory(target):
            self.read(node, "computes with")
            self.write(node)
        elif is_memory(kind) and not self.is_on_gpu(node.target):
            self.read(node, "computes with")

    def branch(self, test: ast.expr, body: list[ast.stmt], orelse: list[ast.stmt]) -> bool:
        self.test(test)
        text, positive = positively(test)
        if text in self.state.given and self.state.live:
            return self.block(body if self.state.given[text] is positive else orelse)
        before = self.state.copy()
        polled = polls(test)
        if polled is True:
            self.finish_polled(test)
        self.tests.append((text, positive))
        goes_on = self.block(body)
        one = self.state if goes_on else None
        self.state = before.copy()
        if polled is False:
            self.finish_polled(test)
        self.tests[-1] = (text, not positive)
        other = self.state if self.block(orelse) else None
        self.tests.pop()
        if one is not None and other is not None and before.live and one.live != other.live and self.is_harmless(test):
            # `if event is not None: event.synchronize()`: where there is none, nothing was copied either.
            one = other = other if one.live else one
        return self.go_on(join(one, other))

    def is_harmless(self, test: ast.expr) -> bool:
        """Whether a test may only ask if there is anything to wait for, as `if turn >= 2` does."""
        counted = any(isinstance(one, ast.Name) and one.id in set().union(*self.counters) for one in ast.walk(test))
        first = counted and isinstance(test, ast.Compare) and isinstance(test.ops[0], (ast.Gt, ast.GtE, ast.NotEq))
        return first or HARMLESS.search(ast.unparse(test)) is not None

    def finish_polled(self, test: ast.expr) -> None:
        """An event that was asked and is done ends the copy, unless it is known to be an old one."""
        for node in ast.walk(test):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "query":
                if self.covers(Wait("event", node.func.value)):
                    self.state.finish()

    def go_on(self, state: State | None) -> bool:
        if state is None:
            return False
        self.state = state
        return True

    def ways(self, bodies: list[list[ast.stmt]]) -> bool:
        before, joined = self.state, None
        for body in bodies:
            self.state = before.copy()
            if self.block(body):
                joined = join(joined, self.state)
        return self.go_on(joined)

    def loop(self, node: ast.For | ast.AsyncFor | ast.While, body: list[ast.stmt], orelse: list[ast.stmt]) -> bool:
        """Two turns show what one turn does to the next; a loop is taken to turn at least once."""
        before = self.state.copy()
        out: State | None = None
        self.breaks.append([])
        self.turns.append([])
        self.counters.append(stored_names(node))
        for _ in range(2):
            self.state.turned = self.state.live
            if isinstance(node, ast.While):
                self.test(node.test)
            else:
                self.bind(node.target, self.iterate(node.iter), None)
            goes_on = self.block(body)
            end = self.state if goes_on else None
            for state in self.turns[-1]:
                end = join(end, state)
            self.turns[-1].clear()
            if end is None:
                break
            out = end.copy()
            self.state = end
        self.turns.pop()
        self.counters.pop()
        for state in self.breaks.pop():
            out = join(out, state)
        endless = isinstance(node, ast.While) and isinstance(node.test, ast.Constant) and node.test.value
        if out is None:
            if endless:
                return False
            out = before
        self.state = out
        if isinstance(node, ast.While):
            self.finish_polled(node.test)
        return self.block(orelse)

    def within(self, node: ast.With | ast.AsyncWith) -> bool:
        stream, waits = self.stream, False
        for item in node.items:
            context = item.context_expr
            kind = self.value(context)
            lane = self.entered_lane(context)
            if lane is not None:
                self.stream = lane
            elif self.tools.waits.managed(context, self.frame):
                waits = True
            if item.optional_vars is not None:
                self.bind(item.optional_vars, kind, None)
        if waits:
            self.state.finish()
        goes_on = self.block(node.body)
        if waits:
            self.state.finish()
        self.stream = stream
        return goes_on

    def entered_lane(self, context: ast.expr) -> str | None:
        """The stream that `with context` makes current."""
        if isinstance(context, ast.Call) and call_name(context.func) in ("stream", "StreamContext") and context.args:
            return self.lane(context.args[0])
        if self.is_lib(context, "Stream") and not isinstance(context, ast.Call):
            return self.lane(context)
        return None

    def attempt(self, node: ast.Try) -> bool:
        before = self.state.copy()
        goes_on = self.block(node.body) and self.block(node.orelse)
        joined = self.state if goes_on else None
        failed = join(before, self.state.copy())
        for handler in node.handlers:
            assert failed is not None
            self.state = failed.copy()
            if self.block(handler.body):
                joined = join(joined, self.state)
        if joined is None:
            self.state = before
            self.block(node.finalbody)
            return False
        self.state = joined
        return self.block(node.finalbody)

    # --- the copy, and the calls around it -----------------------------------------------------------------------

    def begin(self, node: ast.Call) -> Kind | None:
        """The copy is made; a second run of it is another copy, the first is followed on."""
        if self.state.live:
            return (
                None
                if self.tools.result is None or not isinstance(node.func, ast.Attribute)
                else self.value(node.func.value)
            )
        self.state.finish()
        self.state.live = True
        self.state.names.update(self.tools.names)
        self.state.lanes = self.tools.lanes or frozenset((self.stream,))
        self.state.given = dict(self.tests)
        return self.tools.result

    def pass_by(self, node: ast.Call) -> Kind | None:
        """A call that is not given the memory: it may wait, or reach the memory through an attribute."""
        wait = self.tools.waits.of(node, self.frame)
        if wait is not None:
            if self.covers(wait):
                self.state.finish()
            return None
        if any(self.tools.waits.may_wait(one.scope) for one in self.tools.waits.callees(node, self.frame)):
            self.state.finish()
            return None
        if isinstance(node.func, ast.Attribute) and (owner := dotted(node.func.value)) is not None:
            if any(path.startswith(f"{owner}.") and holds_memory(kind) for path, kind in self.state.names.items()):
                return self.enter(node, [None] * len(node.args), {})[1]
        return None

    def covers(self, wait: Wait) -> bool:
        """Whether the host, having waited so, knows that the copy is done."""
        if wait.kind == "device" or wait.on is None:
            return wait.kind == "device" or self.is_behind(self.stream)
        on = wait.on
        if wait.kind == "stream":
            lane = self.lane(on)
            if self.is_behind(lane):
                return True
            known = (
                isinstance(self.value(on), Lane)
                or self.is_lib(on, "torch.cuda.Stream")
                or self.is_lib(on, "torch.Stream")
            )
            return not known
        match self.value(on):
            case Mark(word=word):
                return word == "good"
            case _:
                return not self.is_lib(on, "Event") or self.is_recorded(on)

    def is_recorded(self, event: ast.expr) -> bool:
        """Whether the module records an event of that name anywhere."""
        path = path_of(event, self.frame, self.tools.interp)
        if path is None:
            return True
        name = re.escape(path[0].split("[")[0].rsplit(".", 1)[-1])
        text = self.scope.module.text
        if re.search(rf"\b{name}(\[[^\]]*\])?\.record\(|record_event\(|\.record\([^)]*\b{name}\b", text):
            return True
        # Handed out, or taken from somewhere: who records it is not seen.
        return "." not in path[0] or not re.search(rf"\b{name}\s*(:[^=\n]*)?=\s*torch\.\w+(\.\w+)?\(", text)

    def enter(
        self, node: ast.Call, kinds: list[Kind | None], keywords: dict[str, Kind | None]
    ) -> tuple[bool, Kind | None]:
        """Walk the functions of the project that a call enters, the memory under the names that it has there."""
        callees = self.tools.waits.callees(node, self.frame)
        if not callees:
            if says_wait(call_name(node.func)):
                self.state.finish()
            return False, None
        if self.depth >= MAX_DEPTH or self.tools.entered >= MAX_ENTERED:
            self.state.finish()
            return True, None
        self.tools.entered += 1
        joined: State | None = None
        result: Kind | None = None
        for callee in callees:
            exits, owner = self.walk_callee(node, callee, kinds, keywords)
            if exits.state is not None:
                joined = join(joined, self.left(exits.state, owner))
                result = join_kinds(result, exits.kind)
        if joined is not None:
            self.state = joined
        return True, result

    def walk_callee(
        self, node: ast.Call, callee: Func, kinds: list[Kind | None], keywords: dict[str, Kind | None]
    ) -> tuple[Exits, str | None]:
        scope = callee.scope
        assert not isinstance(scope.node, (ast.Module, ast.ClassDef))
        params = [arg.arg for arg in (*scope.node.args.posonlyargs, *scope.node.args.args)]
        owner = None
        if scope.owner is not None and callee.bound is not None and method_kind(scope) != "static":
            owner = dotted(node.func.value) if isinstance(node.func, ast.Attribute) else None
            params = params[1:]
        names: dict[str, Kind] = {}
        if owner is not None:
            names = {
                f"self{path[len(owner) :]}": kind
                for path, kind in self.state.names.items()
                if path.startswith(f"{owner}.")
            }
        for name, kind in (*zip(params, kinds), *keywords.items()):
            if kind is not None:
                names[name] = kind
        walk = Walk(self.tools, scope, self.depth + 1, self.stream)
        return walk.run(State(True, names, self.state.lanes)), owner

    def left(self, state: State, owner: str | None) -> State:
        """The state behind a call that was entered."""
        if not state.live:
            after = self.state.copy()
            after.finish()
            return after
        after = self.state.copy()
        after.lanes = state.lanes
        if owner is not None:
            after.names.update(
                {f"{owner}{path[4:]}": kind for path, kind in state.names.items() if path.startswith("self.")}
            )
        return after


def stored_names(node: ast.AST) -> set[str]:
    """The names and attributes that are bound anywhere in a statement or function."""
    names = [one for one in ast.walk(node) if isinstance(one, (ast.Name, ast.Attribute))]
    return {path for one in names if isinstance(one.ctx, ast.Store) and (path := dotted(one)) is not None}


def round_names(node: ast.AST) -> set[str]:
    """Those that are bound to what comes round: `slot ^= 1`, `slot = (slot + 1) % 2`."""
    binds = [one for one in ast.walk(node) if isinstance(one, (ast.Assign, ast.AugAssign))]
    return {name for one in binds if comes_round(one) for name in stored_names(one)}


def positively(test: ast.expr) -> tuple[str, bool]:
    """A test without its `not`, and whether it had none."""
    positive = True
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, positive = test.operand, not positive
    return ast.unparse(test), positive


def polls(test: ast.expr) -> bool | None:
    """The outcome of a test for which an event that it asks is done; None where it asks none."""
    inner, outcome = test, True
    while isinstance(inner, ast.UnaryOp) and isinstance(inner.op, ast.Not):
        inner, outcome = inner.operand, not outcome
    asks = any(
        isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and one.func.attr == "query"
        for one in ast.walk(inner)
    )
    return outcome if asks else None
