"""Exact facts of a tensor on hand, for the runtime checker and for the tests that hold the copy model to a clock."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from h2dlint.model import DeviceKind, Dim, Fact, Shape, Size

if TYPE_CHECKING:
    import torch


def fact_of(tensor: torch.Tensor) -> Fact:
    """Everything that the copy model asks of `tensor`, read off it.

    A pinned tensor without elements says that it is pageable, as `is_pinned` does. The shape of a tensor that is not
    strided (sparse, MKL-DNN) is left unknown.
    """
    device = name_device(tensor.device.type)
    strided = str(tensor.layout) == "torch.strided"
    return Fact(
        device=device,
        memory="unknown" if device != "cpu" else "pinned" if tensor.is_pinned() else "pageable",
        shape=shape_of(tuple(tensor.shape), tensor.stride()) if strided else None,
        dtype=str(tensor.dtype),
        max_bytes=tensor.numel() * tensor.element_size() if strided else None,
        grad=tensor.requires_grad,
    )


def name_device(kind: str) -> DeviceKind:
    """The kind of a `torch.device.type`: CUDA and ROCm both call theirs "cuda"."""
    match kind:
        case "cpu":
            return "cpu"
        case "cuda":
            return "gpu"
        case _:
            return "other"


@lru_cache(maxsize=4096)
def shape_of(sizes: tuple[int, ...], strides: tuple[int, ...]) -> Shape:
    """The shape of a strided tensor; `strides` count elements.

    Dimensions are ranked by stride, the longest outermost. One has a gap when its stride is not the extent of what lies
    inside it; a stride shorter than that (windows that overlap) counts as a gap as well, for both are gathered.
    """
    outermost = sorted(range(len(sizes)), key=lambda index: (-strides[index], index))
    orders = {index: order for order, index in enumerate(outermost)}
    gaps = set()
    extent = 1
    for index in reversed(outermost):
        if sizes[index] == 1 or strides[index] == 0:
            continue
        if strides[index] != extent:
            gaps.add(index)
        extent = strides[index] * sizes[index]
    dims = (
        Dim(Size(None, size), orders[index], gap=index in gaps, zero=stride == 0 and size > 1)
        for index, (size, stride) in enumerate(zip(sizes, strides, strict=True))
    )
    return Shape(tuple(dims), tail=False)
