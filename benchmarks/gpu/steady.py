"""How long a step of a loop holds its thread, with the GPU kept busy and the host running ahead.

One small copy timed alone proves nothing: the driver buffers the first pieces of pageable memory and waits only for
later ones. So every measurement here is a loop as a server runs it: each step queues a spin kernel, then makes its
copies; the host stays a few steps ahead of the GPU, and only the time inside the step's own copies is read.
"""

from __future__ import annotations

import datetime
import functools
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

_PROBE_CYCLES = 20_000_000


@dataclass(frozen=True, slots=True)
class Hold:
    """Host milliseconds of each step, and the GPU's milliseconds of a step."""

    host_ms: tuple[float, ...]
    gpu_ms: float

    @property
    def typical_ms(self) -> float:
        return statistics.median(self.host_ms)

    @property
    def mean_ms(self) -> float:
        return statistics.fmean(self.host_ms)

    @property
    def share(self) -> float:
        """The part of the GPU's step that the host typically (in the median) spends inside the copies."""
        return self.typical_ms / self.gpu_ms

    @property
    def waits(self) -> bool:
        return self.share > 0.5


def hold(
    step: Callable[[], object], *, gpu_ms: float = 3.0, steps: int = 8, ahead: int | None = 3, warmup: int = 2
) -> Hold:
    """Run `step` in a steady loop, the host at most `ahead` steps in front (None: as far as it gets).

    The first `ahead` steps only fill the queue and are not counted.
    """
    for _ in range(warmup):
        step()
    spin = int(cycles_per_ms() * gpu_ms)
    torch.cuda.synchronize()
    lead = ahead or 3
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(lead + steps + 1)]
    marks[0].record()
    host_ms = []
    for turn in range(lead + steps):
        torch.cuda._sleep(spin)
        marks[turn + 1].record()
        began = time.perf_counter()
        step()
        host_ms.append((time.perf_counter() - began) * 1e3)
        if ahead is not None and turn >= ahead:
            while not marks[turn + 1 - ahead].query():
                pass  # awake, as the thread of an engine is; one that sleeps here makes its next calls on a cold core
    torch.cuda.synchronize()
    return Hold(tuple(host_ms[lead:]), marks[1].elapsed_time(marks[-1]) / (lead + steps - 1))


def time_alone(call: Callable[[], object], repeats: int = 15) -> tuple[float, float]:
    """Median host microseconds of `call` on an idle stream, and until the GPU is done with it."""
    for _ in range(3):
        call()
    host, whole = [], []
    for _ in range(repeats):
        torch.cuda.synchronize()
        began = time.perf_counter()
        call()
        returned = time.perf_counter()
        torch.cuda.synchronize()
        host.append((returned - began) * 1e6)
        whole.append((time.perf_counter() - began) * 1e6)
    return statistics.median(host), statistics.median(whole)


@functools.cache
def cycles_per_ms() -> float:
    """The spin kernel's cycles in a millisecond, read once the card's clock has risen."""
    for _ in range(20):
        torch.cuda._sleep(_PROBE_CYCLES)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    torch.cuda._sleep(_PROBE_CYCLES)
    end.record()
    torch.cuda.synchronize()
    return float(_PROBE_CYCLES / begin.elapsed_time(end))


def describe_machine() -> dict[str, str]:
    """Card, driver, PyTorch, CUDA and date: the head of every data file."""
    driver = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=False,
    )
    return {
        "card": torch.cuda.get_device_name(),
        "driver": driver.stdout.split("\n")[0].strip(),
        "torch": torch.__version__,
        "cuda": str(torch.version.cuda),
        "date": datetime.date.today().isoformat(),
    }
