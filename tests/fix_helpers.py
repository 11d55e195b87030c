"""Sites made by hand for the tests of rules and fixes, and the runs of code before and after a fix.

A site is the call behind the marker `# site` (on its first row); the allocation, where a test needs one, is the call in
the row marked `# made`.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from typing import Any

from h2dlint.config import Config
from h2dlint.fixes.apply import splice
from h2dlint.model import Dim, Fact, Finding, Origin, Shape, Site, Size, Span, Verdict
from h2dlint.rules import RuleContext, load

FILENAME = "case.py"


@dataclass(frozen=True)
class Module:
    filename: str
    text: str
    tree: ast.Module


def context_of(text: str, config: Config | None = None) -> RuleContext:
    return RuleContext(Module(FILENAME, text, ast.parse(text)), config or Config())


def row_of(text: str, marker: str) -> int | None:
    rows = [row for row, line in enumerate(text.split("\n"), 1) if line.rstrip().endswith(marker)]
    return rows[0] if rows else None


def call_at(tree: ast.Module, row: int, names: tuple[str, ...] = ()) -> ast.Call:
    """The outermost call that begins in a row, or the one whose function ends in one of the names."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.lineno == row]
    if names:
        calls = [call for call in calls if ast.unparse(call.func).split(".")[-1] in names]
    return calls[0]


def size(value: int | str) -> Size:
    return Size(None, value) if isinstance(value, int) else Size(value, 0, value)


def view(*sizes: int | str, gap: tuple[int, ...] = (), order: tuple[int, ...] | None = None) -> Shape:
    """A shape of these sizes; `gap` names the dimensions whose steps jump over memory."""
    orders = order or tuple(range(len(sizes)))
    return Shape(tuple(Dim(size(s), orders[i], gap=i in gap) for i, s in enumerate(sizes)), tail=False)


def host(shape: Shape | None = None, memory: str = "pageable", **more: Any) -> Fact:
    return Fact(device="cpu", memory=memory, shape=shape, **more)  # type: ignore[arg-type]


def gpu(shape: Shape | None = None, **more: Any) -> Fact:
    return Fact(device="gpu", shape=shape, **{"assumed": True, **more})


def made(context: RuleContext, fact: Fact, call: str, kind: str = "new", names: tuple[str, ...] = ()) -> Fact:
    """The fact with the allocation marked `# made` (else the one inside the site's own row) behind it."""
    row = row_of(context.module.text, "# made") or row_of(context.module.text, "# site")
    assert row is not None
    node = call_at(context.tree, row, names or (call.split(".")[-1],))
    span = Span(FILENAME, node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0)
    return replace(fact, origin=Origin(kind, call, span))  # type: ignore[arg-type]


def site_of(
    context: RuleContext,
    code: str,
    source: Fact,
    destination: Fact | None = None,
    fault: str = "pageable",
    operation: str = "",
    direction: str = "h2d",
) -> Site:
    row = row_of(context.module.text, "# site")
    assert row is not None
    names = (operation,) if operation else ("copy_", "to", "cuda")
    call = call_at(context.tree, row, names)
    layout = "strided" if fault in ("gapped", "permuted", "broadcast") else "contiguous"
    end = "destination" if direction == "d2h" else "source"
    near = destination if direction == "d2h" and destination else source
    return Site(
        filename=FILENAME,
        row=call.lineno,
        column=call.col_offset + 1,
        end_row=call.end_lineno or 0,
        end_column=(call.end_col_offset or 0) + 1,
        operation=operation or ast.unparse(call.func).split(".")[-1],
        verdict=Verdict("blocks", direction, "", end, fault),  # type: ignore[arg-type]
        memory=near.memory,
        layout=layout,  # type: ignore[arg-type]
        non_blocking=True,
        sources=(source,),
        destinations=() if destination is None else (destination,),
        codes=(code,),
        call=call,
        function=context.function(call),
    )


def finding(context: RuleContext, site: Site) -> Finding:
    found = load()[site.codes[0]].check(site, context)
    assert found is not None
    return found


def fixed(context: RuleContext, site: Site) -> str:
    """The text after the fix, which has to compile."""
    found = finding(context, site)
    assert found.fix is not None, found.declined
    text = splice(context.module.text, found.fix.edits)
    compile(text, FILENAME, "exec")
    return text


def run(text: str, name: str, *args: Any) -> Any:
    """What `name(*args)` of a module gives on the CPU: values, or the type of the exception."""
    import torch

    torch.set_num_threads(1)
    scope: dict[str, Any] = {"__name__": "case"}
    exec(compile(text, FILENAME, "exec"), scope)
    try:
        return scope[name](*args)
    except Exception as error:
        return type(error)
