"""The races on a GPU that is behind: the wrong value is really seen, and is gone with the guard."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

# About a tenth of a second at the clock of any data-centre card: longer than the host needs for what follows.
CYCLES = 200_000_000
SIZE = 1 << 16
OLD, NEW = -1.0, 7.0


@pytest.fixture
def far() -> Any:
    """A tensor on the GPU that will hold NEW once the GPU has caught up."""
    torch.cuda.synchronize()
    dev = torch.full((SIZE,), OLD, device="cuda")
    poison_pinned_memory()
    torch.cuda.synchronize()
    torch.cuda._sleep(CYCLES)
    dev.fill_(NEW)
    return dev


def poison_pinned_memory() -> None:
    """Leave OLD in the block that the next pinned tensor of this size is given."""
    block = torch.full((SIZE,), OLD, pin_memory=True)
    del block


def test_read_before_sync(far: Any) -> None:
    host = far.to("cpu", non_blocking=True)
    assert host[0].item() != NEW
    torch.cuda.synchronize()
    assert host[0].item() == NEW


def test_read_through_numpy_of_a_kept_buffer(far: Any) -> None:
    host = torch.full((SIZE,), OLD, pin_memory=True)
    seen = host.numpy()
    host.copy_(far, non_blocking=True)
    assert seen[0] == OLD
    torch.cuda.synchronize()
    assert seen[0] == NEW


@pytest.mark.parametrize("how", ["event", "stream", "blocking copy", "query"])
def test_guards_wait(far: Any, how: str) -> None:
    host = far.to("cpu", non_blocking=True)
    done = torch.cuda.Event()
    done.record()
    match how:
        case "event":
            done.synchronize()
        case "stream":
            torch.cuda.current_stream().synchronize()
        case "blocking copy":
            far[:1].cpu()
        case "query":
            while not done.query():
                pass
    assert host[0].item() == NEW


@pytest.mark.parametrize("how", ["event.wait", "wait_stream", "stale event", "unrecorded event", "other stream"])
def test_what_is_no_guard(far: Any, how: str) -> None:
    side = torch.cuda.Stream()
    stale = torch.cuda.Event()
    with torch.cuda.stream(side):
        stale.record()
    host = far.to("cpu", non_blocking=True)
    match how:
        case "event.wait":
            done = torch.cuda.Event()
            done.record()
            done.wait(side)
        case "wait_stream":
            side.wait_stream(torch.cuda.current_stream())
        case "stale event":
            stale.synchronize()
        case "unrecorded event":
            torch.cuda.Event().synchronize()
        case "other stream":
            side.synchronize()
    assert host[0].item() != NEW
    torch.cuda.synchronize()
    assert host[0].item() == NEW


@pytest.mark.parametrize("guarded", [False, True])
def test_overwrite_in_flight(guarded: bool) -> None:
    source = torch.full((SIZE,), OLD, pin_memory=True)
    dev = torch.empty(SIZE, device="cuda")
    torch.cuda.synchronize()
    torch.cuda._sleep(CYCLES)
    dev.copy_(source, non_blocking=True)
    if guarded:
        torch.cuda.current_stream().synchronize()
    source.fill_(NEW)
    assert dev[0].item() == (OLD if guarded else NEW)


def test_pinning_a_pinned_tensor_is_no_snapshot() -> None:
    source = torch.full((SIZE,), OLD, pin_memory=True)
    dev, other = torch.empty(SIZE, device="cuda"), torch.empty(SIZE, device="cuda")
    torch.cuda.synchronize()
    torch.cuda._sleep(CYCLES)
    dev.copy_(source.pin_memory(), non_blocking=True)
    other.copy_(source.clone().pin_memory(), non_blocking=True)
    source.fill_(NEW)
    assert dev[0].item() == NEW
    assert other[0].item() == OLD


def test_a_fresh_pinned_tensor_is_not_reused_too_early() -> None:
    sums = []
    torch.cuda.synchronize()
    torch.cuda._sleep(CYCLES)
    for turn in range(4):
        fresh = torch.full((SIZE,), float(turn), pin_memory=True)
        sums.append(fresh.to("cuda", non_blocking=True))
        del fresh
    assert [one[0].item() for one in sums] == [0.0, 1.0, 2.0, 3.0]
