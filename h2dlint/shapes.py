"""What indexing and views do to a `Shape`: pure functions on dimensions and strides, as PyTorch's native views do them.

A dimension has a gap when one step along it jumps over memory outside the view. Taking part of a dimension opens a gap
in the next longer one outside it in memory; that is why `buf[:, :n]` is gathered and `buf[:n]` is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from h2dlint.model import Dim, Shape, Size

PACKED = Shape()
"""Contiguous, of unknown rank."""


@dataclass(frozen=True, slots=True)
class Pick:
    """One item of a subscript. A slice keeps its bounds where they are known; `whole` is `:`."""

    kind: Literal["int", "slice", "new", "ellipsis"]
    start: Size | None = None
    stop: Size | None = None
    whole: bool = False
    step: bool = False


WHOLE = Pick("slice", whole=True)


def packed(sizes: Sequence[Size | None]) -> Shape:
    """A contiguous shape of these sizes."""
    return Shape(tuple(Dim(size, order) for order, size in enumerate(sizes)), tail=False)


def length_of(pick: Pick, size: Size | None) -> tuple[Size | None, bool]:
    """The length of a slice of a dimension of `size`, and whether it surely is the whole dimension."""
    if pick.whole:
        return size, True
    start, stop = pick.start, pick.stop
    zero = start is None or start.number == 0
    if zero and stop is not None and size is not None and stop == size:
        return size, True
    if start is not None and stop is not None:
        if start.symbol == stop.symbol and stop.offset >= start.offset and not (start.number or 0) < 0:
            return Size(None, stop.offset - start.offset), False
        return None, False
    if zero:
        if stop is not None and stop.number is not None and stop.number < 0:
            return None, False
        return stop, False
    return None, False


def index(shape: Shape, picks: Sequence[Pick]) -> Shape | None:
    """The shape of `x[picks]` by integers, slices, None and an ellipsis; None where it cannot be told."""
    taken = sum(pick.kind in ("int", "slice") for pick in picks)
    where = next((i for i, pick in enumerate(picks) if pick.kind == "ellipsis"), None)
    if where is not None:
        if shape.tail:
            if any(not (p.kind == "slice" and p.whole) for p in picks[where + 1 :]):
                return None
            picks = picks[:where]
        else:
            fill = len(shape.dims) - taken
            if fill < 0:
                return None
            picks = [*picks[:where], *[WHOLE] * fill, *picks[where + 1 :]]
    dims = list(shape.dims)
    if shape.tail:
        top = max((dim.order for dim in dims), default=-1)
        while len(dims) < taken:
            top += 1
            dims.append(Dim(None, top))
    if taken > len(dims):
        return None
    result: list[Dim] = []
    position = 0
    narrowed: list[int] = []
    top = max((dim.order for dim in dims), default=-1)
    for pick in picks:
        if pick.kind == "new":
            top += 1
            result.append(Dim(Size(None, 1), top))
            continue
        if pick.kind == "ellipsis":
            continue
        dim = dims[position]
        position += 1
        if pick.kind == "int":
            if not dim.single:
                narrowed.append(dim.order)
            continue
        length, whole = length_of(pick, dim.size)
        if pick.step:
            dim = replace(dim, size=None, gap=not dim.single)
        elif not whole:
            dim = replace(dim, size=length)
            narrowed.append(dim.order)
        result.append(dim)
    result.extend(dims[position:])
    for order in narrowed:
        result = open_gap(result, order)
    return Shape(tuple(result), shape.tail)


def open_gap(dims: list[Dim], order: int) -> list[Dim]:
    """A dimension at `order` in memory got shorter: the next longer one outside it steps over what was left out."""
    outside = [dim for dim in dims if dim.order < order and not dim.single and not dim.zero]
    if not outside:
        return dims
    hit = max(outside, key=lambda dim: dim.order)
    return [replace(dim, gap=True) if dim is hit else dim for dim in dims]


def permute(shape: Shape, order: Sequence[int]) -> Shape | None:
    rank = len(shape.dims)
    if shape.tail or len(order) != rank or sorted(one % rank if rank else one for one in order) != list(range(rank)):
        return None
    return Shape(tuple(shape.dims[one] for one in order), tail=False)


def transpose(shape: Shape, first: int, second: int) -> Shape | None:
    """Swap two dimensions; with an unknown rank, only what is certain."""
    if shape.tail:
        if first < 0 or second < 0:
            return _swapped_end(shape) if {first, second} == {-1, -2} else None
        grown = grow(shape, max(first, second) + 1)
        dims = list(grown.dims)
        dims[first], dims[second] = dims[second], dims[first]
        return Shape(tuple(dims), tail=True)
    rank = len(shape.dims)
    if not (-rank <= first < rank and -rank <= second < rank):
        return None
    dims = list(shape.dims)
    dims[first], dims[second] = dims[second], dims[first]
    return Shape(tuple(dims), tail=False)


def _swapped_end(shape: Shape) -> Shape | None:
    """`x.mT` or `x.t()` of a packed tensor of unknown rank: taken as a matrix."""
    if shape.dims:
        return None
    return Shape((Dim(None, 1), Dim(None, 0)), tail=False)


def reverse(shape: Shape) -> Shape | None:
    """`x.T`, `x.t()`."""
    if shape.tail:
        return _swapped_end(shape)
    return Shape(tuple(reversed(shape.dims)), tail=False)


def grow(shape: Shape, count: int) -> Shape:
    """At least `count` explicit dimensions of an open shape."""
    dims = list(shape.dims)
    while shape.tail and len(dims) < count:
        dims.append(Dim(None, max((dim.order for dim in dims), default=-1) + 1))
    return Shape(tuple(dims), shape.tail)


def narrow(shape: Shape, dim: int, start: Size | None, length: Size | None) -> Shape | None:
    if shape.tail and dim >= 0:
        shape = grow(shape, dim + 1)
    if not -len(shape.dims) <= dim < len(shape.dims) or (shape.tail and dim < 0):
        return None
    at = dim % len(shape.dims)
    target = shape.dims[at]
    if length is not None and target.size is not None and length == target.size:
        return shape
    dims = list(shape.dims)
    dims[at] = replace(target, size=length)
    return Shape(tuple(open_gap(dims, target.order)), shape.tail)


def select(shape: Shape, dim: int) -> Shape | None:
    if shape.tail and dim >= 0:
        shape = grow(shape, dim + 1)
    if not -len(shape.dims) <= dim < len(shape.dims) or (shape.tail and dim < 0):
        return None
    at = dim % len(shape.dims)
    target = shape.dims[at]
    dims = [one for i, one in enumerate(shape.dims) if i != at]
    return Shape(tuple(dims if target.single else open_gap(dims, target.order)), shape.tail)


def unsqueeze(shape: Shape, dim: int) -> Shape | None:
    if shape.tail:
        if dim < 0 or dim > len(shape.dims):
            return shape if not shape.dims else None
    elif not -len(shape.dims) - 1 <= dim <= len(shape.dims):
        return None
    at = dim if dim >= 0 else len(shape.dims) + 1 + dim
    order = max((one.order for one in shape.dims), default=-1) + 1
    dims = [*shape.dims[:at], Dim(Size(None, 1), order), *shape.dims[at:]]
    return Shape(tuple(dims), shape.tail)


def squeeze(shape: Shape, dim: int | None) -> Shape | None:
    """Without single dimensions; a dimension of unknown length makes the rank unknown, not the layout."""
    if shape.layout == "contiguous":
        if dim is not None and not shape.tail and -len(shape.dims) <= dim < len(shape.dims):
            target = shape.dims[dim % len(shape.dims)]
            if target.size is not None and target.size.number is not None:
                keep = [one for one in shape.dims if one is not target or not target.single]
                return Shape(tuple(keep), tail=False)
        return PACKED
    if shape.tail:
        return None
    if any(one.size is None or one.size.number is None for one in shape.dims) and dim is None:
        return shape
    if dim is None:
        return Shape(tuple(one for one in shape.dims if not one.single), tail=False)
    return shape


def expand(shape: Shape, sizes: Sequence[Size | None] | None) -> Shape | None:
    """Dimensions of length one repeated with stride 0. -1 keeps a dimension."""
    if sizes is None:
        return None
    if shape.tail:
        return None
    missing = len(sizes) - len(shape.dims)
    if missing < 0:
        return None
    dims: list[Dim] = []
    order = max((one.order for one in shape.dims), default=-1)
    for position, size in enumerate(sizes):
        if position < missing:
            order += 1
            dims.append(Dim(size, order, zero=True))
            continue
        old = shape.dims[position - missing]
        if size is not None and (size.number == -1 or size == old.size):
            dims.append(old)
        elif old.single:
            dims.append(replace(old, size=size, zero=True))
        elif old.size is None or old.size.number is None:
            return None
        else:
            dims.append(old)
    return Shape(tuple(dims), tail=False)


def reshaped(shape: Shape, sizes: Sequence[Size | None] | None) -> Shape | None:
    """`view`/`reshape` of a contiguous tensor: contiguous, of the new sizes. Others: unknown."""
    if shape.layout != "contiguous":
        return None
    if sizes is None:
        return PACKED
    return packed([None if size is not None and size.number == -1 else size for size in sizes])


def same_layout(shape: Shape | None) -> Shape:
    """What `empty_like` gives: the strides of a dense tensor, else packed (TensorOptions preserve_format)."""
    if shape is None:
        return PACKED
    if shape.layout in ("contiguous", "permuted"):
        return shape
    return Shape(tuple(replace(dim, gap=False, zero=False, order=i) for i, dim in enumerate(shape.dims)), shape.tail)
