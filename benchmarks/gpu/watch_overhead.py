"""What `watch` adds to a call: `python -m benchmarks.gpu.watch_overhead OUT.json`.

Host microseconds a call with the stream kept short, the best of several bursts: a burst is one loop of a function, as
a program's own copies stand in one, and queues fewer launches than make the host wait.
"""

from __future__ import annotations

import json
import pathlib
import sys
import time
from collections.abc import Callable

import torch

from benchmarks.gpu.steady import describe_machine
from h2dlint.runtime import watch

REPEATS, CALLS = 15, 300
COPY_LIMIT, CALL_LIMIT, NOTHING = 3.5, 1.0, 0.5
"""Microseconds that a copy across the bus (aim: 3), a call that is looked at, and one that is not may be slowed by."""

Burst = Callable[[int], None]


def list_bursts() -> dict[str, tuple[Burst, float]]:
    """Loops of one call each, and their limits."""
    host, gpu = torch.zeros(256, pin_memory=True), torch.zeros(256, device="cuda")
    cpu, index = torch.zeros(256), torch.tensor([0, 1], device="cuda")

    def copy_up(calls: int) -> None:
        for _ in range(calls):
            gpu.copy_(host, non_blocking=True)

    def move_up(calls: int) -> None:
        for _ in range(calls):
            host.to("cuda", non_blocking=True)

    def copy_down(calls: int) -> None:
        for _ in range(calls):
            host.copy_(gpu, non_blocking=True)

    def copy_over(calls: int) -> None:
        for _ in range(calls):
            gpu.copy_(gpu)

    def keep(calls: int) -> None:
        for _ in range(calls):
            gpu.to(torch.float32)

    def index_by_number(calls: int) -> None:
        for _ in range(calls):
            gpu[3]

    def slice_gpu(calls: int) -> None:
        for _ in range(calls):
            gpu[:8]

    def index_by_gpu(calls: int) -> None:
        for _ in range(calls):
            gpu[index]

    def slice_cpu(calls: int) -> None:
        for _ in range(calls):
            cpu[:8]

    def add(calls: int) -> None:
        for _ in range(calls):
            gpu + gpu

    return {
        "copy_ h2d": (copy_up, COPY_LIMIT),
        "to h2d": (move_up, COPY_LIMIT),
        "copy_ d2h": (copy_down, COPY_LIMIT),
        "copy_ d2d": (copy_over, CALL_LIMIT),
        "to that does nothing": (keep, CALL_LIMIT),
        "gpu[int]": (index_by_number, CALL_LIMIT),
        "gpu[:8]": (slice_gpu, CALL_LIMIT),
        "gpu[gpu index]": (index_by_gpu, CALL_LIMIT),
        "cpu[:8]": (slice_cpu, CALL_LIMIT),
        "gpu + gpu": (add, NOTHING),
    }


def measure() -> dict[str, dict[str, float]]:
    """Microseconds of each call without a watch and under one, in turns, so that both see the same machine."""
    table = {}
    for name, (burst, limit) in list_bursts().items():
        burst(CALLS)
        without = under = float("inf")
        for _ in range(REPEATS):
            without = min(without, time_burst(burst))
            with watch():
                burst(3)
                under = min(under, time_burst(burst))
        table[name] = {"without_us": round(without, 3), "under_us": round(under, 3), "limit_us": limit}
    return table


def time_burst(burst: Burst) -> float:
    torch.cuda.synchronize()
    began = time.perf_counter()
    burst(CALLS)
    return (time.perf_counter() - began) / CALLS * 1e6


def main(argv: list[str]) -> int:
    machine = {**describe_machine(), "python": sys.version.split()[0]}
    table = measure()
    pathlib.Path(argv[0]).write_text(json.dumps({"machine": machine, "calls": table}, indent=1) + "\n")
    added = {name: round(each["under_us"] - each["without_us"], 3) for name, each in table.items()}
    print(added)
    return int(any(added[name] > each["limit_us"] for name, each in table.items()))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
