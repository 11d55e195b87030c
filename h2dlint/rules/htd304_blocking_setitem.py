"""A CPU tensor assigned into a GPU tensor.

## What it does
Finds `gpu[...] = cpu_tensor`, pinned or not. Opt-in.

## Why it is bad
An assignment has no `non_blocking`: the calling thread waits until all queued work and the copy are done.
Measured on an H200: the host spends 99 % of each GPU step in the assignment.

## Example
```python
import torch

table = torch.zeros((4096, 64), device="cuda")


def forward(rows: int):
    fresh = torch.zeros((rows, 64))
    table[:rows] = fresh
```

## Use instead
```python
import torch

table = torch.zeros((4096, 64), device="cuda")


def forward(rows: int):
    fresh = torch.zeros((rows, 64), pin_memory=True)
    table[:rows].copy_(fresh, non_blocking=True)
```

A Python number on the right needs no copy (`gpu[i] = 3.0`); `fill_` takes a CPU tensor without dimensions as well.

## When it is fine
In code that runs once, and where the host waits anyway.

## Fix safety
Safe where the subscript is made of slices and literal integers, so that it is a view, and the source is pinned
afresh. With a list or a tensor as the subscript `copy_` would write into a temporary: no fix.

## References
- https://docs.pytorch.org/docs/stable/generated/torch.Tensor.copy_.html
- https://docs.pytorch.org/docs/stable/tensor_view.html
"""

from __future__ import annotations

import ast
from types import EllipsisType

from h2dlint.fixes.capture import CAPTURED
from h2dlint.fixes.context import RuleContext, dotted, is_quiet
from h2dlint.fixes.guards import judge_reuse
from h2dlint.fixes.pinning import find_pin
from h2dlint.fixes.places import flat
from h2dlint.model import Finding, Fix, Site
from h2dlint.rules.wording import WAITS, operand, report

CODE = "HTD304"
NAME = "blocking-setitem"
DEFAULT = False


def check(site: Site, context: RuleContext) -> Finding | None:
    """The finding at a site that the facts nominated."""
    if site.call is None:
        return None
    statement = context.statement(site.call)
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    value = statement.value if isinstance(statement, ast.Assign) else None
    message = (
        f"{operand(value)} is copied from the host into {operand(target)} without non_blocking, {WAITS}; "
        "use `.copy_(..., non_blocking=True)` from pinned memory"
    )
    return report(CODE, NAME, site, context, message, _fix(site, context, statement))


def _fix(site: Site, context: RuleContext, statement: ast.stmt) -> Fix | str:
    match statement:
        case ast.Assign(targets=[ast.Subscript() as target], value=value):
            pass
        case _:
            return "it is not a plain assignment"
    items = target.slice.elts if isinstance(target.slice, ast.Tuple) else [target.slice]
    if not all(_is_plain(item) for item in items):
        return "with this subscript `copy_` might write into a temporary"
    name = dotted(value)
    if name is None or not is_quiet(target):
        return "the source has no name here"
    if site.captured:
        return CAPTURED
    if site.memory == "pinned":
        edit = context.replace(statement, f"{flat(context, target)}.copy_({name}, non_blocking=True)")
        reuse = judge_reuse(site, context, value, None)
        return Fix("safe" if reuse.safe else "unsafe", "copy with non_blocking", (edit,), reuse.why)
    pin = find_pin(site, context, statement)
    edit = context.replace(statement, f"{flat(context, target)}.copy_({pin.keep(name)}, non_blocking=True)")
    return Fix("safe", "copy from pinned memory with non_blocking", (edit, *pin.edits))


def _is_plain(item: ast.expr) -> bool:
    """A slice, a literal integer or `...`: what gives a view."""
    match item:
        case ast.Slice() | ast.Constant(value=int() | EllipsisType()):
            return not (isinstance(item, ast.Constant) and isinstance(item.value, bool))
        case _:
            return False
