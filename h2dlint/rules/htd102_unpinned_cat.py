"""A non_blocking upload of joined CPU tensors: the result of cat, stack or pad_sequence is never pinned.

## What it does
Finds `.to(device, non_blocking=True)`, `.cuda(non_blocking=True)` and `dst.copy_(..., non_blocking=True)` of the
result of `torch.cat`, `concat`, `stack`, `hstack`, `vstack`, `block_diag`, `pad_sequence` and their like on CPU
tensors, without a pinned `out=`; also through a name, an attribute or a function's return value.

## Why it is bad
A join puts its result into new pageable memory, even if all its pieces are pinned. The driver stages such a copy, and
the calling thread waits for the GPU's queued work. Measured on an H200 with 20 ms of GPU work a step: 20.0 ms of host
time a step with such a copy and a strided one (HTD101), 0.2 ms with a pinned `out=` and a row loop.

## Example
```python
import torch


def upload(sizes, device):
    ids = [torch.arange(size) for size in sizes]
    return torch.cat(ids, dim=0).to(device, non_blocking=True)
```

## Use instead
```python
import torch


def upload(sizes, device):
    ids = [torch.arange(size) for size in sizes]
    pinned = torch.empty(sum(t.shape[0] for t in ids), dtype=torch.int64, pin_memory=torch.cuda.is_available())
    return torch.cat(ids, dim=0, out=pinned).to(device, non_blocking=True)
```

## When it is fine
For a few kilobytes now and then: pageable pieces of at most 64 KiB do not hold the host while less than some 4 MiB of
them are queued. What is provably that small is not reported unless `--include-small`.

## Fix safety
The pinned `out=` is written only where all pieces come from one expression (a comprehension, one `append` in a loop)
and none requires grad, as `out=` refuses mixed dtypes and gradients. Otherwise the joined tensor is pinned
afterwards, at the price of one more host copy. Both are safe: the memory is new for each copy, an empty list raises
as before, and a host without a GPU runs the code as it did.

## References
- https://docs.pytorch.org/docs/stable/generated/torch.cat.html
- https://docs.pytorch.org/docs/stable/notes/cuda.html#use-pinned-memory-buffers
- https://github.com/vllm-project/vllm/pull/51841
"""

from __future__ import annotations

import ast

from h2dlint.fixes.context import RuleContext, call_of, source_of
from h2dlint.fixes.guards import judge_reuse
from h2dlint.fixes.joins import join_pinned
from h2dlint.fixes.staging import snapshot, stage
from h2dlint.model import Finding, Fix, Site
from h2dlint.rules.wording import HOLDS, made_at, operand, report

CODE = "HTD102"
NAME = "unpinned-cat"
DEFAULT = True


def check(site: Site, context: RuleContext) -> Finding | None:
    """The finding at a site that the facts nominated."""
    call = call_of(site)
    if call is None:
        return None
    origin = site.source.origin if site.source else None
    join = f"`{origin.call}`" if origin else "the join"
    made = made_at(site.source, site)
    where = f" ({made})" if made and origin and origin.span.row != site.row else ""
    message = f"{join}{where} puts {_what(call)} into pageable memory, {HOLDS}; join into a pinned `out=`"
    return report(CODE, NAME, site, context, message, _fix(site, context, call))


def _what(call: ast.Call) -> str:
    source = source_of(call)
    return operand(source) if isinstance(source, (ast.Name, ast.Attribute)) else "its result"


def _fix(site: Site, context: RuleContext, call: ast.Call) -> Fix | str:
    source, fact = source_of(call), site.source
    if site.layout == "strided":
        return stage(site, context, call)
    if source is not None and fact is not None and fact.origin is not None:
        joined = join_pinned(site, context)
        if isinstance(joined, Fix) and judge_reuse(site, context, source, fact.origin.span).safe:
            return joined
    return snapshot(site, context, call)
