"""What the checks here are worth: each of them fails once the fix is taken away, or the model lies.

The twins that need no GPU are in tests/test_measurements.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import test_fix_costs  # noqa: E402
import test_fixed_fixtures  # noqa: E402
import test_model  # noqa: E402
import test_race_values  # noqa: E402

from benchmarks.gpu import cases  # noqa: E402
from benchmarks.gpu.serving_loop import Inputs  # noqa: E402
from h2dlint import copies  # noqa: E402
from h2dlint.runtime import judging, watch  # noqa: E402

BEFORE = Path(__file__).parents[2] / "fixtures" / "fixes" / "before"


def list_some(layout: str) -> list[cases.Case]:
    return [case for case in cases.list_uploads() if f"upload pinned, {layout}, float32" in case.name]


def call_everything_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lie: a view with gaps is one stretch of memory."""
    monkeypatch.setattr(copies, "_find_gather", lambda *ends, **how: "none")
    monkeypatch.setattr(judging, "_judgements", {})


def test_the_serving_loop_without_its_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Inputs, "upload_after", Inputs.upload_before)
    with pytest.raises(AssertionError):
        test_fix_costs.test_serving_loop()


@pytest.mark.parametrize("layout", ["columns", "every other row", "one column", "narrowed"])
def test_a_model_that_calls_gaps_packed(monkeypatch: pytest.MonkeyPatch, layout: str) -> None:
    assert test_model.contradict(iter(list_some(layout)))[1] == []
    call_everything_packed(monkeypatch)
    count, wrong = test_model.contradict(iter(list_some(layout)))
    assert len(wrong) == count > 0
    with pytest.raises(AssertionError):
        test_model.test_predictions_hold(lambda: iter(list_some(layout)), 1)


def test_facts_that_call_pageable_memory_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    truth = cases.fact_of
    monkeypatch.setattr(cases, "fact_of", lambda tensor: truth(tensor if tensor.is_cuda else tensor.pin_memory()))
    wanted = [case for case in cases.list_uploads() if "upload pageable, packed, float32" in case.name]
    count, wrong = test_model.contradict(iter(wanted))
    assert wrong
    assert count > 0


def test_watch_under_a_model_that_calls_gaps_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = Inputs()
    with watch(syncs=False) as report:
        inputs.upload_before()
    assert len(report.found) == 2
    call_everything_packed(monkeypatch)
    with watch(syncs=False) as report:
        inputs.upload_before()
    assert len(report.found) == 1


def list_functions() -> list[tuple[str, str]]:
    return [each for each in test_fixed_fixtures.functions() if each[1] != "silent"]


@pytest.mark.parametrize(("name", "function"), list_functions())
def test_fixtures_without_their_fixes(name: str, function: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_fixed_fixtures, "AFTER", BEFORE)
    monkeypatch.setattr(test_fixed_fixtures, "TURNED", ())
    with pytest.raises(AssertionError):
        test_fixed_fixtures.test_mended_copies_are_pinned_packed_and_right(name, function, monkeypatch)


@pytest.mark.parametrize("how", ["event", "stream"])
def test_races_without_their_guards(monkeypatch: pytest.MonkeyPatch, how: str, far: Any) -> None:
    owner = torch.cuda.Event if how == "event" else torch.cuda.Stream
    monkeypatch.setattr(owner, "synchronize", lambda self: None)
    with pytest.raises(AssertionError):
        test_race_values.test_guards_wait(far, how)


far = test_race_values.far
