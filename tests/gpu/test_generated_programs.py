"""The generator of programs on a GPU: what a function gives on the device is the same before and after its fixes.

On the fake GPU of the CPU tests every copy arrives at once or is held back; here the hardware decides. Each program
runs behind a spin kernel, so that a fixed copy whose source is overwritten too early shows. The few programs that race
as they are drawn give one result behind the kernel and another without it, and are left out.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
hypothesis = pytest.importorskip("hypothesis")
sys.path.insert(0, str(Path(__file__).parents[1] / "differential"))

from exploring import A_MODULE  # noqa: E402
from fix_programs import modules  # noqa: E402
from running import ARGUMENTS, differs, fix, split_functions  # noqa: E402

PROGRAMS = 300
CYCLES = 2_000_000  # about a millisecond


def draw_modules(count: int) -> list[str]:
    """So many modules of `A_MODULE` programs, the same ones on every machine with this hypothesis."""
    drawn: list[str] = []

    @hypothesis.settings(
        max_examples=count,
        phases=[hypothesis.Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.seed(6)
    @hypothesis.given(text=modules(A_MODULE))
    def draw(text: str) -> None:
        drawn.append(text)

    draw()
    return drawn[:count]


def run_all(text: str, device: str, cycles: int) -> dict[str, list[Any]]:
    """The results of each function for each set of arguments, on the host; exceptions by their type."""
    scope: dict[str, Any] = {"__name__": "case"}
    exec(compile(text, "case.py", "exec"), scope)
    results: dict[str, list[Any]] = {}
    for name in split_functions(text):
        for number, flag in ARGUMENTS:
            scope["SEEN"].clear()
            wait()
            if cycles:
                torch.cuda._sleep(cycles)
            try:
                result = scope[name](number, device, flag)
            except Exception as error:
                result = type(error)
            wait()
            results.setdefault(name, []).append(fetch(result))
    return results


def wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def fetch(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    return [fetch(one) for one in value] if isinstance(value, (list, tuple)) else value


def compare(before: str, after: str, device: str = "cuda", cycles: int = CYCLES) -> tuple[int, list[str]]:
    """How many functions give the same in any case before, and what differs in those after."""
    was, behind, now = run_all(before, device, 0), run_all(before, device, cycles), run_all(after, device, cycles)
    steady = [name for name in was if not differs(was[name], behind[name])]
    differences = [
        f"{name}{arguments}: {what}"
        for name in steady
        for arguments, one, other in zip(ARGUMENTS, behind[name], now[name])
        if (what := differs(one, other))
    ]
    return len(steady), differences


def test_programs_give_the_same_on_the_gpu_after_their_fixes(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    programs = changed = steady = 0
    failures: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for text in draw_modules(PROGRAMS // A_MODULE):
            fixed = fix(text, False, str(tmp_path / "case.py")).source
            before, after = split_functions(text), split_functions(fixed)
            programs += len(before)
            changed += sum(before[name] != after[name] for name in before)
            alike, differences = compare(text, fixed)
            steady += alike
            failures += differences
    assert programs >= PROGRAMS
    assert changed >= PROGRAMS // 3
    assert steady >= 0.9 * programs
    assert not failures, f"{len(failures)} differ, first {failures[0]}"


def test_a_wrong_fix_would_be_seen(tmp_path: Path) -> None:
    before = "import torch\nSEEN = []\n\ndef f0(n, device, flag):\n    return torch.arange(4.0).to(device)\n"
    assert compare(before, before) == (1, [])
    assert len(compare(before, before.replace("arange(4.0)", "arange(1.0, 5.0)"))[1]) == len(ARGUMENTS)
