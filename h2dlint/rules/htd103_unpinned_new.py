"""A non_blocking upload of a new CPU tensor that nobody pinned.

## What it does
Finds non_blocking copies to the GPU of tensors fresh from a factory: `torch.tensor`, `zeros`, `empty`, `full`,
`arange`, `from_numpy`, `as_tensor`, `FloatTensor` and the like, without `pin_memory=True` or `.pin_memory()`; in one
expression, through a name, an attribute, or a function's return value.

## Why it is bad
The GPU can only read pinned memory by itself. The driver stages everything else, and the calling thread waits for the
GPU's queued work: on an H200 a pageable copy of 2 to 3 MiB or more waits at once, and a loop of smaller ones that
runs ahead of the GPU waits a whole step every step.

## Example
```python
import torch


def upload(lengths, device):
    ends = torch.tensor(lengths, dtype=torch.int32)
    return ends.to(device, non_blocking=True)
```

## Use instead
```python
import torch


def upload(lengths, device):
    ends = torch.tensor(lengths, dtype=torch.int32, pin_memory=torch.cuda.is_available())
    return ends.to(device, non_blocking=True)
```

`from_numpy` and `as_tensor` take no `pin_memory=`: pin what they give, `torch.from_numpy(a).pin_memory()`. Where only
a number is needed no copy is better still: `torch.full((), x, device=device)`.

## When it is fine
For a few kilobytes now and then: what is provably at most 64 KiB is not reported unless `--include-small`. In code
that runs once it costs nothing worth a change.

## Fix safety
`pin_memory=` is given where the tensor is made if that is its only source and nothing writes it while a copy may run
(or waits first). Else a pinned copy is made just before the upload. Both are safe; the flag that the module already
pins with is used, and without one a test that lets a host without a GPU run the code as before.

## References
- https://docs.pytorch.org/docs/stable/generated/torch.tensor.html
- https://docs.pytorch.org/docs/stable/generated/torch.Tensor.pin_memory.html
"""

from __future__ import annotations

from h2dlint.fixes.context import RuleContext, call_of, source_of
from h2dlint.fixes.sources import pin_source
from h2dlint.model import Finding, Site
from h2dlint.rules.wording import HOLDS, by_name, made_at, operand, report

CODE = "HTD103"
NAME = "unpinned-new"
DEFAULT = True


def check(site: Site, context: RuleContext) -> Finding | None:
    """The finding at a site that the facts nominated."""
    call = call_of(site)
    if call is None:
        return None
    origin = site.source.origin if site.source else None
    maker = f"`{origin.call}`" if origin else "its factory"
    made = made_at(site.source, site)
    where = f" on {made}" if made.startswith("line") and origin and origin.span.row != site.row else ""
    where = where or (f" at {made}" if made and not made.startswith("line") else "")
    message = (
        f"{operand(source_of(call))} is new from {maker}{where}, which does not pin it, {HOLDS}{by_name(site.source)}; "
        "allocate it with `pin_memory=`, or pin it before the copy"
    )
    return report(CODE, NAME, site, context, message, pin_source(site, context, call))
