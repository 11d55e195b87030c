"""The host writes pinned memory while a non_blocking copy may still read or fill it.

## What it does
Finds a non_blocking copy from a pinned buffer (or into one) that the host writes again, further on, in the next turn
of a loop or in the next call of the method, on a way that passes no synchronisation since the copy: no
`event.synchronize()` of an event recorded after it, no `stream.synchronize()`, no blocking copy on the same stream.
Across calls a wait seen anywhere between, in the callers or in a context manager around them, counts as a guard.

## Why it is bad
The call returns before the GPU has read the memory. What the host writes next goes out instead, or half of it does:
wrong data, without an error, and only when the GPU is behind. With pageable memory the same code is right, because
there the driver takes the data first; so pinning a buffer can bring this fault to light.

## Example
```python
import torch

host = torch.zeros(4096, dtype=torch.int64, pin_memory=True)
dev = torch.zeros(4096, dtype=torch.int64, device="cuda")


def upload(ids):
    host[: len(ids)] = torch.tensor(ids)
    dev.copy_(host, non_blocking=True)
```

## Use instead
```python
import torch

dev = torch.zeros(4096, dtype=torch.int64, device="cuda")


def upload(ids):
    fresh = torch.tensor(ids, dtype=torch.int64, pin_memory=True)
    dev[: len(ids)].copy_(fresh, non_blocking=True)
```

A pinned tensor that is made anew for each copy is safe: the allocator does not give its memory away before the copy is
done. A buffer that is kept needs an event: record it after the copy, synchronize it before the next write; with two
buffers and an event for each the host seldom waits. `pin_memory()` of a pinned tensor is that tensor and no snapshot:
`clone().pin_memory()` is one.

## When it is fine
Where something that h2dlint cannot see waits between the copy and the write. Teach it your own helper with a row of
effect `sync` in `[tool.h2dlint.functions]`. Never reported: a write on the GPU, in the order of its stream; one that
takes the next row of the buffer in each turn; one behind the end of what was copied.

## Fix safety
There is no fix: whether an event, a second buffer or a fresh tensor is right depends on the code around it.

## References
- https://docs.pytorch.org/docs/stable/notes/cuda.html#use-pinned-memory-buffers
- https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html
"""

from __future__ import annotations

from h2dlint.fixes.context import RuleContext, call_of, receiver, source_of
from h2dlint.model import Finding, Site
from h2dlint.rules.wording import operand, report, short_path

CODE = "HTD202"
NAME = "overwrite-in-flight"
DEFAULT = True


def check(site: Site, context: RuleContext) -> Finding | None:
    """The finding at a site that the races nominated; the last of its steps is the write."""
    call = call_of(site)
    if call is None or not site.steps:
        return None
    write = site.steps[-1]
    row = f"line {write.row}" if write.filename == site.filename else f"{short_path(write.filename)}:{write.row}"
    down = site.verdict.direction == "d2h"
    host = operand(receiver(call) if down else source_of(call))
    does = "fill" if down else "read"
    message = (
        f"{host} is written again ({row}) while this non_blocking copy may still {does} it, and nothing waits in "
        "between; record an event after the copy and synchronize it before the write, or use a fresh pinned tensor"
    )
    return report(CODE, NAME, site, context, message, "an event, a second buffer or a fresh tensor: the code decides")
