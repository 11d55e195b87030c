"""The fixtures under watch, joined with their static sites, against a GPU that is played by meta tensors.

On a real one `python -m benchmarks.gpu.observed` does the same.
"""

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("numpy")
sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from benchmarks.gpu import observed  # noqa: E402
from h2dlint.cli import main  # noqa: E402
from h2dlint.runtime import watch  # noqa: E402
from h2dlint.runtime.report import render_json  # noqa: E402

MAKERS = ("zeros", "ones", "empty", "full", "tensor", "arange")


@pytest.fixture
def meta_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Meta tensors are on the GPU; what is asked to be pinned is remembered as such."""
    pinned: dict[int, Any] = {}

    def remember(tensor: Any) -> Any:
        pinned[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    def pinning(make: Callable[..., Any]) -> Callable[..., Any]:
        def made(*args: Any, pin_memory: bool = False, **kwargs: Any) -> Any:
            tensor = make(*args, **kwargs)
            return remember(tensor) if pin_memory else tensor

        return made

    def is_pinned(tensor: Any) -> bool:
        return tensor.device.type == "cpu" and tensor.numel() > 0 and tensor.untyped_storage().data_ptr() in pinned

    for name in MAKERS:
        monkeypatch.setattr(torch, name, pinning(getattr(torch, name)))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda tensor: tensor.device.type == "meta"), raising=False)
    monkeypatch.setattr(torch.Tensor, "is_pinned", is_pinned)
    monkeypatch.setattr(
        torch.Tensor,
        "pin_memory",
        lambda tensor: (
            tensor
            if is_pinned(tensor)
            else remember(torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).copy_(tensor))
        ),
    )


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
