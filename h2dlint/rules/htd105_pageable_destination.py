"""A non_blocking copy from the GPU into host memory that is not pinned, or is a view with gaps.

## What it does
Finds `host.copy_(gpu, non_blocking=True)` where `host` is pageable or is a view with gaps, and `gpu.to("cpu",
non_blocking=True)` of a tensor whose strides make the result go through pageable memory.

## Why it is bad
Copies from the GPU into pageable memory always hold the host, be it for 8 bytes: the calling thread waits until all
queued work is done and the data has arrived. (Into pinned, packed memory they never do.) Measured on an H200: the host
spends 99 % of each GPU step in the copy.

## Example
```python
import torch

host = torch.zeros(4096)
dev = torch.zeros(4096, device="cuda")
ready = torch.cuda.Event()


def read():
    host.copy_(dev, non_blocking=True)
    ready.record()


def result():
    ready.synchronize()
    return host.tolist()
```

## Use instead
```python
import torch

host = torch.zeros(4096, pin_memory=True)
dev = torch.zeros(4096, device="cuda")
ready = torch.cuda.Event()


def read():
    host.copy_(dev, non_blocking=True)
    ready.record()


def result():
    ready.synchronize()
    return host.tolist()
```

`dev.to("cpu", non_blocking=True)` makes a pinned result by itself. Wait for an event before the host reads it.

## When it is fine
Where the next line needs the data anyway: then say so and drop `non_blocking`.

## Fix safety
Pinning the destination is safe where a wait (an event recorded after the copy, a stream, the device) is seen before
the host reads; else unsafe: the old copy returned with the data in place, the new one does not.

## References
- https://docs.pytorch.org/docs/stable/generated/torch.Tensor.copy_.html
- https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html
"""

from __future__ import annotations

import ast

from h2dlint.fixes.allocations import Allocation, pin_allocation
from h2dlint.fixes.context import RuleContext, call_of, receiver
from h2dlint.fixes.guards import find_wait
from h2dlint.fixes.rows import Plan, check_rows, loop_over_rows
from h2dlint.fixes.staging import append
from h2dlint.model import Edit, Finding, Fix, Site
from h2dlint.rules.wording import HOLDS_DOWN, by_name, made_at, operand, report, with_step

CODE = "HTD105"
NAME = "pageable-destination"
DEFAULT = True

_NO_WAIT = "nothing seen makes the host wait before it reads: record an event after the copy and synchronize it"
_REPACKED = "the result is packed then, with other strides than before"
_SPREAD = "read into packed pinned memory (`.to('cpu', non_blocking=True)`), wait for it, and spread it on the host"
_GAPS = "leaves gaps between its rows"
_LOST = "the subscript makes a temporary, so the data never reaches the buffer; assign to the buffer instead"


def check(site: Site, context: RuleContext) -> Finding | None:
    """The finding at a site that the facts nominated."""
    call = call_of(site)
    if call is None:
        return None
    made = made_at(site.destination, site)
    where = f" ({made})" if made else ""
    named = by_name(site.source)
    if site.operation != "copy_":
        message = (
            f"{operand(receiver(call))} is not packed, so the result of this non_blocking copy passes through pageable "
            f"memory {HOLDS_DOWN}; make it contiguous on the GPU first"
        )
    elif site.verdict.fault == "pageable":
        message = (
            f"{operand(receiver(call))} is pageable{where}, so this non_blocking copy holds the host until the data is "
            f"there{named}; pin it where it is allocated, or use `.to('cpu', non_blocking=True)`"
        )
    else:
        lies = "lies in another order than the source" if site.verdict.fault == "permuted" else _GAPS
        message = (
            f"{operand(receiver(call))}{where} {lies}, so this non_blocking copy passes through "
            f"pageable memory {HOLDS_DOWN}{named}; read into packed pinned memory"
        )
    if _is_temporary(site):
        message += f"; also {_LOST}"
    return report(CODE, NAME, site, context, message, _fix(site, context, call))


def _is_temporary(site: Site) -> bool:
    fact = site.destination
    return site.operation == "copy_" and fact is not None and fact.origin is not None and fact.origin.kind == "index"


def _fix(site: Site, context: RuleContext, call: ast.Call) -> Fix | str:
    fact = site.destination
    if site.operation != "copy_":
        owner = receiver(call)
        if owner is None:
            return "the source is not written here"
        edits = append(context, call, owner, ".contiguous()")
        return Fix("unsafe", "make it contiguous on the GPU", edits, _REPACKED)
    if _is_temporary(site):
        return _LOST
    if fact is None or len(site.destinations) != 1:
        return "the destination comes from more than one place"
    if site.verdict.fault == "pageable":
        allocation = pin_allocation(site, fact, context)
        if isinstance(allocation, str):
            return f"{allocation}: pin it there, or use `.to('cpu', non_blocking=True)`, which makes a pinned result"
        if site.layout != "strided":
            return _checked(site, context, "allocate the destination in pinned memory", allocation)
        plan = check_rows(site, context, call)
        if not isinstance(plan, Plan):
            return _SPREAD
        both = Allocation(call, (*allocation.edits, *loop_over_rows(plan, context)), allocation.doubt)
        return _checked(site, context, "allocate the destination in pinned memory and copy row by row", both)
    plan = check_rows(site, context, call)
    if isinstance(plan, Plan) and site.memory == "pinned":
        return _checked(site, context, "copy row by row, each packed", loop_over_rows(plan, context))
    return _SPREAD


def _checked(site: Site, context: RuleContext, message: str, change: Allocation | tuple[Edit, ...]) -> Fix:
    """The fix, safe only where the host is seen to wait before it reads."""
    edits, doubt = (change.edits, change.doubt) if isinstance(change, Allocation) else (change, "")
    step = find_wait(site, context)
    if step is not None and not doubt:
        return with_step(Fix("safe", message, edits), step)
    return Fix("unsafe", message, edits, doubt if step is not None else _NO_WAIT)
