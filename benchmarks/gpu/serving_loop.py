"""The serving loop of the case that h2dlint began with: `python -m benchmarks.gpu.serving_loop OUT.json`.

An engine's step makes 20 ms of GPU work and uploads two things: positions kept in a pinned buffer of three padded rows,
of which the first columns are copied, and the ids of an image's patches, joined from pieces. Before: the columns in one
copy, and the joined pieces as they are. After: row by row, and joined into pinned memory.
"""

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Callable

import torch

from benchmarks.gpu.steady import Hold, describe_machine, hold

STEP_MS = 20.0
STEPS, WARMUP = 60, 10
ROWS, TOKENS, PIECES, PATCHES = 3, 8192, 8, 2048


class Inputs:
    """The buffers of a step: `positions` on both sides, and `pieces` on the host."""

    def __init__(self) -> None:
        self.positions = torch.zeros(ROWS, TOKENS + 1, dtype=torch.int64, pin_memory=True)
        self.positions_gpu = torch.zeros(ROWS, TOKENS + 1, dtype=torch.int64, device="cuda")
        self.pieces = [torch.zeros(PATCHES, 2, dtype=torch.int64) for _ in range(PIECES)]

    def upload_before(self) -> torch.Tensor:
        self.positions_gpu[:, :TOKENS].copy_(self.positions[:, :TOKENS], non_blocking=True)
        return torch.cat(self.pieces).to("cuda", non_blocking=True)

    def upload_after(self) -> torch.Tensor:
        for row in range(self.positions_gpu.shape[0]):
            self.positions_gpu[row, :TOKENS].copy_(self.positions[row, :TOKENS], non_blocking=True)
        pieces = self.pieces
        pinned = torch.empty(
            (sum(piece.shape[0] for piece in pieces), *pieces[0].shape[1:]), dtype=pieces[0].dtype, pin_memory=True
        )
        return torch.cat(pieces, out=pinned).to("cuda", non_blocking=True)


def serve(upload: Callable[[], object], steps: int = STEPS) -> Hold:
    """The host's time in `upload`, step by step, running up to three steps ahead, after `WARMUP` unmeasured calls.

    On one thread, as engines set PyTorch up beside their workers: waking others costs more than these pieces take.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return hold(upload, gpu_ms=STEP_MS, steps=steps, ahead=3, warmup=WARMUP)
    finally:
        torch.set_num_threads(threads)


def main(argv: list[str]) -> int:
    inputs = Inputs()
    loops = {"before": serve(inputs.upload_before), "after": serve(inputs.upload_after)}
    data: dict[str, object] = {"machine": describe_machine(), "step_ms": STEP_MS}
    for name, seen in loops.items():
        data[name] = {
            "gpu_ms": round(seen.gpu_ms, 3),
            "median_ms": round(seen.typical_ms, 4),
            "mean_ms": round(seen.mean_ms, 4),
            "host_ms": [round(each, 4) for each in seen.host_ms],
        }
        print(
            f"{name}: median {seen.typical_ms:.3f}, mean {seen.mean_ms:.3f} ms of {seen.gpu_ms:.2f} ms a step "
            f"({seen.share:.2%})"
        )
    pathlib.Path(argv[0]).write_text(json.dumps(data) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
