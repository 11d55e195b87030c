"""The calls of one module that move tensors between host and device, with the verdict of the copy model on each."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal

from h2dlint import apis, library
from h2dlint.copies import combine, is_small, judge
from h2dlint.facts import Frame, Interpreter, call_name, make_args, truth_of
from h2dlint.flow import Assign, Def, Guard, Loop, Phi, dotted
from h2dlint.model import Fact, Site, Step, Verdict
from h2dlint.project import in_tests
from h2dlint.shapes import PACKED, packed
from h2dlint.source import count_characters, uncollected
from h2dlint.values import Args, Bottom, Const, Dev, Func, Inst, Leaves, Map, Ref, Seq, Unknown, Value, alternatives

if TYPE_CHECKING:
    from h2dlint.project import Module, Project, Scope

MOVES = ("to", "cuda", "xpu", "copy_")
MAKERS = ("tensor", "as_tensor", "asarray", "new_tensor")
COLD_NAMES = (
    "__init__", "__post_init__", "__new__", "__setstate__", "__init_subclass__", "load", "load_*", "_load_*",
    "from_pretrained", "*_from_pretrained", "initialize", "init_*", "_init_*", "reset_parameters", "setup", "setup_*",
    "_setup_*",
)  # fmt: skip
HOT_NAMES = ("forward", "step", "__call__", "training_step", "execute_model", "decode", "generate", "run_step")
WHOLE_NUMBERS = ("torch.int64", "torch.int32", "torch.int16", "torch.int8")
MAX_COLD_CALLERS = 3
RECURSION = 8_000
"""Python frames that MAX_DEPTH nested questions and the deepest expressions take together, with room to spare."""


def find_sites(project: Project, module: Module, *, opt_in: bool, far: bool = True) -> list[Site]:
    """Every site of `module`, in source order. `opt_in` adds the copies without non_blocking, and the indexing; unless
    `far`, these are judged by what stands in their own function alone, which keeps a list of all of them cheap."""
    finder = _Finder(project, module, opt_in, far)
    with uncollected():
        found = [site for site in finder.run() if site is not None]
    return sorted(found, key=lambda site: (site.row, site.column, site.end_row, site.end_column))


def interpreter_of(project: Project) -> Interpreter:
    """The project's interpreter; one for all its modules, so that they share what it learns."""
    interp = project.interpreter
    if interp is None:
        if sys.getrecursionlimit() < RECURSION:
            sys.setrecursionlimit(RECURSION)
        rows = project.config.functions if project.config is not None else {}
        table = apis.user_table(rows) if rows else apis.builtin_table()
        interp = Interpreter(project, table)
        interp.teaches = bool(rows)
        project.interpreter = interp
    return interp


