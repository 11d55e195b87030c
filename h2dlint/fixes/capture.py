"""The host memory of a copy that a CUDA graph captures: made and pinned before the capture, and kept with the graph.

A capture accepts no pageable memory and no new pinned memory. What it has captured reads the same address in every
replay, so the graph itself is the one to hold the memory.
"""

from __future__ import annotations

import ast

from h2dlint import apis
from h2dlint.fixes.calls import add_keyword
from h2dlint.fixes.context import RuleContext, argument, dotted, holds, position, root, source_of
from h2dlint.fixes.names import fresh_name
from h2dlint.fixes.places import flat, is_harmless, place_of, replace_source
from h2dlint.model import Edit, Fix, Site

CAPTURED = "memory may not be pinned while a CUDA graph is captured: make it before the capture and keep it alive"
WHY = "the graph reads this memory whenever it is replayed: wait for a replay before writing it"


def pin_before_capture(site: Site, context: RuleContext, call: ast.Call) -> Fix | str:
    """Moves what makes the source in front of the `with` that captures, pinned; or says why it cannot be moved.

    Memory that exists before the capture is left alone: a pinned copy of it would hide what is written to it later.
    """
    source, found = source_of(call), capture_around(context, call)
    if source is None or found is None:
        return CAPTURED
    block, graph = found
    made = _made_in(block, source.id) if isinstance(source, ast.Name) else None
    value = made.value if made is not None else source
    if dotted(root(value)) is not None or not is_harmless(value) or _names(value, ast.Load) & _names(block, ast.Store):
        return CAPTURED
    place = place_of(context, block)
    if context.lines[block.lineno - 1][: block.col_offset].strip():
        return CAPTURED
    if made is not None and not place_of(context, made).alone:
        return CAPTURED
    name = source.id if made is not None and isinstance(source, ast.Name) else fresh_name(context, call, "pinned")
    lines = [f"{name} = {_pinned(site, context, value)}", f"{graph}.{name} = {name}"]
    edits = replace_source(context, call, source, name) if made is None else (_delete(context, made),)
    edits = (place.before(context, lines), *edits)
    return Fix("unsafe", "pin it before the capture and keep it with the graph", edits, WHY)


def keep_with_graph(context: RuleContext, call: ast.Call) -> tuple[Edit, ...]:
    """Lets the graph hold a source that a local name holds."""
    source, found = source_of(call), capture_around(context, call)
    if found is None or not isinstance(source, ast.Name) or context.lines[found[0].lineno - 1].lstrip()[:4] != "with":
        return ()
    return (place_of(context, found[0]).before(context, [f"{found[1]}.{source.id} = {source.id}"]),)


def capture_around(context: RuleContext, call: ast.Call) -> tuple[ast.With, str] | None:
    """The innermost `with torch.cuda.graph(g)` around the call, in the same function, and `g`."""
    for up in context.ancestors(call):
        if isinstance(up, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            return None
        if not isinstance(up, ast.With) or holds(ast.Tuple([item.context_expr for item in up.items]), call):
            continue
        for item in up.items:
            if isinstance(item.context_expr, ast.Call) and (dotted(item.context_expr.func) or "").endswith("graph"):
                graph = argument(item.context_expr, 0, "cuda_graph")
                path = None if graph is None else dotted(graph)
                return (up, path) if path is not None and len(up.items) == 1 else None
    return None


def _made_in(block: ast.With, name: str) -> ast.Assign | None:
    """The one statement of the block that binds the name."""
    stores = [node for node in ast.walk(block) if isinstance(node, ast.Name) and node.id == name]
    stores = [node for node in stores if isinstance(node.ctx, ast.Store)]
    for one in block.body:
        if isinstance(one, ast.Assign) and len(stores) == 1 and one.targets == stores:
            return one
    return None


def _names(node: ast.AST, use: type[ast.expr_context]) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, use)}


def _pinned(site: Site, context: RuleContext, value: ast.expr) -> str:
    """`value` in pinned memory: by the factory's own argument where it takes one."""
    text = flat(context, value)
    origin = site.source.origin if site.source is not None else None
    row = apis.lookup(origin.call) if origin is not None and context.expression_at(origin.span) is value else None
    if row is not None and row.pin and (factory := add_keyword(text, "pin_memory", "True")) is not None:
        return factory
    return f"{text}.pin_memory()" if isinstance(value, ast.Call) else f"({text}).pin_memory()"


def _delete(context: RuleContext, statement: ast.stmt) -> Edit:
    """Takes a statement away that has its lines for itself."""
    row, _, end_row, _ = position(statement)
    return context.trim(row, 0, "".join(f"{line}\n" for line in context.lines[row - 1 : end_row]), "")
