"""A packaged transformer under watch: `python -m benchmarks.gpu.packaged_model OUT.json [ITERATIONS]`.

A small GPT-2 of the `transformers` package with random weights where that is installed, else PyTorch's own encoder. Its
loop uploads tokens and positions well and reads the scores back well; on every `FAULT_EVERY`-th iteration it also makes
each of four faults. So what `watch` must report is known exactly. The fault of a line is judged by the clock, too.
"""

from __future__ import annotations

import json
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.gpu.steady import describe_machine, hold
from h2dlint.runtime import watch
from h2dlint.runtime.observation import Observation

ITERATIONS, FAULT_EVERY = 10_000, 20
VOCABULARY, BATCH, LENGTH, WIDTH = 128, 4, 16, 32
PADDED = (4, 40_000)
"""Rows and columns of the uploads that are made wrong: 640 KiB of float32, more than the driver buffers."""

FAULTS = {
    "upload_columns": ("HTD101",),
    "upload_joined": ("HTD102", "HTD103", "HTD104"),
    "read_back_pageable": ("HTD105",),
    "index_by_host": ("HTD303",),
}
GOOD = ("upload_inputs", "upload_rows", "read_back")


def make_model(device: str) -> tuple[str, Callable[[torch.Tensor], torch.Tensor]]:
    """The package that it is from, and a function from (batch, length) tokens to scores."""
    torch.manual_seed(0)
    try:
        import transformers
    except ImportError:
        layer = torch.nn.TransformerEncoderLayer(WIDTH, 2, 2 * WIDTH, dropout=0.0, batch_first=True)
        encoder = torch.nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).to(device).eval()
        embed = torch.nn.Embedding(VOCABULARY, WIDTH).to(device)
        return f"torch {torch.__version__}", lambda tokens: encoder(embed(tokens))
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=64, n_embd=WIDTH, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0
    )
    model = transformers.GPT2LMHeadModel(config).to(device).eval()
    return f"transformers {transformers.__version__}", lambda tokens: model(tokens, use_cache=False).logits


class Loop:
    """Buffers of the loop on both sides, and one method for each copy that it makes."""

    def __init__(self, device: str = "cuda", pin: bool = True) -> None:
        self.device = device
        self.package, self.model = make_model(device)
        self.tokens = torch.zeros(BATCH, LENGTH, dtype=torch.int64, pin_memory=pin)
        self.padded = torch.zeros(PADDED[0], PADDED[1] + 8, pin_memory=pin)
        self.padded_gpu = torch.zeros(PADDED[0], PADDED[1] + 8, device=device)
        self.pieces = [torch.zeros(PADDED[1]) for _ in range(PADDED[0])]
        self.scores = torch.zeros(BATCH, LENGTH, pin_memory=pin)
        self.pageable = torch.zeros(BATCH, LENGTH)
        self.chosen = torch.arange(PADDED[0])

    def upload_inputs(self) -> torch.Tensor:
        return self.tokens.to(self.device, non_blocking=True)

    def upload_rows(self) -> None:
        for row in range(PADDED[0]):
            self.padded_gpu[row, : PADDED[1]].copy_(self.padded[row, : PADDED[1]], non_blocking=True)

    def read_back(self, scores: torch.Tensor) -> None:
        self.scores.copy_(scores, non_blocking=True)

    def upload_columns(self) -> None:
        self.padded_gpu[:, : PADDED[1]].copy_(self.padded[:, : PADDED[1]], non_blocking=True)

    def upload_joined(self) -> torch.Tensor:
        return torch.cat(self.pieces).to(self.device, non_blocking=True)

    def read_back_pageable(self) -> None:
        self.pageable.copy_(self.padded_gpu[:, :LENGTH], non_blocking=True)

    def index_by_host(self) -> torch.Tensor:
        return self.padded_gpu[self.chosen]

    def run(self, iterations: int, fault_every: int = FAULT_EVERY) -> None:
        """The loop, eight iterations at most in front of the GPU."""
        marks: list[Any] = []
        with torch.inference_mode():
            for turn in range(iterations):
                tokens = self.upload_inputs()
                self.upload_rows()
                scores = self.model(tokens).amax(-1)
                self.read_back(scores)
                if turn % fault_every == 0:
                    for name in FAULTS:
                        getattr(self, name)()
                if self.device == "cuda":
                    marks.append(torch.cuda.Event())
                    marks[-1].record()
                    if len(marks) > 8:
                        marks.pop(0).synchronize()