class _Finder:
    def __init__(self, project: Project, module: Module, opt_in: bool, far: bool) -> None:
        self.project = project
        self.module = module
        self.opt_in = opt_in
        self.far = far
        self.interp = interpreter_of(project)
        self.cold: dict[Scope, bool] = {}
        self.hot: dict[Scope, bool] = {}

    def run(self) -> Iterator[Site | None]:
        for name in MOVES:
            for scope, call in self.module.calls(name):
                if isinstance(call.func, ast.Attribute) and passes_non_blocking(name, call):
                    yield self.move(name, scope, call)
        if self.opt_in:
            self.interp.local = not self.far
            try:
                yield from self.blocking()
            finally:
                self.interp.local = False

    def blocking(self) -> Iterator[Site | None]:
        """The sites that wait by themselves, without a word of non_blocking."""
        for name in MOVES:
            for scope, call in self.module.calls(name):
                if isinstance(call.func, ast.Attribute) and not passes_non_blocking(name, call):
                    yield self.move(name, scope, call)
        for name in MAKERS:
            for scope, call in self.module.calls(name):
                if any(keyword.arg == "device" for keyword in call.keywords):
                    yield self.maker(scope, call)
        for scope in self.module.scopes():
            if isinstance(scope.node, ast.ClassDef) or not (self.far or self.speaks_of_devices(scope)):
                continue
            for subscript in scope.flow.subscripts:
                if isinstance(subscript.ctx, ast.Load):
                    yield self.indexing(scope, subscript)
            for assignment in scope.flow.setitems:
                for target in assignment.targets:
                    if isinstance(target, ast.Subscript):
                        yield self.indexing(scope, target)
                        yield self.setitem(scope, assignment, target)

    def speaks_of_devices(self, scope: Scope) -> bool:
        """Whether a scope's text could tell, by itself, that a tensor is on a GPU."""
        if not scope.is_function:
            return False
        lines = self.module.lines[scope.node.lineno - 1 : scope.node.end_lineno]  # type: ignore[union-attr]
        return any("cuda" in line or "device" in line for line in lines)

    # --- the kinds of site -------------------------------------------------------------------------------------

    def move(self, name: str, scope: Scope, call: ast.Call) -> Site | None:
        self.interp.begin()
        assert isinstance(call.func, ast.Attribute)
        frame = self.interp.open_frame(scope)
        args = make_args(call, frame)
        if name == "copy_":
            facts = self.operand(call.func.value, frame, name)
            return None if facts is None else self.copy_into(scope, call, frame, facts)
        # what arrives on the CPU without a wait is pinned, whatever it comes from
        facts = self.operand(call.func.value, frame, "to", near=name == "to" and self.leads_home(args))
        if facts is None:
            return None
        if name == "to":
            exhausted = self.interp.exhausted
            self.interp.begin()
            target = library.target_of(self.interp, args)
            self.interp.exhausted = exhausted
            flag = target.non_blocking
            devices = target.devices
            if devices is None:
                verdict = Verdict("unknown", "unknown", "only the dtype changes, nothing moves")
                return (
                    None
                    if self.opt_in and flag is None
                    else self.site(scope, call, "to", verdict, facts, [], truth(flag))
                )
            ends = [Fact(device.kind, assumed=device.assumed, dtype=target.dtype) for device in devices] or [Fact()]
        else:
            flag = self.argument(call, "non_blocking", 1, frame)
            ends = [Fact("gpu")]
        blocking = truth(flag)
        if blocking is not False and self.asks_itself(call, call.func.value, frame):
            facts, blocking = [take_for_pinned(fact) for fact in facts], True
        operation = "to" if name == "xpu" else name
        if blocking is False and all(fact.device == "cpu" and not fact.assumed for fact in facts):
            # a host tensor that is sent to a device by name, or to where another tensor is, is meant to leave the host
            ends = [
                replace(end, device="gpu", assumed=False) if end.device in ("unknown", "gpu") else end for end in ends
            ]
        pairs = [(source, end) for source in facts for end in ends]
        verdicts = [judge(operation, source, end, blocking) for source, end in pairs]
        found = self.decide(scope, call, operation, blocking, pairs, verdicts)
        entry = self.first_turn(call, frame) if found.verdict.kind == "unknown" else None
        if entry is not None:
            first = [(source, end) for source in entry for end in ends]
            verdicts = [judge(operation, source, end, blocking) for source, end in first]
            if combine(verdicts).kind == "blocks":
                return self.decide(scope, call, operation, blocking, first, verdicts)
        return found

    def first_turn(self, call: ast.Call, frame: Frame) -> list[Fact] | None:
        """What the source is when a loop is entered, where every first turn gets to the call with it."""
        assert isinstance(call.func, ast.Attribute)
        flow = frame.scope.flow
        head = flow.uses.get(call.func.value)
        if not isinstance(head, Loop) or flow.reach.get(call) != head.conditions:
            return None
        first, last = head.node.body[0].lineno, head.node.body[-1].end_lineno or 0
        if not first <= call.lineno <= last:
            return None
        return self.facts(self.interp.define(head.options[0], frame), None)

    def leads_home(self, args: Args) -> bool:
        """Whether a `.to` surely leads to the CPU and does not wait."""
        was, self.interp.shallow = self.interp.shallow, True
        try:
            target = library.target_of(self.interp, args)
        finally:
            self.interp.shallow = was
        return target.devices == (Dev("cpu"),) and truth(target.non_blocking) is True

    def copy_into(self, scope: Scope, call: ast.Call, frame: Frame, destinations: list[Fact]) -> Site | None:
        node = copied_from(call)
        if node is None:
            return None
        onto_host = all(one.device == "cpu" and not one.assumed for one in destinations)
        sources = self.operand(node, frame, None, near=onto_host) or [Fact(needs="local")]
        blocking = truth(self.argument(call, "non_blocking", 1, frame))
        if blocking is not False and self.asks_itself(call, node, frame):
            sources, blocking = [take_for_pinned(fact) for fact in sources], True
        named = named_ends(call, node)
        if named is not None:
            sources = [named_fact(one, "cpu" if named == "h2d" else "gpu", node, frame, self.interp) for one in sources]
            assert isinstance(call.func, ast.Attribute)
            destinations = [
                named_fact(one, "gpu" if named == "h2d" else "cpu", call.func.value, frame, self.interp)
                for one in destinations
            ]
        pairs = [(source, destination) for source in sources for destination in destinations]
        verdicts = [judge("copy_", source, destination, blocking) for source, destination in pairs]
        return self.decide(scope, call, "copy_", blocking, pairs, verdicts)

    def asks_itself(self, call: ast.Call, source: ast.expr, frame: Frame) -> bool:
        """`x.to(device, non_blocking=x.is_pinned())`: the flag is only set where the source is pinned."""
        flag = next((one.value for one in call.keywords if one.arg == "non_blocking"), None)
        if flag is None and len(call.args) > 1:
            flag = call.args[1]
        path = dotted(source)
        todo: list[Def | None] = [None if flag is None else frame.scope.flow.uses.get(flag)]
        asked = [flag]
        while todo:
            match todo.pop():
                case Assign(value=value):
                    asked.append(value)
                case Phi(options=options):
                    todo += options
                case Guard(before=before):
                    todo.append(before)
        return path is not None and any(
            isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and one.func.attr == "is_pinned"
            and dotted(one.func.value) == path
            for one in asked
        )  # fmt: skip

    def maker(self, scope: Scope, call: ast.Call) -> Site | None:
        self.interp.begin()
        frame = self.interp.open_frame(scope)
        func = self.interp.expr(call.func, frame)
        if not any(
            (isinstance(one, Ref) and one.name.startswith("torch.")) or getattr(one, "name", "") == "new_tensor"
            for one in alternatives(func)
        ):
            return None
        device = library.near_device(self.interp, lambda: self.argument(call, "device", 99, frame))
        devices = library.devices_of(device, Dev("cpu"))
        data = self.interp.expr(call.args[0], frame) if call.args else Unknown("local")
        facts = [one for one in alternatives(data) if isinstance(one, Fact)]
        if (
            facts
            and all(fact.device != "cpu" or fact.rank is None for fact in facts)
            and not any(fact.array for fact in facts)
        ):
            return None
        source = Fact("cpu", "pageable", library.shape_of_literal(data) if not facts else facts[0].shape, needs="local")
        if isinstance(data, Unknown) and call_name(call.func) != "tensor":
            source = Fact(needs=data.needs)
        pairs = [(source, Fact(one.kind, assumed=one.assumed)) for one in devices]
        verdicts = [judge("new_on_device", source, end, None) for source, end in pairs]
        return self.decide(scope, call, "new_on_device", False, pairs, verdicts)

    def indexing(self, scope: Scope, node: ast.Subscript) -> Site | None:
        items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if all(isinstance(item, (ast.Slice, ast.Constant, ast.UnaryOp)) for item in items):
            return None
        self.interp.begin()
        frame = self.interp.open_frame(scope)
        bases = [one for one in alternatives(self.interp.expr(node.value, frame)) if isinstance(one, Fact)]
        if not bases or any(base.device != "gpu" for base in bases):
            return None
        for item in items:
            index = self.index_fact(item, frame)
            if index is None:
                continue
            verdicts = [judge("index", index, base, False) for base in bases]
            if any(one.kind == "blocks" for one in verdicts):
                return self.decide(scope, node, "index", False, [(index, base) for base in bases], verdicts)
        return None

    def index_fact(self, item: ast.expr, frame: Frame) -> Fact | None:
        if isinstance(item, ast.Slice):
            return None
        values = [
            one
            for one in alternatives(self.interp.expr(item, frame))
            if not (isinstance(one, Const) and one.value is None)
        ]
        if values and all(isinstance(one, Fact) for one in values):
            fact = next(one for one in values if isinstance(one, Fact))
            if fact.rank is None and fact.dtype in WHOLE_NUMBERS:
                return replace(fact, shape=packed([None]))  # a 0-dim index is written as a number
            return fact
        if values and all(isinstance(one, Seq) and one.kind in ("list",) for one in values):
            shape = library.shape_of_literal(values[0])
            if (
                isinstance(values[0], Seq)
                and isinstance(values[0].element(), (Const,))
                and isinstance(getattr(values[0].element(), "value", None), bool)
            ):
                return None
            return Fact(
                "cpu",
                "pageable",
                shape if shape.rank is not None else packed([None]),
                "torch.int64",
                array=True,
                needs="local",
                steps=(self.interp.step(frame, item, "this index is a Python list"),),
            )
        return None

    def setitem(self, scope: Scope, assignment: ast.Assign, target: ast.Subscript) -> Site | None:
        self.interp.begin()
        frame = self.interp.open_frame(scope)
        bases = [one for one in alternatives(self.interp.expr(target.value, frame)) if isinstance(one, Fact)]
        if not bases or any(base.device != "gpu" for base in bases):
            return None
        values = alternatives(self.interp.expr(assignment.value, frame))
        if not values or not all(isinstance(one, Fact) and one.device == "cpu" for one in values):
            return None
        pairs = [(value, base) for value in values if isinstance(value, Fact) for base in bases]
        verdicts = [judge("setitem", value, base, False) for value, base in pairs]
        if not any(one.kind == "blocks" for one in verdicts):
            return None
        return self.decide(scope, assignment, "setitem", False, pairs, verdicts)

    def operand(self, node: ast.expr, frame: Frame, method: str | None, near: bool = False) -> list[Fact] | None:
        """The tensors that an operand may be. What is known near by is enough when it is all there is to know, or when
        the verdict does not rest on more (`near`)."""
        value = self.interp.near(node, frame)
        if (not near and not all(is_settled(one) for one in alternatives(value))) or isinstance(value, Bottom):
            value = self.interp.expr(node, frame)
        return self.facts(value, method)

    # --- from values to a site ---------------------------------------------------------------------------------

    def facts(self, value: Value, method: str | None) -> list[Fact] | None:
        """The tensors among the alternatives; None when this is a method of another kind of object."""
        facts: list[Fact] = []
        other = 0
        for one in alternatives(value):
            match one:
                case Fact():
                    facts.append(one)
                case Leaves(fact=fact):
                    facts.append(fact)
                case Const(value=None):
                    continue
                case Inst(scope=scope) if method is not None and self.interp.find_method(scope, method) is not None:
                    other += 1
                case Unknown(needs=needs):
                    facts.append(Fact(needs=needs))
                case Seq() | Map() | Const() | Bottom():
                    other += method is not None
                    if method is None:
                        facts.append(Fact(needs="local"))
                case _:
                    facts.append(Fact(needs="runtime"))
        if not facts:
            return None if other else [Fact(needs="runtime")]
        kinds = {fact.device for fact in facts}
        if "gpu" in kinds and kinds <= {"gpu", "unknown"}:
            # all that is known of it is on the GPU: code that keeps host and device tensors in one variable tests it
            facts = [
                replace(fact, assumed=True) if "unknown" in kinds else fact for fact in facts if fact.device == "gpu"
            ]
        return facts

    def argument(self, call: ast.Call, name: str, position: int, frame: Frame) -> Value | None:
        for keyword in call.keywords:
            if keyword.arg == name:
                return self.interp.expr(keyword.value, frame)
        if position < len(call.args):
            return self.interp.expr(call.args[position], frame)
        return None

    def decide(
        self,
        scope: Scope,
        node: ast.AST,
        operation: str,
        blocking: bool | None,
        pairs: list[tuple[Fact, Fact]],
        verdicts: list[Verdict],
    ) -> Site:
        """One site of several possible pairs of ends: the worst pair first."""
        order = sorted(range(len(pairs)), key=lambda i: ("blocks", "unknown", "async").index(verdicts[i].kind))
        pairs, verdicts = [pairs[i] for i in order], [verdicts[i] for i in order]
        verdict = combine(verdicts) if verdicts else Verdict("unknown", "unknown", "no value is seen to get here")
        if {one.kind for one in verdicts} == {"blocks", "unknown"} and self.fault_is_here(scope, node, pairs, verdicts):
            # here the fault is made, whatever the value that it is made of; only where that lies is not always known
            verdict = replace(verdicts[0], reason=f"{verdicts[0].reason}; where its other values lie is not known")
        if self.interp.exhausted and verdict.kind == "unknown":
            verdict = Verdict(
                "unknown",
                verdict.direction,
                "its value depends on more code than is followed for one site",
                needs="runtime",
            )
        # equal facts of different allocations count one by one
        sources = list({(source, source.origin): source for source, _ in pairs}.values())
        destinations = list({(one, one.origin): one for _, one in pairs}.values())
        return self.site(scope, node, operation, verdict, sources, destinations, blocking)

    def fault_is_here(
        self, scope: Scope, call: ast.AST, pairs: list[tuple[Fact, Fact]], verdicts: list[Verdict]
    ) -> bool:
        """Whether one expression in the function of the copy makes what every blocking source is faulted for."""
        node = scope.node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or not isinstance(call, ast.Call):
            return False
        copied: ast.expr | None = call.func.value if isinstance(call.func, ast.Attribute) else None
        if call_name(call.func) == "copy_":
            copied = copied_from(call)
        if copied is None:
            return False
        definition = scope.flow.uses.get(copied)
        while isinstance(definition, Guard):
            definition = definition.before
        if isinstance(definition, (Phi, Loop)):
            return False  # the other values are made elsewhere
        for (source, _), verdict in zip(pairs, verdicts):
            if verdict.kind == "blocks" and (
                verdict.host != "source" or not source.steps or source.steps[-1].filename != self.module.filename
                or not node.lineno <= source.steps[-1].row <= (node.end_lineno or 0)
            ):  # fmt: skip
                return False
        return True

    def site(
        self,
        scope: Scope,
        node: ast.AST,
        operation: str,
        verdict: Verdict,
        sources: list[Fact],
        destinations: list[Fact],
        blocking: bool | None,
    ) -> Site:
        host = host_end(verdict, sources, destinations)
        codes = codes_for(operation, verdict, sources, destinations, blocking) if verdict.kind == "blocks" else ()
        by_callers = bool(codes) and not self.interp.local
        cold = self.is_cold(scope, 0 if by_callers else MAX_COLD_CALLERS)
        if "HTD302" in codes and not self.is_hot(scope, node, 0 if by_callers else MAX_COLD_CALLERS) and not cold:
            codes = ()
        if self.is_allowed(scope, node):
            codes = ()
        row, end_row = getattr(node, "lineno", 1), getattr(node, "end_lineno", 1) or 1
        lines = self.module.lines
        frame = self.interp.open_frame(scope)
        is_captured = any(self.is_capture(one, frame) for one in scope.flow.contexts.get(node, ()))
        is_captured = is_captured or (bool(codes) and self.is_graphed(scope))
        return Site(
            filename=self.module.filename,
            row=row,
            column=count_characters(lines[row - 1], getattr(node, "col_offset", 0)) + 1,
            end_row=end_row,
            end_column=count_characters(lines[end_row - 1], getattr(node, "end_col_offset", 0) or 0) + 1,
            operation=operation,
            verdict=verdict,
            memory="unknown" if host is None or host.device == "gpu" else host.memory,
            layout=site_layout(host),
            non_blocking=blocking,
            sources=tuple(sources),
            destinations=tuple(destinations) if operation in ("copy_", "index", "setitem") else (),
            target="" if operation == "copy_" or not destinations else destinations[0].device,
            codes=codes,
            cold=cold,
            small=verdict.kind == "blocks"
            and verdict.direction == "h2d"
            and blocking is not False
            and bool(sources)
            and all(is_small(one) for one in sources),
            captured=is_captured,
            steps=() if host is None else host.steps,
            call=node,
            function=scope.node if scope.is_function else None,
            qualname=scope.qualname,
        )

    def is_capture(self, context: ast.expr, frame: Frame) -> bool:
        if not isinstance(context, ast.Call):
            return False
        return any(
            isinstance(one, Ref) and one.name in ("torch.cuda.graph", "torch.xpu.graph")
            for one in alternatives(self.interp.expr(context.func, frame))
        )

    def is_graphed(self, scope: Scope) -> bool:
        """Whether this module hands the function, or the module object whose `forward` it is, to be captured."""
        for caller, call in self.module.calls("make_graphed_callables") if scope.is_function else ():
            given = self.interp.expr(call.args[0], self.interp.open_frame(caller)) if call.args else None
            parts = given.items or () if isinstance(given, Seq) else (given,)
            for one in (inner for part in parts if part is not None for inner in alternatives(part)):
                match one:
                    case Func(scope=found) if found is scope:
                        return True
                    case Inst(scope=cls) if (
                        scope.name == "forward" and self.interp.find_method(cls, "forward") is scope
                    ):
                        return True
        return False

    def is_allowed(self, scope: Scope, node: ast.AST) -> bool:
        """Whether the user said that copies may block here."""
        allowed = self.project.config.allowed_contexts if self.project.config is not None else ()
        if not allowed:
            return False
        for context in scope.flow.contexts.get(node, ()):
            name = dotted(context.func if isinstance(context, ast.Call) else context)
            if name is not None and any(
                name == one or name.endswith("." + one) or one.endswith("." + name) for one in allowed
            ):
                return True
        return False

    # --- hot and cold ------------------------------------------------------------------------------------------

    def is_cold(self, scope: Scope, depth: int = 0) -> bool:
        """Code that runs once: module level, constructors, loading, and functions that only such code calls."""
        if not scope.is_function:
            return True
        if depth >= MAX_COLD_CALLERS:
            return self._is_cold(scope, depth)
        known = self.cold.get(scope)
        if known is None:
            self.cold[scope] = False  # while it is being asked, as in recursion
            known = self.cold[scope] = self._is_cold(scope, depth)
        return known

    def _is_cold(self, scope: Scope, depth: int) -> bool:
        patterns = (*COLD_NAMES, *(self.project.config.cold if self.project.config is not None else ()))
        outer: Scope | None = scope
        while outer is not None and outer.is_function:
            if any(fnmatchcase(outer.name, pattern) or fnmatchcase(outer.qualname, pattern) for pattern in patterns):
                return True
            outer = outer.parent
        if depth >= MAX_COLD_CALLERS or scope.name in HOT_NAMES:
            return False
        callers = [
            caller for caller, args, _ in self.interp.callers(scope, None) if args is not None or caller is not scope
        ]
        if not callers or len(callers) != len(self.interp.callers(scope, None)):
            return False
        return all(caller is not scope and caller.is_function and self.is_cold(caller, depth + 1) for caller in callers)

    def is_hot(self, scope: Scope, node: ast.AST, depth: int = 0) -> bool:
        """Code that runs every step: in a loop, in forward, step or __call__, and what they call."""
        if scope.flow.loops.get(node):
            return True
        if depth >= MAX_COLD_CALLERS:
            return self._is_hot(scope, depth)
        known = self.hot.get(scope)
        if known is None:
            self.hot[scope] = False
            known = self.hot[scope] = self._is_hot(scope, depth)
        return known

    def _is_hot(self, scope: Scope, depth: int) -> bool:
        if not scope.is_function:
            return False
        if any(fnmatchcase(scope.name, pattern) for pattern in HOT_NAMES):
            return True
        if depth >= MAX_COLD_CALLERS:
            return False
        for caller in dict.fromkeys(caller for caller, _, _ in self.interp.callers(scope, None) if caller is not scope):
            if in_tests(caller.module) or self.is_cold(caller):
                continue
            calls = [call for call in caller.flow.calls if call_name(call.func) == scope.name]
            if any(caller.flow.loops.get(call) for call in calls) or self.is_hot(caller, caller.node, depth + 1):
                return True
        return False


