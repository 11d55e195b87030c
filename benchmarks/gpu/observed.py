"""Fixtures under watch, joined with their static sites: `python -m benchmarks.gpu.observed OUT.json [DEVICE]`.

Runs the seed, the fix fixtures and the recorded loops, each before and after the fix, and then
`h2dlint sites --observed`: a verdict that a copy belies is a mistake of the linter's facts, and makes this fail.
"""

from __future__ import annotations

import importlib
import pathlib
import subprocess
import sys
from typing import Any

import torch

from h2dlint.runtime import watch
from h2dlint.runtime.report import render_json

ROOT = pathlib.Path(__file__).parents[2]
FIXTURES = ROOT / "fixtures"
TOKENS = 5_000
PART_OF_A_ROW = 5
"""Columns of the fix fixtures to copy, fewer than any of their buffers has: all columns would be one packed stretch."""


def load(folder: pathlib.Path, name: str) -> Any:
    """A module of a fixture folder; the same name of another folder is forgotten first."""
    for known in [each for each in sys.modules if each.split(".")[0] == name.split(".")[0]]:
        del sys.modules[known]
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(folder))


def run_seed(side: str, device: str, steps: int = 5) -> None:
    folder = FIXTURES / "seed"
    runner = load(folder, f"{side}.runner").Runner(TOKENS, 4, torch.device(device))
    tower = load(folder, f"{side}.vision").VisionTower(2, torch.device(device))
    for step in range(steps):
        count = TOKENS - 7 * step
        runner.step(range(count), torch.arange(3 * count).reshape(3, count))
        tower.patch_positions([[1, 64, 64], [2, 32, 32], [1, 128, 64]])


def run_fix_fixtures(side: str, device: str) -> None:
    for path in sorted((FIXTURES / "fixes" / side).glob("*.py")):
        module = load(path.parent, path.stem)
        for name, function in vars(module).items():
            if callable(function) and getattr(function, "__module__", "") == path.stem and not name.startswith("_"):
                try:
                    function(PART_OF_A_ROW, device)
                except Exception as error:  # some fixtures are there to raise
                    print(f"{side}/{path.name}: {name} raised {type(error).__name__}")


def run_loops(name: str, device: str, steps: int = 5) -> None:
    runner = load(FIXTURES / "traces", name).Runner(device, 1_000_000)
    for _ in range(steps):
        runner.step()


def main(argv: list[str]) -> int:
    device = argv[1] if len(argv) > 1 else "cuda"
    with watch() as report:
        for side in ("before", "after"):
            run_seed(side, device)
            run_fix_fixtures(side, device)
        if device == "cuda":
            for name in ("serving", "serving_fixed"):
                run_loops(name, device)
            torch.cuda.synchronize()
    rows = report.rows()
    pathlib.Path(argv[0]).write_text(render_json(rows, report.notes), encoding="utf-8")
    faults = {
        side: [f"{row.filename}:{row.row}" for row in report.found if f"/{side}/" in row.filename]
        for side in ("before", "after")
    }
    print(f"{len(rows)} rows; faults before {len(faults['before'])}, after {faults['after']}")
    command = [
        sys.executable,
        "-m",
        "h2dlint",
        "sites",
        "--isolated",
        "--observed",
        str(pathlib.Path(argv[0]).resolve()),
    ]
    command += [f"fixtures/{folder}" for folder in ("seed", "fixes", "traces")]
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    return code or int(device == "cuda" and (not faults["before"] or bool(faults["after"])))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