def find_functions() -> dict[str, range]:
    """The rows of this file that each method of `Loop` has."""
    rows = {}
    for name in (*FAULTS, *GOOD):
        code = getattr(Loop, name).__code__
        lines = [line for *_, line in code.co_lines() if line]
        rows[name] = range(min(lines), max(lines) + 1)
    return rows


def find_disagreements(found: list[Observation], everything: list[Observation], iterations: int) -> list[str]:
    """Where a report is not exactly that of the faults which the loop makes; one line each."""
    turns = len(range(0, iterations, FAULT_EVERY))
    functions = find_functions()
    wrong, seen = [], dict.fromkeys(FAULTS, 0)
    for row in found:
        name = next((name for name in FAULTS if row.row in functions[name]), None)
        if row.filename != __file__ or name is None:
            wrong.append(f"false report: {row.filename}:{row.row} {row.operation} {row.codes}")
        elif row.codes != FAULTS[name]:
            wrong.append(f"{name}: {row.codes} in place of {FAULTS[name]}")
        else:
            seen[name] += row.count
    wrong += [f"{name}: {count} reported, {turns} made" for name, count in seen.items() if count != turns]
    copies = {"upload_inputs": 1, "upload_rows": PADDED[0], "read_back": 1}
    for name, each in copies.items():
        count = sum(row.count for row in everything if row.filename == __file__ and row.row in functions[name])
        if count != each * iterations:
            wrong.append(f"{name}: {count} copies seen, {each * iterations} made")
    return wrong


def time_copies(loop: Loop) -> dict[str, float]:
    """The share of a GPU step for which each copy of the loop holds the host."""
    calls: dict[str, Callable[[], object]] = {name: getattr(loop, name) for name in (*FAULTS, *GOOD[:2])}
    far = torch.zeros(BATCH, LENGTH, device="cuda")
    calls["read_back"] = lambda: loop.read_back(far)
    # Six steps ahead: pieces of this size are let pass while few are queued.
    return {name: round(hold(call, ahead=6, steps=12).share, 4) for name, call in calls.items()}


def main(argv: list[str]) -> int:
    iterations = int(argv[1]) if len(argv) > 1 else ITERATIONS
    loop = Loop()
    loop.run(50, fault_every=1_000)
    torch.cuda.synchronize()
    seconds = {}
    began = time.perf_counter()
    loop.run(iterations // 10)
    torch.cuda.synchronize()
    seconds["without"] = (time.perf_counter() - began) * 10
    with watch() as report:
        began = time.perf_counter()
        loop.run(iterations)
        torch.cuda.synchronize()
        seconds["under"] = time.perf_counter() - began
    found, everything = report.found, report.rows()
    wrong = find_disagreements(found, everything, iterations)
    shares = time_copies(loop)
    wrong += [f"{name} held {shares[name]} of a step" for name in FAULTS if shares[name] <= 0.5]
    wrong += [f"{name} held {shares[name]} of a step" for name in GOOD if shares[name] > 0.5]
    data = {
        "machine": describe_machine(),
        "package": loop.package,
        "iterations": iterations,
        "copies": sum(row.count for row in everything if row.operation != "sync"),
        "reported": {f"{row.row} {row.operation}": [*row.codes, row.count] for row in found},
        "wrong": wrong,
        "held": shares,
        "seconds": {name: round(each, 2) for name, each in seconds.items()},
    }
    pathlib.Path(argv[0]).write_text(json.dumps(data, indent=1) + "\n")
    print(json.dumps(data, indent=1))
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
