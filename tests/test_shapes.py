"""Views on shapes against PyTorch: random chains of views, each claim compared with real strides."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from h2dlint import shapes
from h2dlint.model import Dim, Layout, Shape, Size
from h2dlint.shapes import PACKED, Pick

torch = pytest.importorskip("torch")


def size(number: int) -> Size:
    return Size(None, number)


def packed(*sizes: int) -> Shape:
    return shapes.packed([size(one) for one in sizes])


def real_layout(tensor: Any) -> Layout:
    """The layout by the strides of a tensor, read the way the copy kernel reads them."""
    long = [(length, stride) for length, stride in zip(tensor.shape, tensor.stride()) if length != 1]
    if any(stride == 0 for _, stride in long):
        return "broadcast"
    expected = 1
    for length, stride in sorted(long, key=lambda pair: pair[1]):
        if stride != expected:
            return "gapped"
        expected *= length
    return "contiguous" if tensor.is_contiguous() else "permuted"


def check(shape: Shape | None, tensor: Any) -> None:
    """A shape, where there is one, tells the truth about a tensor."""
    if shape is None:
        return
    if shape.rank is not None:
        assert shape.rank == tensor.dim()
    for dim, length in zip(shape.dims, tensor.shape):
        if dim.size is not None and dim.size.number is not None:
            assert dim.size.number == length
    if 0 not in tensor.shape:
        assert shape.layout == real_layout(tensor), (shape, tensor.shape, tensor.stride())


Step = tuple["Shape | None", Any]
VIEWS = ("pick", "permute", "transpose", "reverse", "narrow", "select", "unsqueeze", "expand", "flatten")


def apply_pick(shape: Shape, tensor: Any, draw: Any) -> Step:
    items, picks = [], []
    for length in tensor.shape[: draw(st.integers(0, tensor.dim()))]:
        kind = draw(st.sampled_from(("int", "slice", "whole", "step", "new")))
        if kind == "int":
            at = draw(st.integers(0, length - 1))
            items.append(at)
            picks.append(Pick("int"))
        elif kind == "slice":
            start = draw(st.integers(0, length - 1))
            stop = draw(st.integers(start + 1, length))
            items.append(slice(start, stop))
            picks.append(Pick("slice", size(start), size(stop)))
        elif kind == "step":
            items.append(slice(None, None, 2))
            picks.append(Pick("slice", step=True))
        else:
            items.append(slice(None))
            picks.append(Pick("slice", whole=True))
            if kind == "new":
                items.append(None)
                picks.append(Pick("new"))
    return shapes.index(shape, picks), tensor[tuple(items)]


def apply_view(shape: Shape, tensor: Any, draw: Any) -> Step:
    """One random view of both."""
    rank = tensor.dim()
    name = draw(st.sampled_from(VIEWS))
    at = draw(st.integers(0, rank - 1)) if rank else 0
    match name:
        case "pick":
            return apply_pick(shape, tensor, draw)
        case "permute" if rank:
            order = list(draw(st.permutations(range(rank))))
            return shapes.permute(shape, order), tensor.permute(*order)
        case "transpose" if rank:
            other = draw(st.integers(0, rank - 1))
            return shapes.transpose(shape, at, other - rank), tensor.transpose(at, other)
        case "reverse" if rank == 2:
            return shapes.reverse(shape), tensor.t()
        case "narrow" if rank:
            start = draw(st.integers(0, tensor.shape[at] - 1))
            length = draw(st.integers(1, tensor.shape[at] - start))
            return shapes.narrow(shape, at, size(start), size(length)), tensor.narrow(at, start, length)
        case "select" if rank:
            return shapes.select(shape, at), tensor.select(at, 0)
        case "unsqueeze":
            return shapes.unsqueeze(shape, at), tensor.unsqueeze(at)
        case "expand" if rank:
            sizes = [3 if length == 1 and draw(st.booleans()) else length for length in tensor.shape]
            return shapes.expand(shape, [size(one) for one in sizes]), tensor.expand(*sizes)
        case "flatten" if tensor.is_contiguous():
            return shapes.reshaped(shape, [size(-1)]), tensor.view(-1)
    return shape, tensor


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_views_of_known_sizes(data: Any) -> None:
    lengths = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    shape: Shape | None = packed(*lengths)
    tensor = torch.zeros(lengths)
    for _ in range(data.draw(st.integers(1, 4))):
        if shape is None:
            return
        shape, tensor = apply_view(shape, tensor, data.draw)
        # a step of 2 over fewer than three elements leaves one: a length that the shape does not know
        if shape is not None and all(dim.size is not None for dim in shape.dims):
            check(shape, tensor)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_views_of_unknown_sizes(data: Any) -> None:
    """Sizes that the source only names; every dimension is long enough, so that a gap shows."""
    lengths = data.draw(st.lists(st.integers(5, 7), min_size=1, max_size=4))
    shape: Shape | None = shapes.packed([Size(f"n{i}") for i in range(len(lengths))])
    tensor = torch.zeros(lengths)
    for _ in range(data.draw(st.integers(1, 3))):
        picks: list[Pick] = []
        items: list[Any] = []
        for _length in tensor.shape[: data.draw(st.integers(0, tensor.dim()))]:
            if _length < 3:
                return
            if data.draw(st.booleans()):
                picks.append(Pick("slice", None, Size("k")))
                items.append(slice(0, _length - 1))
            else:
                picks.append(Pick("int"))
                items.append(1)
        shape, tensor = (None, tensor) if shape is None else (shapes.index(shape, picks), tensor[tuple(items)])
        check(shape, tensor)


@pytest.mark.parametrize(
    ("picks", "layout"),
    [
        ([Pick("slice", stop=Size("n"))], "contiguous"),  # buf[:n]
        ([Pick("int")], "contiguous"),  # buf[i]
        ([Pick("int"), Pick("slice", stop=Size("n"))], "contiguous"),  # buf[i, :n]
        ([Pick("slice", Size("i"), Size("i", 1)), Pick("slice", stop=Size("n"))], "contiguous"),  # buf[i:i+1, :n]
        ([Pick("slice", whole=True), Pick("slice", stop=Size("n"))], "gapped"),  # buf[:, :n]
        ([Pick("slice", step=True)], "gapped"),  # buf[::2]
        ([Pick("slice", whole=True), Pick("int")], "gapped"),  # buf[:, 0]
    ],
)
def test_slices_of_a_buffer_of_unknown_rank(picks: list[Pick], layout: Layout) -> None:
    found = shapes.index(PACKED, picks)
    assert found is not None
    assert found.layout == layout


def test_the_whole_of_a_dimension_leaves_no_gap() -> None:
    found = shapes.index(packed(4, 8), [Pick("slice", whole=True), Pick("slice", stop=size(8))])
    assert found is not None
    assert found.layout == "contiguous"


def test_a_single_row_has_no_gap() -> None:
    found = shapes.index(packed(1, 8), [Pick("slice", whole=True), Pick("slice", stop=size(4))])
    assert found is not None
    assert found.layout == "contiguous"


def test_what_cannot_be_told_is_none() -> None:
    assert shapes.index(packed(4), [Pick("int"), Pick("int")]) is None
    assert shapes.permute(PACKED, [1, 0]) is None
    assert shapes.reshaped(Shape((Dim(size(4), 0, gap=True),), tail=False), [size(-1)]) is None
    assert shapes.expand(PACKED, [size(3)]) is None


def test_ellipsis_takes_the_dimensions_that_are_left() -> None:
    last = shapes.index(packed(4, 8), [Pick("ellipsis"), Pick("slice", stop=size(2))])
    assert last is not None
    assert last.layout == "gapped"
    assert shapes.index(packed(4, 8), [Pick("ellipsis")]) == packed(4, 8)


def test_preserve_format_keeps_order_but_no_gaps() -> None:
    turned = shapes.permute(packed(2, 3, 4), [2, 0, 1])
    assert shapes.same_layout(turned).layout == "permuted"
    gapped = shapes.index(packed(4, 8), [Pick("slice", whole=True), Pick("slice", stop=size(2))])
    assert shapes.same_layout(gapped).layout == "contiguous"
    assert shapes.same_layout(None) == PACKED
