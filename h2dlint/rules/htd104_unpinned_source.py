"""A non_blocking upload of a CPU tensor that lost its pinned memory on the way, or never had it.

## What it does
Finds non_blocking copies to the GPU of host tensors that are provably pageable for another reason than a fresh
factory or a join: the result of arithmetic, a cast, `clone`, `contiguous` of a gapped view, indexing with a list or a
tensor, or an attribute whose only allocation is not pinned.

## Why it is bad
Pinned memory does not survive computation: the difference of two pinned tensors is pageable, and so is `pinned[rows]`
with a list of rows. The driver stages a pageable copy, and the calling thread waits for the GPU's queued work.
Measured on an H200, in a loop that runs ahead of the GPU: the host spends 99 % of each GPU step in the copy.

## Example
```python
import torch

bounds = torch.zeros(1025, dtype=torch.int32, pin_memory=True)


def lengths(n, device):
    spans = bounds[1 : n + 1] - bounds[:n]
    return spans.to(device, non_blocking=True)
```

## Use instead
```python
import torch

bounds = torch.zeros(1025, dtype=torch.int32, pin_memory=True)


def lengths(n, device):
    spans = torch.empty(n, dtype=torch.int32, pin_memory=torch.cuda.is_available())
    torch.sub(bounds[1 : n + 1], bounds[:n], out=spans)
    return spans.to(device, non_blocking=True)
```

Most operations take a pinned `out=`. Where that is not worth the lines, `spans.pin_memory()` costs one more host
copy.

## When it is fine
For a few kilobytes now and then, and in code that runs once; neither is reported unless asked for.

## Fix safety
The allocation is pinned where it is seen and nothing writes it while a copy may run; else a pinned copy is made just
before the upload. Both are safe.

## References
- https://docs.pytorch.org/docs/stable/notes/cuda.html#use-pinned-memory-buffers
- https://docs.pytorch.org/docs/stable/generated/torch.Tensor.is_pinned.html
"""

from __future__ import annotations

from h2dlint.fixes.context import RuleContext, call_of, source_of
from h2dlint.fixes.sources import pin_source
from h2dlint.model import Fact, Finding, Site
from h2dlint.rules.wording import HOLDS, by_name, made_at, operand, report

CODE = "HTD104"
NAME = "unpinned-source"
DEFAULT = True


def check(site: Site, context: RuleContext) -> Finding | None:
    """The finding at a site that the facts nominated."""
    call = call_of(site)
    if call is None:
        return None
    message = (
        f"{operand(source_of(call))} is pageable{_why(site.source, site)}, {HOLDS}{by_name(site.source)}; "
        "write it into pinned memory, or pin it before the copy"
    )
    return report(CODE, NAME, site, context, message, pin_source(site, context, call))


def _why(fact: Fact | None, site: Site) -> str:
    if fact is None or fact.origin is None:
        return ""
    place = made_at(fact, site)
    match fact.origin.kind:
        case "index":
            return f": indexing with a list or a tensor copies ({place})"
        case "new":
            return f": it is allocated unpinned ({place})"
        case _ if "." in fact.origin.call:
            return f": what `{fact.origin.call}` gives is new memory ({place})"
        case _:
            return f": the result of a computation is new memory ({place})"
