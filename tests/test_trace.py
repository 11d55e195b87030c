"""Reading profiler traces: small ones written here in the form that Kineto and Nsight Systems give them."""

from __future__ import annotations

import gzip
import json
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import trace_memory
from h2dlint.model import Finding
from h2dlint.runtime import places, trace
from h2dlint.runtime.json_stream import read_events
from h2dlint.runtime.kineto import read_kineto
from h2dlint.runtime.nsys import read_nsys
from h2dlint.runtime.stalls import Cover, Moment

SERVING = Path(__file__).parent.parent / "fixtures" / "traces" / "serving.py"
MS = 1_000_000

PAGEABLE, PINNED = "Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pinned -> Device)"


class Kineto:
    """Builds a Chrome trace; times in microseconds."""

    def __init__(self):
        self.events = []

    def add(self, category, name, start, length, pid=7, tid=7, **args):
        self.events.append(
            {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": start, "dur": length, "args": args}
        )
        return self

    def python(self, name, start, length, number, parent, **where):
        args = {"Python id": number, "Python parent id": parent}
        return self.add("python_function", name, start, length, **where, **args)

    def copy(self, kind, start, length, correlation, size=1000, operator=1, **where):
        self.add("cuda_runtime", "cudaMemcpyAsync", start, length, correlation=correlation, **{"External id": operator})
        self.events[-1].update(where)
        return self.add("gpu_memcpy", kind, start + length, 5, 0, 7, correlation=correlation, bytes=size)

    def write(self, path, head="", tail=""):
        text = f'{{"schemaVersion": 1,{head} "traceEvents": {json.dumps(self.events, indent=1)}{tail}}}'
        if path.suffix == ".gz":
            path.write_bytes(gzip.compress(text.encode()))
        else:
            path.write_text(text)
        return path


def one_step(build, base=0, first=100):
    """The calls of `Runner.prepare` in serving.py: a good copy, then its two faults, 4 and 6 ms long."""
    build.python("serving.py(31): step", base, 20000, first, None)
    build.python("serving.py(23): prepare", base + 10, 19900, first + 1, first)
    for turn, (name, start, length) in enumerate(
        [("copy_", 20, 40), ("copy_", 100, 4100), ("cat", 4300, 50), ("to", 5000, 6100)]
    ):
        builtin = f"<built-in method {name} of Tensor object at 0x7f{turn}>"
        build.python(builtin, base + start, length, first + 2 + turn, first + 1)
    build.add("cpu_op", "aten::copy_", base + 25, 30)
    build.add("cpu_op", "aten::copy_", base + 110, 4050)
    build.add("cpu_op", "aten::to", base + 5005, 6050)
    build.add("cpu_op", "aten::copy_", base + 5010, 6040)
    build.copy(PINNED, base + 30, 8, first, operator=1)
    build.copy(PAGEABLE, base + 120, 4000, first + 1, size=1_439_832, operator=2)
    build.copy(PAGEABLE, base + 5020, 6000, first + 2, size=960_000, operator=3)
    return build


@pytest.fixture
def findings(monkeypatch):
    """What the linter says of serving.py, without running it."""
    name = str(SERVING)
    made = [
        Finding("HTD101", "strided-copy", "the view has gaps", name, 25, 9, 28, 10, (25, 28)),
        Finding("HTD102", "unpinned-cat", "cat is pageable", name, 29, 16, 29, 80, (29, 29)),
    ]
    monkeypatch.setattr(places, "_lint", lambda files: [each for each in made if files])


def run(*argv):
    return trace.main([str(each) for each in argv])


def rows_of(path, capsys, *argv):
    code = run(path, "--source", SERVING.parent, "--output-format", "json", *argv)
    rows = json.loads(capsys.readouterr().out)
    assert code == bool(rows)
    return rows


@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_faults_are_named_by_line_and_ranked_by_time(tmp_path, capsys, findings, suffix):
    build = Kineto()
    for step in range(3):
        one_step(build, step * 30000, 100 + step * 10)
    rows = rows_of(build.write(tmp_path / f"t{suffix}"), capsys)
    assert [(row["line"], row["codes"], row["call"]) for row in rows] == [
        (29, ["HTD102"], "to"),
        (25, ["HTD101"], "copy_"),
    ]
    first, second = rows
    assert (first["count"], first["bytes"], first["total_ns"], first["worst_ns"]) == (3, 2_880_000, 18 * MS, 6 * MS)
    assert (second["total_ns"], second["function"], second["memory"]) == (12 * MS, "prepare", "pageable")
    assert second["filename"].endswith("serving.py")


def test_the_order_of_events_does_not_matter(tmp_path, capsys, findings):
    build = one_step(Kineto())
    build.events.reverse()
    assert [row["line"] for row in rows_of(build.write(tmp_path / "t.json"), capsys)] == [29, 25]


def test_text_report(tmp_path, capsys, findings):
    assert run(one_step(Kineto()).write(tmp_path / "t.json"), "--source", SERVING.parent) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(
        f"{SERVING}:29 (prepare): HTD102 6.0 ms in 1 stalls, worst 6.0 ms, 937.5 KiB: {PAGEABLE}"
    )
    assert lines[1] == "    cat is pageable"
    assert lines[-1] == "h2dlint trace: 2 copies at 2 places held the host, 10.0 ms in all"


def test_short_and_pinned_copies_are_silent(tmp_path, capsys, findings):
    build = (
        Kineto()
        .copy(PAGEABLE, 0, 20, 1, size=4)
        .copy(PINNED, 50, 60, 2)
        .copy("Memcpy DtoD (Device -> Device)", 200, 900, 3)
    )
    assert rows_of(build.write(tmp_path / "t.json"), capsys) == []
    assert len(rows_of(tmp_path / "t.json", capsys, "--min-stall", "10")) == 2


def test_a_blocking_copy_includes_its_wait(tmp_path):
    build = Kineto().copy(PINNED, 0, 10, 1, operator=5).copy(PINNED, 5000, 10, 2, operator=6)
    for start, operator in ((12, 5), (5200, 9)):
        build.add("cuda_runtime", "cudaStreamSynchronize", start, 3000, **{"External id": operator})
    stalls = read_kineto(build.write(tmp_path / "t.json"), 100_000)
    assert [(stall.memory, stall.ns) for stall in stalls] == [("pinned", 3_010_000)]


def test_frames_of_other_threads_and_of_torch_are_not_taken(tmp_path):
    build = Kineto().copy(PAGEABLE, 100, 500, 1)
    build.python("other.py(1): elsewhere", 0, 9000, 1, None, tid=8)
    build.python("mine.py(5): load", 0, 9000, 2, None)
    build.python("torch/nn/modules/module.py(9): to", 10, 8000, 3, 2)
    build.python("<built-in method to of Parameter object at 0x1>", 20, 700, 4, 3)
    (stall,) = read_kineto(build.write(tmp_path / "t.json"), 0)
    assert (stall.frame.filename, stall.frame.line, stall.frame.function) == ("mine.py", 5, "load")
    assert (stall.call, stall.turn, stall.turns) == ("to", 1, 1)


def test_without_stacks_the_operator_is_told(tmp_path, capsys):
    build = Kineto().copy("Memcpy DtoH (Device -> Pageable)", 100, 500, 1)
    build.add("cpu_op", "aten::item", 90, 600).add("cpu_op", "aten::_local_scalar_dense", 95, 550)
    (row,) = rows_of(build.write(tmp_path / "t.json"), capsys)
    assert (row["filename"], row["direction"], row["label"]) == ("", "d2h", "aten::_local_scalar_dense")
    run(tmp_path / "t.json")
    assert "no Python stack recorded" in capsys.readouterr().out


def test_calls_in_a_loop_that_cannot_be_told_apart_are_all_named(tmp_path, capsys, monkeypatch):
    (tmp_path / "loop.py").write_text(
        textwrap.dedent("""
        def work(a, b):
            for x in a:
                x.copy_(b)
            b.copy_(a[0])
        """)
    )
    monkeypatch.setattr(places, "_lint", lambda files: [])
    build = Kineto().python("loop.py(2): work", 0, 9000, 1, None)
    for number, start in enumerate((10, 1000, 3000)):
        build.python("<built-in method copy_ of Tensor object at 0x1>", start, 500, 2 + number, 1)
    build.copy(PAGEABLE, 1010, 400, 1)
    (row,) = rows_of(build.write(tmp_path / "t.json"), capsys, "--source", tmp_path)
    assert (row["line"], row["lines"]) == (0, [4, 5])
    run(tmp_path / "t.json", "--source", tmp_path)
    assert "loop.py:4|5 (work)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("[]", 0),
        (' [ {"a": 1} , {"b": [1, {}]} ]', 2),
        ('{"traceEvents": [], "x": 1.5}', 0),
        ('{"deep": {"traceEvents": [{}]}, "n": 12345, "traceEvents": [{}, 3, {"s": "\\"]}"}], "after": {"k": []}}', 2),
        ('\ufeff{"traceEvents":[{"name":"\u00e9\t"}]}', 1),
        ("{}", 0),
    ],
)
@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
def test_events_are_read_whatever_the_chunks(tmp_path, monkeypatch, text, count, chunk):
    monkeypatch.setattr("h2dlint.runtime.json_stream._CHUNK", chunk)
    path = tmp_path / "t.json"
    path.write_text(text, encoding="utf-8")
    assert len(list(read_events(path))) == count


