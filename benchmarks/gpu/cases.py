"""The copies on which the copy model is held to a clock: operation x memory x layout x dtypes x layout of the far end.

Each is far over the size that the driver buffers, so that waiting, where there is any, shows in a steady loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from h2dlint.model import Fact
from h2dlint.runtime.exact import fact_of

Make = Callable[..., torch.Tensor]
View = Callable[[Make], torch.Tensor]

VIEWS: dict[str, View] = {
    "packed": lambda make: make(16, 4096),
    "leading rows": lambda make: make(32, 4096)[:16],
    "one row": lambda make: make(4, 65536)[1],
    "part of one row": lambda make: make(4, 65600)[1, :65536],
    "slice of one row": lambda make: make(4, 65600)[1:2, :65536],
    "columns": lambda make: make(16, 4104)[:, :4096],
    "every other row": lambda make: make(32, 4096)[::2],
    "one column": lambda make: make(65536, 4)[:, 0],
    "narrowed": lambda make: make(16, 4104).narrow(1, 8, 4096),
    "planes, rows cut": lambda make: make(4, 16, 2048)[:, :8],
    "planes, columns cut": lambda make: make(4, 8, 2056)[..., :2048],
    "rows of one plane": lambda make: make(4, 64, 2048)[0, :32],
    "turned": lambda make: make(4096, 16).t(),
    "channels last": lambda make: make(16, 16, 16, 16).permute(0, 3, 1, 2),
    "turned columns": lambda make: make(4096, 24)[:, :16].t(),
    "expanded": lambda make: make(1, 4096).expand(16, 4096),
    "columns expanded": lambda make: make(4096, 1).expand(4096, 16),
    "windows that overlap": lambda make: make(65538).unfold(0, 4, 2),
    "turned, expanded": lambda make: make(2048, 1, 16).expand(2048, 2, 16).permute(2, 1, 0),
}


@dataclass(frozen=True, slots=True)
class Case:
    """A call to be timed. `source` and `destination` are what `judge` is given."""

    name: str
    operation: str
    non_blocking: bool
    source: Fact
    destination: Fact
    step: Callable[[], object]


def make_on(device: str, dtype: torch.dtype, pinned: bool = False) -> Make:
    """An allocator of zeros for `VIEWS`."""
    return lambda *sizes: torch.zeros(*sizes, dtype=dtype, device=device, pin_memory=pinned)


def list_uploads() -> Iterator[Case]:
    """Host to device with non_blocking=True."""
    for memory in ("pinned", "pageable"):
        for layout, view in VIEWS.items():
            for target in (torch.float32, torch.float16):
                source = view(make_on("cpu", torch.float32, memory == "pinned"))
                head = f"upload {memory}, {layout}, {_name(target)}"
                yield _case_of_to(f"{head}: to", source, "cuda", None if target == source.dtype else target)
                for far, destination in _list_far_ends(source, "cuda", target):
                    yield _case_of_copy(f"{head}: copy_ into {far}", source, destination)
                if target == source.dtype:
                    yield _case_of_cuda(f"{head}: cuda", source)


def list_formats() -> Iterator[Case]:
    """Uploads by `.to` that ask for the strides of the result."""
    for memory in ("pinned", "pageable"):
        for layout in (torch.contiguous_format, torch.channels_last):
            source = torch.zeros(16, 16, 16, 16).contiguous(memory_format=layout)
            if memory == "pinned":
                source = source.pin_memory()
            for target in (torch.contiguous_format, torch.channels_last):
                step = partial(source.to, "cuda", non_blocking=True, memory_format=target)
                name = f"upload {memory}, {_name(layout)}: to {_name(target)}"
                yield Case(name, "to", True, fact_of(source), fact_of(step()), step)


def list_downloads() -> Iterator[Case]:
    """Device to host with non_blocking=True."""
    for layout, view in VIEWS.items():
        for target in (torch.float32, torch.float16):
            source = view(make_on("cuda", torch.float32))
            head = f"download {layout}, {_name(target)}"
            yield _case_of_to(f"{head}: to", source, "cpu", None if target == source.dtype else target)
        if "expanded" in layout or "overlap" in layout:
            continue  # nothing should be written there, and PyTorch mostly raises
        for memory in ("pinned", "pageable"):
            for origin in (torch.float32, torch.float16):
                destination = view(make_on("cpu", torch.float32, memory == "pinned"))
                head = f"download into {memory}, {layout}, from {_name(origin)}"
                for far, source in _list_far_ends(destination, "cuda", origin):
                    if far != "repeated":
                        yield _case_of_copy(f"{head}: copy_ from {far}", source, destination)


def _list_far_ends(near: torch.Tensor, device: str, dtype: torch.dtype) -> Iterator[tuple[str, torch.Tensor]]:
    shape = near.shape
    yield "packed", torch.zeros(shape, dtype=dtype, device=device)
    yield "gaps", torch.zeros(*shape[:-1], shape[-1] + 8, dtype=dtype, device=device)[..., : shape[-1]]
    yield "repeated", torch.zeros(2, *shape, dtype=dtype, device=device)
    if 0 not in near.stride():
        yield "equal strides", torch.empty_strided(shape, near.stride(), dtype=dtype, device=device)


def _case_of_to(name: str, source: torch.Tensor, device: str, dtype: torch.dtype | None) -> Case:
    asked = Fact(device="gpu" if device == "cuda" else "cpu", dtype=None if dtype is None else str(dtype))
    if dtype is None:
        return Case(name, "to", True, fact_of(source), asked, lambda: source.to(device, non_blocking=True))
    return Case(name, "to", True, fact_of(source), asked, lambda: source.to(device, dtype, non_blocking=True))


def _case_of_cuda(name: str, source: torch.Tensor) -> Case:
    return Case(name, "cuda", True, fact_of(source), Fact(device="gpu"), lambda: source.cuda(non_blocking=True))


def _case_of_copy(name: str, source: torch.Tensor, destination: torch.Tensor) -> Case:
    facts = fact_of(source), fact_of(destination)
    return Case(name, "copy_", True, *facts, lambda: destination.copy_(source, non_blocking=True))


def list_waiting() -> Iterator[Case]:
    """Calls that have no non_blocking, or leave it out, and what looks like them and does not wait."""
    rows = torch.zeros(4096, 16, device="cuda")
    asked = Fact(device="gpu")
    for memory in ("pinned", "pageable"):
        host = torch.zeros(4096, 16, pin_memory=memory == "pinned")
        row, whole, mask = host[0], torch.arange(64), torch.arange(4096) < 8
        if memory == "pinned":
            whole, mask = whole.pin_memory(), mask.pin_memory()
        near, far = fact_of(host), fact_of(rows)
        yield Case(f"{memory} to", "to", False, near, asked, partial(host.to, "cuda"))
        yield Case(f"{memory} cuda", "cuda", False, near, asked, host.cuda)
        yield Case(f"{memory} copy_ up", "copy_", False, near, far, partial(rows.copy_, host))
        yield Case(f"{memory} copy_ down", "copy_", False, far, near, partial(host.copy_, rows))
        yield _case_of_setitem(f"{memory} setitem of a row", rows, slice(0, 1), row)
        yield _case_of_setitem(f"{memory} setitem of all", rows, slice(None), host)
        yield _case_of_index(f"{memory} index", rows, whole)
        yield _case_of_index(f"{memory} 0-dim index", rows, whole[3])
        yield _case_of_index(f"{memory} mask", rows, mask)
        yield _case_of_index(f"{memory} mask of bytes", rows, mask.to(torch.uint8))
    yield Case("to cpu", "to", False, fact_of(rows), Fact(device="cpu"), partial(rows.to, "cpu"))
    yield Case("cpu", "cpu", False, fact_of(rows), Fact(device="cpu"), rows.cpu)
    words = list(range(16))
    array = torch.arange(4096).numpy()
    new = {"number": 3, "list": words, "array": array}
    for what, value in new.items():
        yield _case_of_new(f"tensor of a {what}", partial(torch.tensor, value, device="cuda"))
        yield _case_of_new(f"as_tensor of a {what}", partial(torch.as_tensor, value, device="cuda"))
    for index in (whole, mask):
        for key in (index.tolist(), index.numpy()):
            fact = replace(fact_of(index), array=True)
            name = f"index by {type(key).__name__} of {_name(index.dtype)}"
            yield Case(name, "index", False, fact, far, partial(rows.__getitem__, key))
    yield from _list_empty()


def _list_empty() -> Iterator[Case]:
    empty, far = torch.zeros(0, 4), torch.zeros(0, 4, device="cuda")
    near = fact_of(empty)
    for flag in (True, False):
        head = f"empty, non_blocking={flag}"
        yield Case(f"{head}: to", "to", flag, near, Fact(device="gpu"), partial(empty.to, "cuda", non_blocking=flag))
        yield Case(f"{head}: up", "copy_", flag, near, fact_of(far), partial(far.copy_, empty, non_blocking=flag))
        yield Case(f"{head}: down", "copy_", flag, fact_of(far), near, partial(empty.copy_, far, non_blocking=flag))


def _case_of_setitem(name: str, target: torch.Tensor, key: Any, value: torch.Tensor) -> Case:
    facts = fact_of(value), fact_of(target[key])
    return Case(name, "setitem", False, *facts, lambda: target.__setitem__(key, value))


def _case_of_index(name: str, target: torch.Tensor, index: torch.Tensor) -> Case:
    return Case(name, "index", False, fact_of(index), fact_of(target), lambda: target[index])


def _case_of_new(name: str, step: Callable[[], object]) -> Case:
    return Case(name, "new_on_device", False, Fact(device="cpu"), Fact(device="gpu"), step)


def list_all() -> Iterator[Case]:
    """Every case; made one at a time, so that the card holds few tensors."""
    yield from list_uploads()
    yield from list_formats()
    yield from list_downloads()
    yield from list_waiting()


def _name(constant: torch.dtype | torch.memory_format) -> str:
    return str(constant).removeprefix("torch.")
