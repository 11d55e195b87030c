"""The fixtures under watch, joined with their static sites, against a GPU that is played by meta tensors.

On a real one `python -m benchmarks.gpu.observed` does the same.
"""

from __future__ import annotations

import json
import pathlib
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("numpy")
sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from meta_gpu import meta_gpu

from benchmarks.gpu import observed
from h2dlint.cli import main
from h2dlint.runtime import watch
from h2dlint.runtime.report import render_json

__all__ = ["meta_gpu"]  # a fixture


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_no_static_verdict_is_contradicted(
    meta_gpu: None, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with watch(syncs=False) as report:
        for side in ("before", "after"):
            observed.run_seed(side, "meta")
            observed.run_fix_fixtures(side, "meta")
    faults = {
        (pathlib.Path(row.filename).parent.name, pathlib.Path(row.filename).stem, row.row) for row in report.found
    }
    assert faults == {("before", "runner", 53), ("before", "runner", 58), ("before", "vision", 32)}
    path = tmp_path / "watch.json"
    path.write_text(render_json(report.rows()), encoding="utf-8")
    folders = [str(observed.FIXTURES / name) for name in ("seed", "fixes")]
    capsys.readouterr()
    code = main(["sites", "--isolated", "--observed", str(path), "--output-format", "json", *folders])
    rows = json.loads(capsys.readouterr().out)
    assert [row for row in rows if row["contradiction"]] == []
    assert code == 0
    run = [row for row in rows if row["observed"]]
    assert {(row["static"], *row["observed"]) for row in run} >= {("blocks", "blocks"), ("async", "async")}
    for verdict in ("blocks", "async"):
        assert sum(row["static"] == verdict for row in run) >= 20
    assert not [row for row in rows if row["static"] is None]
