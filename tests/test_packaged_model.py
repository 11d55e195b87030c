"""The check of the packaged model under watch, without a GPU: it tells an exact report from one that is not."""

from __future__ import annotations

import pathlib
import sys
from dataclasses import replace

import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from meta_gpu import meta_gpu

from benchmarks.gpu import packaged_model
from h2dlint.runtime import watch
from h2dlint.runtime.observation import Observation

__all__ = ["meta_gpu"]  # a fixture

TURNS = 2 * packaged_model.FAULT_EVERY + 1  # three of them with faults


def make_row(name: str, codes: tuple[str, ...], count: int) -> Observation:
    return Observation(
        filename=packaged_model.__file__,
        row=packaged_model.find_functions()[name][-1],
        column=1,
        end_row=1,
        end_column=2,
        operation="copy_",
        direction="h2d",
        verdict="blocks" if codes else "async",
        reason="",
        codes=codes,
        memory="pageable",
        layout="contiguous",
        count=count,
        bytes=1 << 20,
        host_ns=1,
        worst_ns=1,
    )


FOUND = [make_row(name, codes, 3) for name, codes in packaged_model.FAULTS.items()]
GOOD = [
    make_row("upload_inputs", (), TURNS),
    make_row("upload_rows", (), TURNS * packaged_model.PADDED[0]),
    make_row("read_back", (), TURNS),
]


def test_an_exact_report_has_nothing_against_it() -> None:
    assert packaged_model.find_disagreements(FOUND, FOUND + GOOD, TURNS) == []


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (FOUND[1:], "upload_columns: 0 reported, 3 made"),
        ([replace(FOUND[0], count=2), *FOUND[1:]], "upload_columns: 2 reported, 3 made"),
        ([*FOUND, make_row("read_back", ("HTD105",), 3)], "false report"),
        ([*FOUND, replace(FOUND[0], filename="other.py")], "false report: other.py"),
        ([replace(FOUND[0], codes=("HTD105",)), *FOUND[1:]], "upload_columns: ('HTD105',) in place of ('HTD101',)"),
    ],
)
def test_a_report_that_is_not_exact_is_told(found: list[Observation], said: str) -> None:
    wrong = packaged_model.find_disagreements(found, FOUND + GOOD, TURNS)
    assert any(said in line for line in wrong), wrong


def test_copies_that_were_not_seen_are_told() -> None:
    wrong = packaged_model.find_disagreements(FOUND, FOUND + GOOD[1:], TURNS)
    assert wrong == [f"upload_inputs: 0 copies seen, {TURNS} made"]


def test_the_loop_runs_without_a_gpu() -> None:
    loop = packaged_model.Loop("cpu", pin=False)
    loop.pieces[0].fill_(1)
    loop.run(TURNS)
    assert loop.upload_joined().sum() == packaged_model.PADDED[1]
    assert loop.scores.isfinite().all()
    assert loop.scores.any()


def test_watch_reports_exactly_the_faults_of_the_loop(meta_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """In 200 iterations; on a GPU 10,000 are run."""
    monkeypatch.setitem(sys.modules, "transformers", None)  # PyTorch's own encoder runs on meta tensors
    loop = packaged_model.Loop("meta")
    with watch(syncs=False) as report:
        loop.run(200)
    assert packaged_model.find_disagreements(report.found, report.rows(), 200) == []
