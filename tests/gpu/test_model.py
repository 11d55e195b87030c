"""The copy model against the clock: what `judge` predicts from exact facts is what a steady loop shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

pytest.importorskip("torch")

import torch

from benchmarks.gpu.cases import Case, list_downloads, list_formats, list_uploads, list_waiting
from benchmarks.gpu.steady import hold
from h2dlint.copies import SMALL_BYTES, is_small, judge
from h2dlint.model import Fact
from h2dlint.runtime.exact import fact_of

GPU = Fact(device="gpu")


def contradict(cases: Iterator[Case]) -> tuple[int, list[str]]:
    """How many cases were timed, and a line for each that does not do as predicted (looked at twice)."""
    count, wrong = 0, []
    for case in cases:
        count += 1
        verdict = judge(case.operation, case.source, case.destination, case.non_blocking)
        expected = verdict.kind == "blocks"
        seen = hold(case.step)
        if seen.waits != expected:
            seen = hold(case.step)
        if seen.waits != expected or verdict.kind == "unknown":
            wrong.append(f"{case.name}: {verdict.kind} ({verdict.reason}), held {seen.share:.3f} of a step")
    return count, wrong


@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
@pytest.mark.parametrize(
    ("make_cases", "least"), [(list_uploads, 300), (list_formats, 8), (list_downloads, 200), (list_waiting, 30)]
)
def test_predictions_hold(make_cases: Callable[[], Iterator[Case]], least: int) -> None:
    count, wrong = contradict(make_cases())
    assert count >= least
    assert not wrong, "\n".join(wrong)


def upload_bytes(size: int, pinned: bool = False) -> tuple[torch.Tensor, Callable[[], object]]:
    source = torch.zeros(size, dtype=torch.uint8, pin_memory=pinned)
    target = torch.zeros(size, dtype=torch.uint8, device="cuda")
    return source, lambda: target.copy_(source, non_blocking=True)


@pytest.mark.parametrize(("size", "small"), [(8, True), (SMALL_BYTES, True), (SMALL_BYTES + 8, False)])
def test_small_pageable_uploads_do_not_wait(size: int, small: bool) -> None:
    source, step = upload_bytes(size)
    fact = fact_of(source)
    assert judge("copy_", fact, GPU, True).kind == "blocks"
    assert is_small(fact) is small
    assert hold(step).waits is not small


def test_small_uploads_wait_once_many_are_queued() -> None:
    _, step = upload_bytes(SMALL_BYTES)
    seen = hold(lambda: [step() for _ in range(20)], ahead=None, steps=8)
    assert seen.waits


def test_one_copy_at_a_time_shows_nothing() -> None:
    """Why these tests run ahead: the driver buffers the first pieces, and pageable memory looks asynchronous."""
    _, step = upload_bytes(1 << 20)
    assert not hold(step, ahead=0).waits
    assert hold(step, ahead=3).waits


@pytest.mark.parametrize("size", [8, SMALL_BYTES])
def test_small_pageable_downloads_wait(size: int) -> None:
    target = torch.zeros(size, dtype=torch.uint8)
    source = torch.zeros(size, dtype=torch.uint8, device="cuda")
    assert judge("copy_", fact_of(source), fact_of(target), True).kind == "blocks"
    assert hold(lambda: target.copy_(source, non_blocking=True)).waits


def test_small_value_repeated_into_a_large_buffer_waits() -> None:
    value = torch.zeros((), pin_memory=True)
    target = torch.zeros(1 << 16, device="cuda")
    assert judge("copy_", fact_of(value), fact_of(target), True).fault == "broadcast"
    assert not is_small(fact_of(value), into=fact_of(target))
    assert hold(lambda: target.copy_(value, non_blocking=True)).waits


def test_0_dim_value_is_filled_in_or_copied() -> None:
    """Why the model does not know `gpu[...] = 0-dim tensor`."""
    value = torch.tensor(1.0)
    rows = torch.zeros(8, 8, device="cuda")
    assert judge("setitem", fact_of(value), fact_of(rows[0]), None).kind == "unknown"
    assert not hold(lambda: rows.__setitem__(0, value)).waits
    assert hold(lambda: rows.__setitem__((0, 0), value)).waits


def registered_memory() -> torch.Tensor:
    """Host memory that the CUDA runtime has page-locked after the fact; it stays so while the test runs."""
    host = torch.zeros(1 << 16)
    assert int(torch.cuda.cudart().cudaHostRegister(host.data_ptr(), host.numel() * 4, 0)) == 0
    return host


def test_registered_memory_is_pinned() -> None:
    host = registered_memory()
    target = torch.zeros(1 << 16, device="cuda")
    try:
        assert judge("copy_", fact_of(host), fact_of(target), True).kind == "async"
        assert not hold(lambda: target.copy_(host, non_blocking=True)).waits
    finally:
        torch.cuda.cudart().cudaHostUnregister(host.data_ptr())


def list_captures() -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """Names, sources and destinations of copies to be captured."""
    buffer, device = torch.zeros(3, 4104, pin_memory=True), torch.zeros(3, 4104, device="cuda")
    yield "pinned", buffer, device
    yield "pinned columns", buffer[:, :4096], device[:, :4096]
    yield "pinned row", buffer[1, :4096], device[1, :4096]
    yield "pinned turned", buffer.t(), torch.zeros(4104, 3, device="cuda")
    yield "pinned turned alike", buffer.t(), device.t()
    yield "pinned repeated", buffer[0], device
    yield "pageable", torch.zeros(3, 4104), device
    yield "pageable, small", torch.zeros(1), torch.zeros(1, device="cuda")
    yield "down into pinned", device, buffer
    yield "down into pinned columns", device[:, :4096], buffer[:, :4096]
    yield "down into pageable", device, torch.zeros(3, 4104)


@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")
def test_capture_raises_where_a_copy_would_wait() -> None:
    seen, expected = {}, {}
    for name, source, destination in list_captures():
        expected[name] = judge("copy_", fact_of(source), fact_of(destination), True).kind == "blocks"
        seen[name] = raises_in_capture(source, destination)
    assert seen == expected
    assert set(expected.values()) == {True, False}


def raises_in_capture(source: torch.Tensor, destination: torch.Tensor) -> bool:
    torch.cuda.synchronize()
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            destination.copy_(source, non_blocking=True)
    except RuntimeError:
        torch.cuda.synchronize()
        return True
    return False
