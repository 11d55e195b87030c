"""A GPU tensor indexed by integers that are in host memory.

## What it does
Finds `gpu[index]` where `index` is a CPU tensor of integers or a list. Opt-in.

## Why it is bad
PyTorch moves the index to the GPU first, with a copy that holds the host until all queued work is done, even if the
index is pinned. Measured on an H200: the host spends 99 % of each GPU step in the indexing.

## Example
```python
import torch

table = torch.zeros((4096, 64), device="cuda")


def forward(keys):
    ids = torch.tensor([int(key) for key in keys], dtype=torch.int64)
    return table[ids]
```

## Use instead
```python
import torch

table = torch.zeros((4096, 64), device="cuda")


def forward(keys):
    ids = torch.tensor([int(key) for key in keys], dtype=torch.int64, pin_memory=True)
    return table[ids.to(table.device, non_blocking=True)]
```

Slices and Python integers need no copy. A boolean mask may stay on the host: its positions travel through pinned
memory.

## When it is fine
In code that runs once, and where the host waits anyway.

## Fix safety
Safe: the index arrives with the same values, from fresh pinned memory.

## References
- https://docs.pytorch.org/docs/stable/tensor_view.html
- https://docs.pytorch.org/docs/stable/notes/cuda.html#use-pinned-memory-buffers
"""

from __future__ import annotations

import ast

from h2dlint.fixes.capture import CAPTURED
from h2dlint.fixes.context import RuleContext, dotted
from h2dlint.fixes.names import torch_name
from h2dlint.fixes.pinning import find_pin
from h2dlint.fixes.places import flat, replace_in_line
from h2dlint.model import Edit, Finding, Fix, Site
from h2dlint.rules.wording import WAITS, operand, report

CODE = "HTD303"
NAME = "cpu-index"
DEFAULT = False


def check(site: Site, context: RuleContext) -> Finding | None:
    """The finding at a site that the facts nominated."""
    node = site.call
    if not isinstance(node, ast.Subscript):
        return None
    message = (
        f"{operand(node.value)} is on the GPU and its index {operand(node.slice)} on the host: it is copied first, "
        f"{WAITS}; move it with non_blocking, from pinned memory"
    )
    return report(CODE, NAME, site, context, message, _fix(site, context, node))


def _fix(site: Site, context: RuleContext, node: ast.Subscript) -> Fix | str:
    if site.captured:
        return CAPTURED
    owner = dotted(node.value)
    if owner is None:
        return "the tensor would be evaluated twice"
    pin = find_pin(site, context, node)
    move = f".to({owner}.device, non_blocking=True)"
    edits: tuple[Edit, ...]
    match node.slice:
        case ast.List(elts=[_, *_] as items) if all(_is_integer(item) for item in items):
            torch, imports = torch_name(context, node)
            text = f"{torch}.tensor({flat(context, node.slice)}, pin_memory={pin.text}){move}"
            edits = (replace_in_line(context, node.slice, text), *imports)
        case ast.Name() | ast.Attribute() if _is_tensor(site) and (name := dotted(node.slice)):
            kept = pin.keep(name)
            edits = (replace_in_line(context, node.slice, (kept if pin.sure else f"({kept})") + move),)
        case _:
            return "the index is no plain name: move it to the GPU where it is made"
    return Fix("safe", "move the index from pinned memory first", (*edits, *pin.edits))


def _is_tensor(site: Site) -> bool:
    """Whether the index is a tensor that was seen to be made; a list would have no `.to`."""
    return site.source is not None and site.source.origin is not None and not site.source.array


def _is_integer(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value=int() as number):
            return not isinstance(number, bool)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _is_integer(operand)
        case _:
            return False
