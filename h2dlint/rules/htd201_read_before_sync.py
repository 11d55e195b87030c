"""The host reads the result of a non_blocking copy from the GPU before anything has waited for it.

## What it does
Finds `host = gpu.to("cpu", non_blocking=True)` and `pinned.copy_(gpu, non_blocking=True)` whose result the host reads
(`.item()`, `.tolist()`, `int()`, arithmetic, numpy, printing, ...) on a way that passes no synchronisation of the
stream that carries the copy. Reads are followed through views, numpy arrays of the same memory, containers, returned
values and attributes. What counts: `torch.cuda.synchronize()`, `stream.synchronize()`, `event.synchronize()` of an
event recorded after the copy, `event.query()`, a later blocking copy on the same stream. What does not: `wait_stream`
and `event.wait()`, which make only the GPU wait, a wait after the read, on one branch only, or for another stream.

## Why it is bad
The call returns at once; the data arrives when the GPU gets there. Until then the host reads what was in that memory
before: old or random numbers, without an error. Where the GPU is idle or another wait happens to stand in between, the
numbers are right, so tests pass.

## Example
```python
import torch

dev = torch.zeros(4096, device="cuda")


def total():
    host = dev.to("cpu", non_blocking=True)
    return float(host.sum())
```

## Use instead
```python
import torch

dev = torch.zeros(4096, device="cuda")


def total():
    host = dev.to("cpu", non_blocking=True)
    done = torch.cuda.Event()
    done.record()
    # other work of the host goes here
    done.synchronize()
    return float(host.sum())
```

Where there is no other work to do, drop `non_blocking`: the copy then waits by itself.

## When it is fine
Where something that h2dlint cannot see waits first. Teach it your own helper with a row of effect `sync` in
`[tool.h2dlint.functions]`.

## Fix safety
The fix synchronises the current stream right behind the copy, behind a test for CUDA where the copy may run without it.
It is unsafe: it gives up what the asynchronous copy was for. An event that is recorded behind the copy and synchronised
just before the read is better, but where it belongs only you know.

## References
- https://docs.pytorch.org/docs/stable/notes/cuda.html#asynchronous-execution
- https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html
"""

from __future__ import annotations

import ast

from h2dlint.fixes.context import RuleContext, call_of, receiver
from h2dlint.fixes.names import torch_name
from h2dlint.fixes.pinning import is_surely_gpu
from h2dlint.model import Finding, Fix, Site
from h2dlint.rules.wording import operand, report, short_path

CODE = "HTD201"
NAME = "read-before-sync"
DEFAULT = True

_UNSAFE = "the host waits there for all work of the stream, which is what the asynchronous copy was to avoid"


def check(site: Site, context: RuleContext) -> Finding | None:
    """The finding at a site that the races nominated; the last of its steps is the read."""
    call = call_of(site)
    if call is None or not site.steps:
        return None
    read = site.steps[-1]
    row = f"line {read.row}" if read.filename == site.filename else f"{short_path(read.filename)}:{read.row}"
    what = operand(receiver(call)) if site.operation == "copy_" else "its result"
    message = (
        f"nothing waits for this non_blocking copy to the host before {what} is read ({row} {read.message}), so the "
        "host may read old data; record an event after the copy and synchronize it before the read"
    )
    return report(CODE, NAME, site, context, message, _fix(site, context, call))


def _fix(site: Site, context: RuleContext, call: ast.Call) -> Fix | str:
    statement = context.statement(call)
    if not isinstance(statement, (ast.Assign, ast.Expr)) or statement.value is not call:
        return "the read stands in the same statement; split it, and wait in between"
    line = context.lines[statement.lineno - 1]
    indent = line[: len(line) - len(line.lstrip())]
    if line.encode()[: statement.col_offset].strip():
        return "the copy shares its line with another statement"
    row, column = statement.end_lineno or statement.lineno, statement.end_col_offset or 0
    if context.lines[row - 1].encode()[column:].strip()[:1] == b";":
        return "the copy shares its line with another statement"
    torch, imports = torch_name(context, call)
    lines = [f"{torch}.cuda.current_stream().synchronize()"]
    if not is_surely_gpu(site, context):
        lines = [f"if {torch}.cuda.is_available():", f"    {lines[0]}"]
    edit = context.insert(row, column, "".join(f"\n{indent}{one}" for one in lines))
    return Fix("unsafe", "synchronise the stream behind the copy", (*imports, edit), _UNSAFE)
