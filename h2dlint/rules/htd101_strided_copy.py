"""A non_blocking copy whose host side is a view with gaps, or lies in another order than the other side.

## What it does
Finds `dst.copy_(src, non_blocking=True)`, `src.to(device, non_blocking=True)` and `src.cuda(non_blocking=True)` where
`src` is host memory that is not one packed stretch for this copy: a slice that narrows a later dimension (`buf[:,
:n]`, `buf[..., :k]`, `buf[::2]`, `buf[:, 0]`), a transposed tensor that goes into another layout, an expanded one.

## Why it is bad
The DMA engine copies one stretch. PyTorch first gathers the view into a temporary, and that temporary is pageable
even if the buffer is pinned; so the driver stages it and the calling thread waits for the GPU's queued work. Measured
on an H200 with 20 ms of GPU work a step: 20.0 ms of host time a step with such a copy and an unpinned join (HTD102),
0.2 ms without. `torch.cuda.set_sync_debug_mode` does not see it.

## Example
```python
import torch

host = torch.zeros((3, 8193), dtype=torch.int64, pin_memory=True)
dev = torch.zeros((3, 8193), dtype=torch.int64, device="cuda")


def upload(n):
    dev[:, :n].copy_(host[:, :n], non_blocking=True)
```

## Use instead
```python
import torch

host = torch.zeros((3, 8193), dtype=torch.int64, pin_memory=True)
dev = torch.zeros((3, 8193), dtype=torch.int64, device="cuda")


def upload(n):
    for row in range(dev.shape[0]):
        dev[row, :n].copy_(host[row, :n], non_blocking=True)
```

With many rows, or a number that is not known, gather into fresh pinned memory and copy once: a loop costs the host
some 11 to 20 microseconds a row, the gather 25 to 50 and the memcpy. A transposed source is better copied into the
transposed destination: strides on the GPU cost the host nothing.

## When it is fine
Where the host has nothing else to do, or in code that runs once (that is not reported unless `--include-cold`).
Slices of whole rows (`buf[:n]`, `buf[i]`, `buf[i, :n]`) are packed and never reported.

## Fix safety
Staging is safe: its memory is new for each copy. The row loop and the turned copy read the buffer itself, later than
before: they are safe if the buffer is not written again, or if an event or a stream is seen on which the host waits
before it is; else unsafe, and the fix says what to add. Where a write is seen that comes after the copy, it is staged.

## References
- https://docs.pytorch.org/docs/stable/notes/cuda.html#use-pinned-memory-buffers
- https://docs.pytorch.org/docs/stable/generated/torch.Tensor.copy_.html
- https://github.com/vllm-project/vllm/pull/51841
"""

from __future__ import annotations

import ast

from h2dlint.fixes.context import RuleContext, call_of, source_of
from h2dlint.fixes.guards import judge_reuse
from h2dlint.fixes.rows import Plan, check_rows, loop_over_rows
from h2dlint.fixes.staging import stage
from h2dlint.fixes.turned import turn_ends
from h2dlint.model import Edit, Finding, Fix, Site
from h2dlint.rules.wording import by_name, made_at, operand, report, with_step

CODE = "HTD101"
NAME = "strided-copy"
DEFAULT = True

_WHAT = {
    "gapped": "leaves gaps between its rows",
    "permuted": "lies in another order than the destination",
    "broadcast": "is repeated to fill the destination",
}
_INSTEAD = {
    "gapped": "copy row by row, or gather it into pinned memory first",
    "permuted": "turn the destination instead, or pack it into pinned memory first",
    "broadcast": "copy what is there and repeat it on the GPU, or pack it into pinned memory first",
}


def check(site: Site, context: RuleContext) -> Finding | None:
    """The finding at a site that the facts nominated."""
    call = call_of(site)
    if call is None:
        return None
    fault = site.verdict.fault if site.verdict.fault in _WHAT else "gapped"
    made = made_at(site.source, site)
    pinned = f" (pinned, from {made})" if made and site.memory == "pinned" else f" (from {made})" if made else ""
    message = (
        f"{operand(source_of(call))}{pinned} {_WHAT[fault]}, so this non_blocking copy gathers it into pageable memory "
        f"and holds the host until the GPU catches up{by_name(site.source)}; {_INSTEAD[fault]}"
    )
    return report(CODE, NAME, site, context, message, _fix(site, context, call))


def _fix(site: Site, context: RuleContext, call: ast.Call) -> Fix | str:
    return _direct(site, context, call) or stage(site, context, call)


def _direct(site: Site, context: RuleContext, call: ast.Call) -> Fix | None:
    """The copy straight from the buffer, in packed pieces; None where that cannot be, or surely comes too late."""
    if site.memory != "pinned" or len(site.sources) != 1:
        return None
    message, edits = _packed(site, context, call)
    source, fact = source_of(call), site.source
    if not edits or source is None or fact is None:
        return None
    reuse = judge_reuse(site, context, source, fact.origin.span if fact.origin else None)
    if reuse.safe:
        return with_step(Fix("safe", message, edits), reuse.step)
    return None if reuse.overtaken else Fix("unsafe", message, edits, reuse.why)


def _packed(site: Site, context: RuleContext, call: ast.Call) -> tuple[str, tuple[Edit, ...]]:
    """How the copy can be made of packed pieces, with the edits; no edits where it cannot."""
    if site.verdict.fault == "permuted" and not isinstance(edits := turn_ends(site, context, call), str):
        return "turn both ends, so that the host side is packed", edits
    if site.verdict.fault == "gapped" and isinstance(plan := check_rows(site, context, call), Plan):
        return "copy row by row, each packed", loop_over_rows(plan, context)
    return "", ()