@pytest.mark.parametrize(
    "text", ["", "nonsense", '{"traceEvents": [{"a": 1},', '{"traceEvents": [{"a" 1}]}', "3", '{"a": 1']
)
def test_what_is_no_trace_is_one_clear_line(tmp_path, capsys, text):
    path = tmp_path / "t.json"
    path.write_text(text)
    assert run(path) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"h2dlint trace: {path}: ")
    assert error.count("\n") == 1


def test_other_bad_files(tmp_path, capsys):
    cut = tmp_path / "cut.json.gz"
    cut.write_bytes(gzip.compress(b'{"traceEvents": [' + b'{"a": 1},' * 1000)[:40])
    empty = tmp_path / "empty.sqlite"
    with sqlite3.connect(empty) as database:
        database.execute("CREATE TABLE t (a)")
    for path in (cut, empty, tmp_path / "absent.json", tmp_path):
        assert run(path) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_a_value_without_end_is_refused_with_bounded_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("h2dlint.runtime.json_stream._LONGEST", 1000)
    monkeypatch.setattr("h2dlint.runtime.json_stream._CHUNK", 100)
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": [{"a": "' + "x" * 100_000)
    with pytest.raises(ValueError, match="not valid JSON"):
        list(read_events(path))


def make_export(path, *, pids=True, chains=True, nvtx=True):
    """An export with a pinned copy, a pageable one of 4 ms, and a blocking one whose wait is 3 ms."""
    process = 5 << 24
    thread = process | 77
    with sqlite3.connect(path) as database:
        run = database.execute
        run("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        names = ["cudaMemcpyAsync_v3020", "cudaStreamSynchronize_v3020", "cudaLaunchKernel", "libtorch.so", "at::copy_"]
        names += ["prepare:25", "/src/serving.py", "_call_impl", "site-packages/torch/nn/modules/module.py", "step 3"]
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(names))
        chain, pid = ", callchainId INT" * chains, ", globalPid INT" * pids
        columns = "start INT, end INT, globalTid INT, correlationId INT, nameId INT"
        run(f"CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME ({columns}{chain})")
        columns = "correlationId INT, copyKind INT, srcKind INT, dstKind INT, bytes INT"
        run(f"CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY ({columns}{pid})")
        calls = [
            (1000, 9000, thread, 1, 0, None),
            (20_000, 20_000 + 4 * MS, thread, 2, 0, 40),
            (5 * MS, 5 * MS + 9000, thread, 3, 0, None),
            (5 * MS + 10_000, 8 * MS + 10_000, thread, 4, 1, None),
            (9 * MS, 12 * MS, thread, 5, 2, None),
            (20_000, 20_000 + 9 * MS, (6 << 24) | 1, 2, 2, None),
        ]
        for call in calls:
            run(
                f"INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES ({', '.join('?' * (5 + chains))})",
                call[: 5 + chains],
            )
        copies = [
            (1, 1, 1, 2, 100, process),
            (2, 1, 0, 2, 5000, process),
            (3, 2, 2, 1, 64, process),
            (9, 8, 2, 2, 1, process),
        ]
        for copy in copies:
            run(f"INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES ({', '.join('?' * (5 + pids))})", copy[: 5 + pids])
        if chains:
            run("CREATE TABLE CUDA_CALLCHAINS (id INT, symbol INT, module INT, stackDepth INT)")
            frames = [(40, 4, 3, 0), (40, 7, 8, 1), (40, 5, 6, 2), (40, 5, 3, 3)]
            database.executemany("INSERT INTO CUDA_CALLCHAINS VALUES (?, ?, ?, ?)", frames)
        if nvtx:
            run("CREATE TABLE NVTX_EVENTS (start INT, end INT, globalTid INT, text TEXT, textId INT)")
            ranges = [
                (0, 20 * MS, thread, "serve", None),
                (4 * MS + 900_000, 9 * MS, thread, None, 9),
                (5, None, thread, "mark", None),
            ]
            database.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?)", ranges)
    return path


