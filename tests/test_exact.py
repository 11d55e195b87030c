"""Exact facts agree with what PyTorch itself says of strides."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from h2dlint.copies import judge
from h2dlint.model import Fact
from h2dlint.runtime.exact import fact_of, name_device, shape_of

pytest.importorskip("torch")

import torch

dense = torch.ops.aten.is_non_overlapping_and_dense.default


@st.composite
def views(draw: st.DrawFn) -> torch.Tensor:
    """A tensor reached from a packed one by slices, permutation and expansion."""
    rank = draw(st.integers(0, 4))
    view = torch.zeros([draw(st.integers(1, 5)) for _ in range(rank)])
    for dim in range(rank):
        step = draw(st.integers(1, 2))
        stop = draw(st.integers(1, view.shape[dim]))
        view = view[(slice(None),) * dim + (slice(0, stop, step),)]
    view = view.permute(draw(st.permutations(range(rank))))
    if rank and draw(st.booleans()):
        view = view[:1].expand(draw(st.integers(1, 3)), *view.shape[1:])
    return view


@given(views())
@settings(max_examples=500, deadline=None)
def test_layout_is_what_pytorch_says(view: torch.Tensor) -> None:
    layout = fact_of(view).layout
    assert (layout == "contiguous") == view.is_contiguous()
    assert (layout in ("contiguous", "permuted")) == dense(view)
    assert (layout == "broadcast") == any(
        stride == 0 and size > 1 for size, stride in zip(view.shape, view.stride(), strict=True)
    )


def test_windows_that_overlap_are_gathered() -> None:
    windows = torch.zeros(10).unfold(0, 4, 2)
    assert not dense(windows)
    assert fact_of(windows).layout == "gapped"


def test_fact_carries_dtype_bytes_and_grad() -> None:
    fact = fact_of(torch.zeros(3, 5, dtype=torch.int16))
    assert (fact.dtype, fact.max_bytes, fact.grad, fact.memory, fact.device) == (
        "torch.int16", 30, False, "pageable", "cpu",
    )  # fmt: skip
    assert fact_of(torch.zeros(2, requires_grad=True)).grad is True


def test_sparse_tensor_has_no_shape() -> None:
    fact = fact_of(torch.eye(3).to_sparse())
    assert fact.shape is None
    assert fact.max_bytes is None


@pytest.mark.parametrize(("kind", "name"), [("cpu", "cpu"), ("cuda", "gpu"), ("meta", "other"), ("mps", "other")])
def test_devices(kind: str, name: str) -> None:
    assert name_device(kind) == name


def test_other_device_is_not_judged() -> None:
    meta = fact_of(torch.zeros(2, device="meta"))
    assert judge("copy_", fact_of(torch.zeros(2)), meta, True).kind == "unknown"


def test_empty_tensor_copies_nothing() -> None:
    assert judge("to", fact_of(torch.zeros(0, 4)), Fact(device="gpu"), True).kind == "async"


def test_single_dimensions_have_no_gaps() -> None:
    assert shape_of((1, 8), (64, 1)).layout == "contiguous"
    assert shape_of((2, 8), (64, 1)).layout == "gapped"
    assert shape_of((8, 1), (1, 8)).layout == "contiguous"