def is_settled(value: Value) -> bool:
    """Whether nothing further away could say more of a value."""
    match value:
        case Fact(device="gpu"):
            return True
        case Fact(device="cpu"):
            return not value.assumed and value.memory != "unknown" and value.layout != "unknown"
    return isinstance(value, Const)


# --- pure helpers ----------------------------------------------------------------------------------------------------


def passes_non_blocking(name: str, call: ast.Call) -> bool:
    """Whether the call says non_blocking, by keyword or by position."""
    if any(keyword.arg == "non_blocking" for keyword in call.keywords):
        return True
    match name:
        case "copy_" | "cuda" | "xpu":
            return len(call.args) == 2
        case "to":
            return len(call.args) in (2, 3, 4) and any(
                isinstance(arg, ast.Constant) and arg.value is True for arg in call.args[1:3]
            )
    return False


def truth(value: Value | None) -> bool | None:
    """`non_blocking` as given: absent is False. One that cannot be told is taken for true, which is why it is there;
    one that may be a known False is not."""
    if value is None:
        return False
    outcomes = {truth_of(one) for one in alternatives(value)}
    if False not in outcomes:
        return True
    return False if outcomes == {False} else None


def host_end(verdict: Verdict, sources: list[Fact], destinations: list[Fact]) -> Fact | None:
    if verdict.direction == "d2h" and destinations and destinations[0].device == "cpu":
        return destinations[0]
    return sources[0] if sources else None