def test_nsight_systems_export(tmp_path):
    stalls = read_nsys(make_export(tmp_path / "report.sqlite"), 100_000)
    assert [(stall.kind, stall.bytes, stall.ns, stall.label) for stall in stalls] == [
        (PAGEABLE, 5000, 4 * MS, "serve"),
        ("Memcpy DtoH (Device -> Pinned)", 64, 3 * MS + 9000, "step 3"),
    ]
    assert (stalls[0].frame.filename, stalls[0].frame.function, stalls[0].line) == ("/src/serving.py", "prepare", 25)
    assert stalls[1].frame is None


@pytest.mark.parametrize("without", ["pids", "chains", "nvtx"])
def test_exports_of_other_versions(tmp_path, without):
    stalls = read_nsys(make_export(tmp_path / "report.sqlite", **{without: False}), 100_000)
    assert [stall.ns for stall in stalls] == [4 * MS, 3 * MS + 9000]


def test_nsight_rows_are_joined_by_line(tmp_path, capsys, findings):
    rows = rows_of(make_export(tmp_path / "report.sqlite"), capsys)
    assert (rows[0]["line"], rows[0]["codes"]) == (25, ["HTD101"])
    assert rows[1]["filename"] == ""


def test_cover_finds_what_holds_a_moment():
    cover = Cover([Moment("a", 5), Moment("a", 50), Moment("b", 5)])
    for thread, start, length, name in [
        ("a", 0, 100, "out"),
        ("a", 4, 1, "in"),
        ("a", 6, 10, "none"),
        ("c", 0, 99, "no"),
    ]:
        cover.add(thread, start, length, name)
    assert list(cover) == [["in", "out"], ["out"], []]
    assert cover.holds("b", 5, 0)
    assert not cover.holds("a", 6, 43)


