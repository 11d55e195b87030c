"""A copy of a CPU tensor to the GPU without non_blocking, in code that runs again and again.

## What it does
Finds `.to(gpu)`, `.cuda()` and `gpu.copy_(cpu)` without `non_blocking=True` in loops, in `forward`, `step`,
`__call__` and in what they call. Opt-in.

## Why it is bad
Without `non_blocking` the calling thread waits until the copy is done, and the copy waits for all work queued before
it, from pinned memory too. Measured on an H200: the host spends 99 % of each GPU step in the copy.

## Example
```python
import torch


def forward(logits: torch.Tensor, rows: int):
    assert logits.is_cuda
    mask = torch.zeros(rows, 4096, dtype=torch.bool)
    return logits.masked_fill(mask.to(logits.device), float("-inf"))
```

## Use instead
```python
import torch


def forward(logits: torch.Tensor, rows: int):
    assert logits.is_cuda
    mask = torch.zeros(rows, 4096, dtype=torch.bool, pin_memory=True)
    return logits.masked_fill(mask.to(logits.device, non_blocking=True), float("-inf"))
```

## When it is fine
In code that runs once, and where the host has to wait there anyway.

## Fix safety
Unsafe: the copy reads its source later than before, so a host write in between would be a race. The fix copies from
fresh pinned memory, which rules that out, but a wait that the old code relied on is gone.

## References
- https://docs.pytorch.org/docs/stable/generated/torch.Tensor.to.html
- https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html
"""

from __future__ import annotations

import ast

from h2dlint.fixes.apply import OverlapError, splice
from h2dlint.fixes.calls import add_keyword
from h2dlint.fixes.context import RuleContext, call_of, source_of
from h2dlint.fixes.sources import pin_source
from h2dlint.model import Finding, Fix, Site
from h2dlint.rules.wording import WAITS, operand, report

CODE = "HTD302"
NAME = "blocking-copy"
DEFAULT = False

_WHY = "the host no longer waits here, and code after it may rely on that"


def check(site: Site, context: RuleContext) -> Finding | None:
    """The finding at a site that the facts nominated."""
    call = call_of(site)
    if call is None:
        return None
    what = operand(source_of(call))
    message = f"{what} is copied to the GPU without non_blocking, {WAITS}; pin it and pass `non_blocking=True`"
    return report(CODE, NAME, site, context, message, _fix(site, context, call))


def _fix(site: Site, context: RuleContext, call: ast.Call) -> Fix | str:
    if any(isinstance(arg, ast.Starred) for arg in call.args):
        return "its arguments are hidden behind *"
    row, column = call.func.end_lineno, call.func.end_col_offset
    end_row, end_column = call.end_lineno, call.end_col_offset
    assert row is not None and column is not None and end_row is not None and end_column is not None
    old = context.between(row, column, end_row, end_column)
    new = add_keyword(f"call{old}", "non_blocking", "True")
    if new is None:
        return "its ** arguments may hold `non_blocking` already"
    flag = context.trim(row, column, old, new.removeprefix("call"))
    if site.memory == "pinned":
        why = f"{_WHY}; the source may be written while it is copied"
        return Fix("unsafe", "pass `non_blocking=True`", (flag,), why)
    pinned = pin_source(site, context, call)
    if isinstance(pinned, str):
        return pinned
    edits = (*pinned.edits, flag)
    try:
        splice(context.module.text, edits)
    except OverlapError:
        return "both changes meet in one place: pin the source first"
    return Fix("unsafe", "pin the source and pass `non_blocking=True`", edits, _WHY)