def site_layout(host: Fact | None) -> Literal["contiguous", "strided", "unknown"]:
    if host is None or host.layout == "unknown":
        return "unknown"
    return "contiguous" if host.layout == "contiguous" else "strided"


def codes_for(
    operation: str, verdict: Verdict, sources: list[Fact], destinations: list[Fact], blocking: bool | None
) -> tuple[str, ...]:
    """The rules that speak of a blocking site, the one to fix first in front."""
    match operation:
        case "new_on_device":
            return ("HTD301",)
        case "index":
            return ("HTD303",)
        case "setitem":
            return ("HTD304",)
    if not blocking:
        return ("HTD302",) if verdict.direction == "h2d" else ()
    if verdict.direction == "d2h":
        return ("HTD105",) if operation == "copy_" else ()
    if verdict.direction != "h2d":
        return ()
    codes: list[str] = []
    for source in sources:
        for code in source_codes(source, verdict):
            if code not in codes:
                codes.append(code)
    return tuple(codes)


def source_codes(source: Fact, verdict: Verdict) -> list[str]:
    """The codes of one pageable or gapped source."""
    strided = source.layout in ("gapped", "broadcast") or verdict.fault == "permuted"
    if source.memory != "pageable":
        return ["HTD101"] if strided or verdict.fault in ("gapped", "permuted", "broadcast") else []
    made = source.origin.kind if source.origin is not None else "other"
    match made:
        case "join":
            code = "HTD102"
        case "new" if not source.held:
            code = "HTD103"
        case _:
            code = "HTD104"
    return [code, "HTD101"] if strided else [code]


