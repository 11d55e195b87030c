"""Who may write a host buffer while the GPU still reads it, and what makes the host wait first.

A copy that held the host had read its source when it returned. One that does not hold it reads later: a buffer that is
written again needs a guard, an event or a stream on which the host waits between the copy and the next write. Looked
for in the same function, in context managers around the copy, and in all callers inside the module.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from h2dlint.fixes.context import FUNCTIONS, FunctionNode, RuleContext, dotted, holds, root
from h2dlint.fixes.uses import uses_in
from h2dlint.model import Site, Span, Step

ADVICE = "record an event after the copy and synchronize it before the next write, or use a second buffer"
# Deep enough for real call chains; a bound for pathological ones.
MAX_CALLERS = 12


@dataclass(frozen=True, slots=True)
class Reuse:
    """Whether the copy may read the buffer itself; `why` says what is missing, `step` what makes it right.

    `overtaken` says that a write is seen in the same function that comes after the copy.
    """

    safe: bool
    why: str = ""
    step: Step | None = None
    overtaken: bool = False


def judge_reuse(site: Site, context: RuleContext, buffer: ast.expr, allocated: Span | None) -> Reuse:
    """Whether an asynchronous copy straight from `buffer`, allocated at `allocated`, can be overtaken by a write."""
    call = site.call
    if call is None:
        return Reuse(False, "the copy is no plain call")
    base = dotted(root(buffer)) or ""
    function = context.function(call)
    if function is not None and _is_own(context, call, function, base, allocated):
        return Reuse(True)
    if _never_written(context, base, function):
        return Reuse(True)
    if (step := find_guard(site, context, base)) is not None:
        return Reuse(True, step=step)
    name = base or ast.unparse(buffer)
    overtaken = function is not None and bool(base) and any(_later_writes(context, call, function, base))
    why = f"nothing seen waits for the copy before `{name}` may be written again: {ADVICE}"
    return Reuse(False, why, overtaken=overtaken)


def find_guard(site: Site, context: RuleContext, buffer: str = "") -> Step | None:
    """What makes the host wait between this copy and the next write of `buffer`, None where nothing is seen.

    Writes in the functions on the way have to come after the wait; without the name of a buffer none is looked for.
    """
    if site.call is None:
        return None
    return _guard_of(context, site.call, buffer, frozenset())


def find_wait(site: Site, context: RuleContext) -> Step | None:
    """What makes the host wait after a copy into host memory, before it can read the result."""
    call = site.call
    function = context.function(call) if call is not None else None
    if call is None or function is None:
        return None
    for wait in _waits(function):
        if _is_event(context, wait):
            continue
        if _after(wait, call) and _runs_whenever(context, wait, call):
            return _step(context, wait, "the host waits here before the result is read")
    for record in _calls(function, "record"):
        if not (_after(record, call) and _runs_whenever(context, record, call)):
            continue
        for wait in context.calls.get("synchronize", []):
            if isinstance(wait.func, ast.Attribute) and _receiver(wait) == _receiver(record):
                return _step(context, wait, f"`{_receiver(wait)}`, recorded after the copy, is synchronised here")
    return None


# --- lifetimes ---------------------------------------------------------------------------------------------------


def _is_own(context: RuleContext, call: ast.AST, function: FunctionNode, base: str, allocated: Span | None) -> bool:
    """Whether this call of the function made the memory, keeps it to itself and does not write it after the copy."""
    if base and ("." in base or not _is_local(function, base)):
        return False
    if not (_within(function, context, allocated) or _is_made_for_caller(context, allocated)):
        return False
    return not base or not (_escapes(function, base) or any(_later_writes(context, call, function, base)))


def _is_made_for_caller(context: RuleContext, allocated: Span | None) -> bool:
    """Whether a function of this module makes the tensor and only hands it to its caller, anew in each call."""
    made = context.expression_at(allocated) if allocated is not None else None
    maker = context.function(made) if made is not None else None
    if made is None or maker is None or not _is_plain(maker):
        return False
    match context.statement(made):
        case ast.Return():
            return True
        case ast.Assign(targets=[ast.Name(id=name)]):
            return _is_local(maker, name) and not _escapes(maker, name, returned=True)
        case _:
            return False


def _is_plain(function: FunctionNode) -> bool:
    """Whether no decorator can keep results (a cache would)."""
    known = ("staticmethod", "classmethod", "torch.no_grad", "torch.inference_mode", "no_grad", "inference_mode")
    names = [dotted(d.func if isinstance(d, ast.Call) else d) for d in function.decorator_list]
    return all(name in known for name in names)


def _within(function: FunctionNode, context: RuleContext, allocated: Span | None) -> bool:
    if allocated is None or allocated.filename != context.module.filename:
        return False
    return function.lineno <= allocated.row <= (function.end_lineno or 0)


def _is_local(function: FunctionNode, name: str) -> bool:
    names = {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}
    return bool(name) and name not in names and name not in uses_in(function).outer


def _escapes(function: FunctionNode, name: str, returned: bool = False) -> bool:
    """Whether the tensor, or a view of it, is handed out, kept in an attribute, or read by a nested function."""
    uses = uses_in(function)
    names = uses.names_of(name)
    ways = [uses.kept, uses.yielded, uses.nested, *([] if returned else [uses.returned])]
    return any(names & way for way in ways)


def _later_writes(context: RuleContext, call: ast.AST, function: FunctionNode, name: str) -> Iterator[ast.AST]:
    """Writes of a local buffer that can come after the copy: behind it, or in a loop that keeps the buffer."""
    uses = uses_in(function)
    rebound = {up for node in uses.rebinds(name) for up in context.ancestors(node)}
    kept = {loop for loop in context.loops(call) if loop not in rebound}
    for write in uses.writes_of(name):
        if _after(write, call) or not kept.isdisjoint(context.ancestors(write)):
            yield write


def _never_written(context: RuleContext, base: str, function: FunctionNode | None) -> bool:
    """Whether this module only ever reads the attribute or module name behind `base` once it is made."""
    parts = base.split(".")
    if len(parts) == 1:
        if not base or (function is not None and base in context.bound_in(function)):
            return False
    elif parts[0] != "self" or len(parts) != 2:
        return False
    if base not in context.constant:
        context.constant[base] = _is_only_read(context, base)
    return context.constant[base]


def _is_only_read(context: RuleContext, base: str) -> bool:
    uses = uses_in(context.tree)
    if base in context.handed_out or base in uses.returned or base in uses.outer:
        return False
    return not any(any(uses_in(scope).writes_of(base)) for scope in [*context.functions, context.tree])


# --- guards ------------------------------------------------------------------------------------------------------


def _guard_of(context: RuleContext, node: ast.AST, buffer: str, visited: frozenset[str]) -> Step | None:
    """The guard of one copy, or of one call on the way to it."""
    function = context.function(node)
    if function is None:
        return None
    return (
        _guard_around(context, function, node, buffer)
        or _guard_in(context, function, node, buffer)
        or _guard_of_callers(context, function, buffer, visited)
    )


def _guard_in(context: RuleContext, function: FunctionNode, node: ast.AST, buffer: str) -> Step | None:
    """A wait in the same function that runs whenever the copy does; an event has to be recorded after the copy."""
    for wait in _waits(function):
        if context.function(wait) is not function or not _runs_whenever(context, wait, node):
            continue
        if _is_overtaken(context, function, node, wait, buffer):
            continue
        if not _is_event(context, wait):
            return _step(context, wait, "the host waits for the stream here, between the copy and the next write")
        records = [r for r in _calls(function, "record") if _receiver(r) == _receiver(wait) and _after(r, node)]
        if any(_runs_whenever(context, record, node) for record in records):
            return _event_step(context, wait)
    return None


def _is_overtaken(context: RuleContext, function: FunctionNode, node: ast.AST, wait: ast.AST, buffer: str) -> bool:
    """Whether a write in this function gets in between the copy and the wait; a turn of a loop counts as after it."""
    for write in uses_in(function).writes_of(buffer) if buffer else ():
        if _after(write, node):
            if not (_after(wait, node) and _after(write, wait)):
                return True
            continue
        loops = [loop for loop in context.loops(node) if holds(loop, write)]
        if loops and not (holds(loops[0], wait) and (_after(wait, node) or _after(write, wait))):
            return True
    return False


def _guard_around(context: RuleContext, function: FunctionNode, node: ast.AST, buffer: str) -> Step | None:
    """A context manager around the copy that waits on an event when entered and records it when left."""
    for up in context.ancestors(node):
        if up is function:
            return None
        if not isinstance(up, (ast.With, ast.AsyncWith)):
            continue
        for item in up.items:
            if _is_overtaken(context, function, node, item.context_expr, buffer):
                continue
            for manager in _definitions(context, item.context_expr):
                if (wait := _waiting_manager(context, manager)) is not None:
                    return _event_step(context, wait)
    return None


def _waiting_manager(context: RuleContext, manager: ast.AST) -> ast.Call | None:
    recorded = {_receiver(call) for call in _calls(manager, "record")}
    for wait in _waits(manager):
        if _receiver(wait) in recorded or not _is_event(context, wait):
            return wait
    return None


def _guard_of_callers(
    context: RuleContext, function: FunctionNode, buffer: str, visited: frozenset[str]
) -> Step | None:
    """The guard that all callers inside this module give; None as soon as one has none."""
    # A local name means something else there, an attribute does not.
    known = buffer if buffer.startswith("self.") else ""
    if function.name in visited or len(visited) >= MAX_CALLERS:
        return None
    calls = [
        call
        for call in context.calls.get(function.name, [])
        if _called_name(call) == function.name and context.function(call) is not function
    ]
    steps = [_guard_of(context, call, known, visited | {function.name}) for call in calls]
    return steps[0] if steps and all(steps) else None


def _called_name(call: ast.Call) -> str:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name):
            return name
        case ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=name):
            return name
        case _:
            return ""


def _definitions(context: RuleContext, manager: ast.expr) -> list[ast.AST]:
    """The functions and classes of this module that `with manager:` may enter."""
    if not isinstance(manager, ast.Call):
        return []
    name = (dotted(manager.func) or "").split(".")[-1]
    return [
        node
        for node in context.parents
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and node.name == name
    ]


def _calls(scope: ast.AST, method: str) -> list[ast.Call]:
    return uses_in(scope).methods.get(method, [])


def _waits(scope: ast.AST) -> list[ast.Call]:
    return _calls(scope, "synchronize")


def _receiver(call: ast.Call) -> str:
    assert isinstance(call.func, ast.Attribute)
    return ast.unparse(call.func.value)


def _is_event(context: RuleContext, wait: ast.Call) -> bool:
    """Whether what is waited on is recorded somewhere, which only events are."""
    records = [call for call in context.calls.get("record", []) if isinstance(call.func, ast.Attribute)]
    return any(_receiver(call) == _receiver(wait) for call in records)


def _runs_whenever(context: RuleContext, other: ast.AST, node: ast.AST) -> bool:
    """Whether `other` runs on every way through the function that runs `node`; a test for None is allowed."""
    around = {id(up) for up in context.ancestors(node)}
    for up in context.ancestors(other):
        if id(up) in around:
            return True
        if isinstance(up, (ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.Lambda, *FUNCTIONS)):
            return False
        if isinstance(up, (ast.If, ast.IfExp)) and _path_of(other) not in ast.unparse(up.test):
            return False
    return False


def _path_of(node: ast.AST) -> str:
    return _receiver(node) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else "\0"


def _after(later: ast.AST, node: ast.AST) -> bool:
    return (later.lineno, later.col_offset) > (node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]


def _event_step(context: RuleContext, wait: ast.Call) -> Step:
    return _step(context, wait, f"`{_receiver(wait)}` is synchronised here before the buffer is written again")


def _step(context: RuleContext, node: ast.Call, message: str) -> Step:
    return Step(context.module.filename, node.lineno, message)