def test_the_linter_finds_the_faults_of_the_recorded_loop(tmp_path, capsys):
    rows = rows_of(one_step(Kineto()).write(tmp_path / "t.json"), capsys)
    assert [(row["line"], row["codes"]) for row in rows] == [(29, ["HTD102"]), (25, ["HTD101"])]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("serving", {(25, "HTD101", "copy_"), (29, "HTD102", "to")}), ("serving_fixed", set())],
)
def test_traces_recorded_on_an_h200(capsys, name, expected):
    """The faults of the recorded loop are named, by line and by rule, and nothing is after the fix."""
    rows = rows_of(SERVING.parent / f"{name}.json.gz", capsys)
    assert {(row["line"], *row["codes"], row["call"]) for row in rows} == expected
    assert all((row["memory"], row["direction"], row["count"]) == ("pageable", "h2d", 10) for row in rows)
    assert [row["codes"] for row in rows[:1]] == [["HTD102"]] * bool(expected)


def test_reading_a_trace_imports_no_torch(tmp_path):
    path = one_step(Kineto()).write(tmp_path / "t.json")
    code = (
        f"import sys; from h2dlint.runtime import trace; trace.main([{str(path)!r}]); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def test_memory_does_not_grow_with_the_trace(tmp_path):
    """`python -m benchmarks.trace_memory` measures the same at 300 MB."""
    peaks = []
    for megabytes in (2, 20):
        path = tmp_path / f"{megabytes}.json"
        trace_memory.write_trace(path, megabytes * 1_000_000)
        assert path.stat().st_size >= megabytes * 1_000_000
        stalls, _, peak = trace_memory.measure(path)
        assert stalls == 20
        peaks.append(peak)
    assert peaks[1] < peaks[0] + 5 * 1024
