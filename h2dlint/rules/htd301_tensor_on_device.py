"""A tensor made of Python values or arrays straight on the GPU: always a blocking copy.

## What it does
Finds `torch.tensor(data, device=gpu)`, `torch.as_tensor(array or list, device=gpu)` and `gpu.new_tensor(list)` in hot
code. Opt-in.

## Why it is bad
The data is made in pageable memory and copied without `non_blocking`: the calling thread waits for the GPU's queued
work, even for one number. Measured on an H200: the host spends 99 % of each GPU step in the call.

## Example
```python
import torch


def forward(x: torch.Tensor, lens):
    assert x.is_cuda
    sizes = torch.tensor(lens, dtype=torch.int32, device=x.device)
    return x * torch.tensor(3.14, device=x.device), sizes
```

## Use instead
```python
import torch


def forward(x: torch.Tensor, lens):
    assert x.is_cuda
    sizes = torch.tensor(lens, dtype=torch.int32, pin_memory=True).to(x.device, non_blocking=True)
    return x * torch.full((), 3.14, device=x.device), sizes
```

`torch.full`, `arange`, `zeros` and `fill_` are filled by the GPU itself. A Python number in an expression needs no
tensor.

## When it is fine
In code that runs once, for constants that are kept, where the GPU has nothing queued.

## Fix safety
Safe: the values, the dtype and the device stay, and the pinned memory is new for each call. A tensor that has to
require grad is left alone, as a copy of it would be no leaf.

## References
- https://docs.pytorch.org/docs/stable/generated/torch.tensor.html
- https://docs.pytorch.org/docs/stable/generated/torch.full.html
"""

from __future__ import annotations

import ast

from h2dlint.fixes.capture import CAPTURED
from h2dlint.fixes.context import RuleContext, argument, call_of
from h2dlint.fixes.names import torch_name
from h2dlint.fixes.pinning import find_pin
from h2dlint.fixes.places import flat, replace_in_line
from h2dlint.model import Finding, Fix, Site
from h2dlint.rules.wording import WAITS, operand, report

CODE = "HTD301"
NAME = "tensor-on-device"
DEFAULT = False

_MAX_FLOAT = 3.4e38


def check(site: Site, context: RuleContext) -> Finding | None:
    """The finding at a site that the facts nominated."""
    call = call_of(site)
    if call is None:
        return None
    number = _is_number(_data(call))
    instead = "fill it on the GPU (`torch.full`)" if number else "make it pinned and copy it with non_blocking"
    message = f"{operand(call.func)} copies {operand(_data(call))} to the GPU, {WAITS}; {instead}"
    return report(CODE, NAME, site, context, message, _fix(site, context, call))


def _data(call: ast.Call) -> ast.expr | None:
    return argument(call, 0, "data")


def _is_number(node: ast.expr | None, typed: bool = False) -> bool:
    """Whether `node` is a literal number that `torch.full` takes as `torch.tensor` does, errors included."""
    try:
        number = ast.literal_eval(node) if node is not None else None
    except (ValueError, TypeError):
        return False
    match number:
        case int():
            return abs(number) < 1 << 63
        case float():
            return abs(number) < _MAX_FLOAT
        case complex():
            return not typed
        case _:
            return False


def _fix(site: Site, context: RuleContext, call: ast.Call) -> Fix | str:
    data, method = _data(call), call.func.attr if isinstance(call.func, ast.Attribute) else ""
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    if data is None or None in keywords or len(call.args) > 1 or method not in ("tensor", "as_tensor", "new_tensor"):
        return "its arguments are not plain ones"
    if "requires_grad" in keywords:
        return "a copy of it would be no leaf of the graph"
    owner = flat(context, call.func.value) if method == "new_tensor" and isinstance(call.func, ast.Attribute) else ""
    if owner and not owner.replace(".", "").isidentifier():
        return "the tensor it is modelled on would be evaluated more than once"
    device = flat(context, keywords["device"]) if "device" in keywords else f"{owner}.device"
    dtype = flat(context, keywords["dtype"]) if "dtype" in keywords else f"{owner}.dtype" if owner else ""
    torch, imports = torch_name(context, call)
    typed = f", dtype={dtype}" if dtype else ""
    if _is_number(data, bool(typed)):
        text = f"{torch}.full((), {flat(context, data)}{typed}, device={device})"
        return Fix("safe", "fill it on the GPU", (replace_in_line(context, call, text), *imports))
    if site.captured:
        return CAPTURED
    pin = find_pin(site, context, call)
    text = f"{torch}.tensor({flat(context, data)}{typed}, pin_memory={pin.text}).to({device}, non_blocking=True)"
    edits = (replace_in_line(context, call, text), *imports, *pin.edits)
    return Fix("safe", "make it in pinned memory and copy it with non_blocking", edits)
