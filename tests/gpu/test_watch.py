"""The runtime checker and the trace reader on hardware: verdicts against the clock, harmlessness, overhead.

A step is STEP_MS of GPU work; the host runs at most two steps ahead. A copy that holds the host then costs it about a
step each time, any other one some microseconds. Where H2DLINT_KEEP_TRACES names a folder, the traces are kept there.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")

from benchmarks.gpu.observed import load as load_fixture  # noqa: E402
from benchmarks.gpu.watch_overhead import measure  # noqa: E402
from h2dlint.runtime import BlockingCopyError, allow, watch  # noqa: E402
from h2dlint.runtime import places as places_module  # noqa: E402
from h2dlint.runtime.observation import SYNC  # noqa: E402
from h2dlint.runtime.trace import read_stalls  # noqa: E402

FIXTURES = Path(__file__).parents[2] / "fixtures"
TRACES = FIXTURES / "traces"
STEP_MS, STEPS, AHEAD = 5.0, 12, 2
SIDE = 1100  # float32, squared: 4.6 MiB, which the driver does not buffer


def load(name):
    spec = importlib.util.spec_from_file_location(name, TRACES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def cycles():
    return load("record").measure_cycles(STEP_MS)


def make(memory, layout):
    pinned = memory == "pinned"
    match layout:
        case "whole":
            return torch.zeros(SIDE, SIDE, pin_memory=pinned)
        case "gapped":
            return torch.zeros(SIDE, SIDE + 8, pin_memory=pinned)[:, :SIDE]
        case "rows":
            return torch.zeros(SIDE + 8, SIDE, pin_memory=pinned)[:SIDE]
        case "permuted":
            return torch.zeros(SIDE, SIDE, pin_memory=pinned).t()


UPLOADS = {
    "to": lambda host, gpu: host.to("cuda", non_blocking=True),
    "to other dtype": lambda host, gpu: host.to("cuda", torch.float16, True),
    "cuda": lambda host, gpu: host.cuda(non_blocking=True),
    "copy_": lambda host, gpu: gpu.copy_(host, non_blocking=True),
    "foreach": lambda host, gpu: torch._foreach_copy_([gpu], [host], non_blocking=True),
    "to, waiting": lambda host, gpu: host.to("cuda"),
    "setitem": lambda host, gpu: gpu.__setitem__(slice(None), host),
}
DOWNLOADS = {
    "to": lambda host, gpu: gpu.to("cpu", non_blocking=True),
    "copy_": lambda host, gpu: host.copy_(gpu, non_blocking=True),
    "cpu": lambda host, gpu: gpu.cpu(),
}
OTHERS = {
    "tensor": lambda host, gpu: torch.tensor(1.0, device="cuda"),
    "as_tensor": lambda host, gpu: torch.as_tensor([1, 2], device="cuda"),
    "new_tensor": lambda host, gpu: gpu.new_tensor([1.0]),
    "index by list": lambda host, gpu: gpu[[0, 1]],
    "index by CPU tensor": lambda host, gpu: gpu[torch.tensor([0, 1])],
    "index by CPU mask": lambda host, gpu: gpu[torch.ones(SIDE, dtype=torch.bool)],
    "index by CPU scalar": lambda host, gpu: gpu[torch.tensor(1)],
    "set by list": lambda host, gpu: gpu.__setitem__([0, 1], 1.0),
}
CASES = [
    *((name, run, memory, layout) for name, run in UPLOADS.items() for memory in ("pinned", "pageable")
      for layout in ("whole", "gapped", "rows", "permuted")),
    *((name, run, memory, layout) for name, run in DOWNLOADS.items() for memory in ("pinned", "pageable")
      for layout in ("whole", "gapped", "rows")),
    *((name, run, "pinned", "whole") for name, run in OTHERS.items()),
]  # fmt: skip


@pytest.mark.parametrize(
    ("run", "memory", "layout"), [case[1:] for case in CASES], ids=["-".join((c[0], *c[2:])) for c in CASES]
)
def test_observed_verdicts_agree_with_the_clock(cycles, run, memory, layout):
    host, gpu = make(memory, layout), torch.zeros(SIDE, SIDE, device="cuda")
    for _ in range(3):
        run(host, gpu)
    torch.cuda.synchronize()
    events = []
    with watch(syncs=False) as report:
        for number in range(STEPS):
            torch.cuda._sleep(cycles)
            run(host, gpu)
            events.append(torch.cuda.Event())
            events[-1].record()
            if number >= AHEAD:
                events[number - AHEAD].synchronize()
        torch.cuda.synchronize()
    (row,) = report.rows()
    assert row.count == STEPS
    share = row.host_ns / row.count / (STEP_MS * 1e6)
    match row.verdict:
        case "blocks":
            assert share > 0.5, row
        case "async":
            assert share < 0.1, row
        case _:
            pytest.fail(f"exact facts leave nothing open: {row}")


def test_the_serving_loop_before_and_after(cycles):
    record = load("record")
    for name, expected in (("serving", {25, 29}), ("serving_fixed", set())):
        runner = load(name).Runner("cuda", cycles)
        record.run_loop(runner, 4)
        with watch() as report:
            record.run_loop(runner, STEPS)
        assert {row.row for row in report.found} == expected
        total = sum(row.host_ns for row in report.rows()) / STEPS / 1e6
        assert (total > 0.5 * STEP_MS) == bool(expected), total


def test_traces_name_the_faults_and_nothing_after_the_fix(tmp_path, monkeypatch):
    monkeypatch.setattr(places_module, "_lint", lambda files: [])
    for name, expected in (("serving", {(25, "copy_"), (29, "to")}), ("serving_fixed", set())):
        path = tmp_path / f"{name}.json.gz"
        subprocess.run([sys.executable, TRACES / "record.py", name, path], check=True, timeout=120)
        stalls = read_stalls(path, 100_000)
        found = places_module.Places([TRACES], stalls)
        assert {(found.find(stall).line, stall.call) for stall in stalls} == expected
        if stalls:
            assert sum(stall.ns for stall in stalls) > 4 * STEP_MS * 1e6
        if folder := os.environ.get("H2DLINT_KEEP_TRACES"):
            shutil.copy(path, folder)


@pytest.mark.parametrize(("side", "faults"), [("before", [53, 32]), ("after", [])])
def test_a_trace_of_the_seed_names_its_two_faults_first(tmp_path, cycles, side, faults):
    """Recorded here and now, read by the command. Each copy is larger than what the driver lets wait for its turn."""
    tokens, steps = 250_000, 6
    runner = load_fixture(FIXTURES / "seed", f"{side}.runner").Runner(tokens, 0, torch.device("cuda"))
    tower = load_fixture(FIXTURES / "seed", f"{side}.vision").VisionTower(2, torch.device("cuda"))
    ids, positions = np.arange(tokens), torch.arange(3 * tokens).reshape(3, tokens)

    def run():
        for _ in range(steps):
            runner.step(ids, positions)
            torch.cuda._sleep(cycles)
            tower.patch_positions([[1, 512, 512], [1, 512, 256]])
            torch.cuda._sleep(cycles)
        torch.cuda.synchronize()

    run()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities, with_stack=True) as profiler:
        run()
    path = tmp_path / "trace.json"
    profiler.export_chrome_trace(str(path))
    source = FIXTURES / "seed" / side
    command = [sys.executable, "-m", "h2dlint", "trace", "--source", source, "--output-format", "json", path]
    ran = subprocess.run(command, cwd=FIXTURES.parent, capture_output=True, text=True, check=False, timeout=120)
    rows = json.loads(ran.stdout)
    assert ran.returncode == bool(faults), ran.stderr
    assert sorted(row["line"] for row in rows[:2]) == sorted(faults)
    assert [row["codes"] for row in sorted(rows, key=lambda row: row["line"])] == [["HTD102"], ["HTD101"]][
        : len(faults)
    ]
    assert all(row["count"] == steps for row in rows)


def test_syncs_are_merged_and_blocking_copies_counted_once():
    gpu, host = torch.ones(8, device="cuda"), torch.ones(8)
    with watch() as report:
        gpu.cpu()
        for _ in range(3):
            gpu.sum().item()
        host.to("cuda")
        gpu.nonzero()
    assert torch.cuda.get_sync_debug_mode() == 0
    syncs = [row for row in report.rows() if row.operation == SYNC]
    assert sorted(row.count for row in syncs) == [1, 3]
    assert {row.filename for row in syncs} == {__file__}
    assert sorted(row.operation for row in report.rows() if row.operation != SYNC) == ["cpu", "to"]


def test_error_mode_and_allowed_regions():
    host = torch.ones(SIDE, SIDE)
    with watch(mode="error"):
        host.pin_memory().to("cuda", non_blocking=True)
        with allow("once"):
            host.to("cuda", non_blocking=True)
        with pytest.raises(BlockingCopyError):
            host.to("cuda", non_blocking=True)


def test_graph_capture_and_replay_work():
    source, target = torch.zeros(8, pin_memory=True), torch.zeros(8, device="cuda")
    target.copy_(source, non_blocking=True)
    target.sum().item()
    with watch() as report:
        target.copy_(source, non_blocking=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            target.copy_(source, non_blocking=True)
            doubled = target * 2
        source.fill_(3)
        graph.replay()
        torch.cuda.synchronize()
    assert doubled.tolist() == [6.0] * 8
    assert report.found == []
    with watch(), pytest.raises(Exception, match=r"(?i)captur"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        target.copy_(torch.zeros(8), non_blocking=True)
    torch.cuda.synchronize()


def test_compiled_code_works_and_is_not_seen():
    def body(x):
        return (x.to("cuda", non_blocking=True) * 2 + torch.tensor(1.0)).sum()

    compiled = torch.compile(body)
    with watch(mode="error") as report:
        assert compiled(torch.ones(4)).item() == 12
    assert compiled(torch.ones(5)).item() == 15
    assert any("compiled" in note for note in report.notes)


def test_a_training_loop_reports_its_pageable_copies_alone():
    """A small transformer on random tokens, batches from a DataLoader: pinned by it, then not."""
    data = torch.utils.data.TensorDataset(torch.randint(0, 100, (64, 512)), torch.randn(64, 512, 64))
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).cuda()
    embed = torch.nn.Embedding(100, 64).cuda()
    optimizer = torch.optim.AdamW([*model.parameters(), *embed.parameters()])
    for pinned in (True, False):
        loader = torch.utils.data.DataLoader(data, batch_size=16, pin_memory=pinned)
        with watch() as report:
            for _ in range(2):
                for tokens, target in loader:
                    tokens, target = (each.to("cuda", non_blocking=True) for each in (tokens, target))
                    loss = (model(embed(tokens)) - target).pow(2).mean()
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
        faults = [row for row in report.rows() if row.codes and row.filename == __file__ and not row.small]
        assert [row.count for row in faults] == ([] if pinned else [8])
        assert report.found == faults


def test_ten_thousand_good_copies_give_no_report():
    host, gpu = make("pinned", "rows"), torch.zeros(SIDE, SIDE, device="cuda")
    small = torch.zeros(100, pin_memory=True)
    with watch(mode="error") as report:
        for _ in range(10_000):
            gpu[:8].copy_(host[:8], non_blocking=True)
            small.to("cuda", non_blocking=True)
            gpu[3, :4].add_(1)
            small.copy_(gpu[0, :100], non_blocking=True)
    assert report.found == []
    assert sum(row.count for row in report.rows()) == 30_000


def test_overhead():
    """At most three microseconds a copy; indexing, casts and arithmetic slow by less than a Python call takes."""
    table = measure()
    slow = {name: each for name, each in table.items() if each["under_us"] - each["without_us"] > each["limit_us"]}
    assert not slow
