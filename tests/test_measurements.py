"""The copy model and the constants that rest on measurements still agree with the data files."""

from __future__ import annotations

import json
import pathlib
import statistics
import sys
from typing import Any
from xml.etree import ElementTree

import pytest

ROOT = pathlib.Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.gpu import plot  # noqa: E402
from benchmarks.gpu.break_even import find_largest_loop  # noqa: E402
from benchmarks.gpu.records import pack_fact, unpack_fact  # noqa: E402
from h2dlint import copies  # noqa: E402
from h2dlint.copies import judge  # noqa: E402
from h2dlint.model import Dim, Fact, Shape, Size, Verdict  # noqa: E402

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DATA = ROOT / "benchmarks" / "gpu"


def read_data(name: str) -> Any:
    return json.loads((DATA / f"{name}_h200.json").read_text())


def test_model_agrees_with_every_recorded_copy() -> None:
    cases = read_data("copy_model")["cases"]
    assert len(cases) > 550
    assert {case["waits"] for case in cases} == {True, False}
    wrong = []
    for case in cases:
        ends = unpack_fact(case["source"]), unpack_fact(case["destination"])
        verdict = judge(case["operation"], *ends, case["non_blocking"])
        if verdict.kind != ("blocks" if case["waits"] else "async"):
            wrong.append(f"{case['name']}: {verdict.kind}, held {case['share']} of a step")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("builder", ["_find_gather", "_is_repeated", "_judge_index"])
def test_a_lie_in_the_model_contradicts_the_records(monkeypatch: pytest.MonkeyPatch, builder: str) -> None:
    """Lies: a view with gaps called packed, a repeated source single, an index free."""
    lies = {
        "_find_gather": lambda *ends, **how: "none",
        "_is_repeated": lambda *ends: False,
        "_judge_index": lambda *ends: Verdict("async", "h2d", "a lie"),
    }
    monkeypatch.setattr(copies, builder, lies[builder])
    with pytest.raises(AssertionError, match=r"async, held [01]\.\d+ of a step"):
        test_model_agrees_with_every_recorded_copy()


def test_recorded_copies_are_told_apart_clearly() -> None:
    """The line is at half a step; what waits lies far above it, but for a few, and what does not far below."""
    cases = read_data("copy_model")["cases"]
    held = sorted(case["share"] for case in cases if case["waits"])
    assert held[len(held) // 50] > 0.9
    assert max(case["share"] for case in cases if not case["waits"]) < 0.2


def test_facts_survive_the_file() -> None:
    shape = Shape((Dim(Size(None, 4), 1, gap=True), Dim(None, 0, zero=True)), tail=False)
    for fact in (
        Fact(),
        Fact("cpu", "pinned", shape, "torch.int8", 4),
        Fact("gpu", shape=Shape((), tail=False), array=True),
    ):
        assert unpack_fact(json.loads(json.dumps(pack_fact(fact)))) == fact


def test_serving_loop_was_held_and_is_free() -> None:
    """By the median host time of a step; the mean is on record beside it."""
    data = read_data("serving_loop")
    for name in ("before", "after"):
        assert len(data[name]["host_ms"]) >= 40
        assert data[name]["median_ms"] == pytest.approx(statistics.median(data[name]["host_ms"]), abs=1e-3)
        assert data[name]["mean_ms"] == pytest.approx(statistics.fmean(data[name]["host_ms"]), abs=1e-3)
    assert data["before"]["median_ms"] >= 0.9 * data["step_ms"]
    assert data["after"]["median_ms"] <= 0.01 * data["step_ms"]


def test_row_loop_constant_is_the_measured_break_even() -> None:
    costs = tomllib.loads((ROOT / "h2dlint" / "fixes" / "costs.toml").read_text(encoding="utf-8"))
    assert costs["row_loop"]["most_copies"] == find_largest_loop(read_data("fix_costs")["rows"])


def rows_of(*costs: tuple[int, float, float]) -> list[dict[str, Any]]:
    return [
        {"rows": count, "ways": {"rows by index": {"host": loop}, "staging": {"host": staging}}}
        for count, loop, staging in costs
    ]


def test_break_even_stops_at_the_first_costly_count() -> None:
    assert find_largest_loop(rows_of((1, 10, 30), (2, 52, 30), (4, 53, 30), (8, 10, 30))) == 2
    assert find_largest_loop(rows_of((1, 10, 30), (2, 20, 30), (2, 60, 30))) == 1
    assert find_largest_loop(rows_of((1, 99, 30))) == 0
    with pytest.raises(ValueError, match="no measurements"):
        find_largest_loop([])


def test_pictures_are_those_of_the_data(tmp_path: pathlib.Path) -> None:
    assert plot.main([str(tmp_path)]) == 0
    for name in ("serving_loop", "fix_costs"):
        drawn = (tmp_path / f"{name}.svg").read_text(encoding="utf-8")
        assert drawn == (DATA / f"{name}.svg").read_text(encoding="utf-8"), "run python -m benchmarks.gpu.plot"
        root = ElementTree.fromstring(drawn)
        lines = root.findall("{http://www.w3.org/2000/svg}polyline")
        assert len(lines) >= 2
        for line in lines:
            points = [tuple(map(float, pair.split(","))) for pair in line.attrib["points"].split()]
            assert all(0 <= x <= plot.WIDTH and 0 <= y <= plot.HEIGHT for x, y in points)