def copied_from(call: ast.Call) -> ast.expr | None:
    """The source of a `copy_` call."""
    return call.args[0] if call.args else next((one.value for one in call.keywords if one.arg == "src"), None)


def take_for_pinned(fact: Fact) -> Fact:
    """A source whose own answer to `is_pinned()` is the flag of its copy."""
    if fact.memory != "unknown" or fact.device == "gpu":
        return fact
    return replace(fact, device="cpu", memory="pinned", shape=fact.shape or PACKED, assumed=False)


def named_ends(call: ast.Call, source: ast.expr) -> Literal["h2d", "d2h"] | None:
    """`buf.gpu[...].copy_(buf.cpu[...])`: the project's own words say which end is where."""
    assert isinstance(call.func, ast.Attribute)
    one, other = strip_subscripts(call.func.value), strip_subscripts(source)
    if not (isinstance(one, ast.Attribute) and isinstance(other, ast.Attribute)):
        return None
    if dotted(one.value) is None or dotted(one.value) != dotted(other.value):
        return None
    match one.attr, other.attr:
        case ("gpu" | "cuda" | "device_tensor", "cpu" | "host"):
            return "h2d"
        case ("cpu" | "host", "gpu" | "cuda"):
            return "d2h"
    return None


def strip_subscripts(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Subscript):
        node = node.value
    return node


def named_fact(fact: Fact, device: Literal["cpu", "gpu"], node: ast.expr, frame: Frame, interp: Interpreter) -> Fact:
    """A fact whose device only a name tells; the layout is what the subscripts leave of a packed buffer."""
    if fact.device != "unknown":
        return fact
    value: Value = Fact(device, needs="runtime", named=True, shape=PACKED)
    subscripts: list[ast.Subscript] = []
    while isinstance(node, ast.Subscript):
        subscripts.append(node)
        node = node.value
    step = Step(frame.scope.module.filename, node.lineno, f"only its name says where it is: {ast.unparse(node)}")
    for subscript in reversed(subscripts):
        if isinstance(value, Fact):
            value = library.index(interp, value, subscript, frame)
    assert isinstance(value, Fact)
    return value.then(step)
