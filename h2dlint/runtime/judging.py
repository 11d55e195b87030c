"""One copy that PyTorch has made -> its judgement by the copy model, from exact facts of both ends.

The model's answer depends on few things, so it is asked once for each combination and remembered: that keeps a copy's
overhead near a microsecond.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from h2dlint.copies import judge
from h2dlint.model import Fact, Layout, Memory, Verdict
from h2dlint.runtime.exact import fact_of
from h2dlint.runtime.observation import name_codes

if TYPE_CHECKING:
    from collections.abc import Hashable

    import torch

_LIMIT = 4096
"""Judgements remembered; strided views of ever new shapes would fill the memory otherwise."""


@dataclass(frozen=True, slots=True, eq=False)
class Judgement:
    """What the copy model says of one kind of copy; compared by identity, which is what tallies need.

    `staged` says that the driver may buffer it where it is small.
    """

    operation: str
    verdict: Verdict
    codes: tuple[str, ...]
    memory: Memory
    layout: Layout
    staged: bool


_judgements: dict[Hashable, Judgement] = {}


def judge_move(
    operation: str, source: torch.Tensor, destination: torch.Tensor, non_blocking: bool
) -> tuple[Judgement, int]:
    """The judgement of a whole tensor's copy (`to`, `cuda`, `cpu`, `copy_`), and the bytes that cross.

    One of the ends is on the host. Raises what `fact_of` raises.
    """
    upload = destination.is_cuda
    host = source if upload else destination
    count = destination.numel()
    size = count * host.element_size()
    if source.numel() == count and source.is_contiguous() and destination.is_contiguous():
        # Neither dtypes nor sizes matter to the model here, but that there is something to copy.
        known = _judgements.get((operation, upload, non_blocking, host.is_pinned(), count == 0))
        if known is not None:
            return known, size
        judgement = _ask_model(operation, source, destination, non_blocking)
        _judgements[operation, upload, non_blocking, host.is_pinned(), count == 0] = judgement
        return judgement, size
    return judge_exactly(operation, source, destination, non_blocking), size


def judge_exactly(operation: str, source: torch.Tensor, destination: torch.Tensor, non_blocking: bool) -> Judgement:
    """The judgement of any operation, remembered for exactly these sizes, strides and dtypes."""
    pinned = (source if destination.is_cuda else destination).is_pinned()
    ends = (source.shape, source.stride(), source.dtype, destination.shape, destination.stride(), destination.dtype)
    key = (operation, destination.is_cuda, non_blocking, pinned, ends)
    known = _judgements.get(key)
    if known is None:
        if len(_judgements) >= _LIMIT:
            _judgements.clear()
        known = _judgements[key] = _ask_model(operation, source, destination, non_blocking)
    return known


def _ask_model(operation: str, source: torch.Tensor, destination: torch.Tensor, non_blocking: bool) -> Judgement:
    origin, target = _read_fact(source), _read_fact(destination)
    verdict = judge(operation, origin, target, non_blocking)
    host = target if origin.device == "gpu" else origin
    staged = non_blocking and verdict.kind == "blocks" and verdict.direction == "h2d"
    return Judgement(operation, verdict, name_codes(operation, verdict), host.memory, host.layout, staged)


def _read_fact(tensor: torch.Tensor) -> Fact:
    """The exact fact, with the device that the hooks went by."""
    fact = fact_of(tensor)
    return replace(fact, device="gpu", memory="unknown") if tensor.is_cuda else fact
