"""The engine with stand-in rules: what it filters, how it fixes, how it writes, and that no file stops another."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from front_helpers import PRELUDE, write

import h2dlint
from h2dlint import atomic, engine
from h2dlint.config import Config, ConfigFinder, Selection
from h2dlint.engine import Engine, fix_source, lint_paths, lint_source, run_paths

pytestmark = pytest.mark.usefixtures("fake_rules")
EVERYTHING = Config(selections=(Selection(select=("HTD",)),))


def codes(text: str, config: Config | None = None) -> list[tuple[str, int]]:
    return [(finding.code, finding.row) for finding in lint_source(PRELUDE + text, config=config or Config())]


@pytest.mark.parametrize(
    "text", ["", "good()", "cold()\n", "small()\n", "held()\n", "bad()  # noqa\n", "# flake8: noqa\nbad()\n"]
)
def test_is_silent(text: str) -> None:
    assert codes(text) == []


def test_a_file_without_a_gate_word_is_not_followed() -> None:
    assert lint_source("bad()\n") == []


@pytest.mark.parametrize(
    ("text", "config", "expected"),
    [
        ("bad()\nrisky()\n", Config(), [("HTD101", 2), ("HTD102", 3)]),
        ("cold()\n", Config(include_cold=True), [("HTD101", 2)]),
        ("small()\n", Config(include_small=True), [("HTD101", 2)]),
        ("cold_race()\n", Config(), [("HTD202", 2)]),
        ("held()\n", EVERYTHING, [("HTD301", 2)]),
        ("bad()\nrisky()\n", Config(selections=(Selection(("HTD1",), (), ("HTD101",)),)), [("HTD102", 3)]),
        ("bad()  # noqa\n", Config(disable_noqa=True), [("HTD101", 2)]),
    ],
)
def test_options_decide_what_is_found(text: str, config: Config, expected: list[tuple[str, int]]) -> None:
    assert codes(text, config) == expected


def test_captured_sites_are_reported_even_if_cold(monkeypatch: pytest.MonkeyPatch) -> None:
    sites = sys.modules["h2dlint.sites"]
    find = sites.find_sites
    monkeypatch.setattr(sites, "find_sites", lambda *a, **k: [replace(site, captured=True) for site in find(*a, **k)])
    assert codes("cold()\n") == [("HTD101", 2)]


def test_columns_count_characters_in_findings_and_statement_rows_are_set() -> None:
    (finding,) = lint_source(PRELUDE + "x = (1,\n  bad())\n", config=Config())
    assert finding.statement == (2, 3)


FIXES = [
    ("bad()\n", "good(non_blocking)\n", 1),
    ("bad(); bad()\nbad()\n", "good(non_blocking); good(non_blocking)\ngood(non_blocking)\n", 3),
    ("bad(bad())\n", "good(non_blocking)\n", 1),
    ("risky()\n", "risky()\n", 0),
    ("stays()\n", "stays()\n", 0),
    ("breaks()\n", "breaks()\n", 0),
    ("brings()\n", "brings()\n", 0),
    (
        "bad()\nbreaks()\nbad()\nbrings()\nstays()\nbad()\n",
        "good(non_blocking)\nbreaks()\ngood(non_blocking)\nbrings()\nstays()\ngood(non_blocking)\n",
        3,
    ),
    ("bad()  # noqa\n", "bad()  # noqa\n", 0),
]


@pytest.mark.parametrize(("before", "after", "fixed"), FIXES)
def test_fixes_what_it_may(before: str, after: str, fixed: int) -> None:
    result = fix_source(PRELUDE + before, config=Config())
    assert result.source == PRELUDE + after
    assert result.fixed == fixed
    again = fix_source(result.source, config=Config())
    assert again.source == result.source and again.fixed == 0


def test_unsafe_fixes_are_asked_for_or_trusted() -> None:
    assert fix_source(PRELUDE + "risky()\n", unsafe=True, config=Config()).fixed == 1
    assert fix_source(PRELUDE + "risky()\n", config=Config(extend_safe_fixes=("HTD102",))).fixed == 1
    assert fix_source(PRELUDE + "bad()\n", config=Config(unfixable=("HTD1",))).fixed == 0
    assert fix_source(PRELUDE + "bad()\n", config=Config(fixable=("HTD2",))).fixed == 0


def test_a_fix_is_judged_by_rules_that_are_not_selected_as_well() -> None:
    only = Config(selections=(Selection(("HTD101",)),))
    result = fix_source(PRELUDE + "brings()\n", config=only)
    assert result.fixed == 0
    assert [problem.message for problem in result.problems] == [
        "the fix of HTD101 was taken back: it would bring a new HTD202"
    ]
    assert [finding.code for finding in result.findings] == ["HTD101"]


def test_each_refused_fix_is_reported_once_with_its_reason() -> None:
    result = fix_source(PRELUDE + "breaks()\nbad()\nstays()\n", config=Config())
    assert [(problem.row, problem.fatal) for problem in result.problems] == [(2, False), (4, False)]
    assert "would not parse" in result.problems[0].message
    assert "HTD102 would still be there" in result.problems[1].message


def test_bytes_give_bytes_and_keep_their_newlines() -> None:
    data = b"\xef\xbb\xbfnon_blocking = 1\r\nlines()\r\nx = 1\rbad()"
    after = b"\xef\xbb\xbfnon_blocking = 1\r\ngood(\r\n    non_blocking,\r\n)\r\nx = 1\rgood(non_blocking)"
    assert fix_source(data, config=Config()).source == after
    text = fix_source("\ufeff" + PRELUDE + "bad()", config=Config()).source
    assert text == "\ufeff" + PRELUDE + "good(non_blocking)"


def test_fixing_takes_few_lints(monkeypatch: pytest.MonkeyPatch) -> None:
    """300 fixes and one bad one: the work grows with the number of bad ones only."""
    count = 0
    lint = Engine.lint

    def counted(*args: object, **kwargs: object) -> object:
        nonlocal count
        count += 1
        return lint(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(Engine, "lint", counted)
    result = fix_source(PRELUDE + "bad()\n" * 150 + "breaks()\n" + "bad()\n" * 150, config=Config())
    assert result.fixed == 300
    assert count < 40


def test_problems_are_values_and_the_rest_is_linted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    deep = "x = " + "-" * 5000 + "non_blocking\n"
    write(
        tmp_path,
        {
            "a.py": PRELUDE + "bad()\n",
            "b.py": PRELUDE + "def f(:\n",
            "c.py": PRELUDE + "crash()\n",
            "d.py": PRELUDE + "bad()\n",
            "e.py": PRELUDE + deep,
            "f.py": b"non_blocking = '\xe9'\n",
        },
    )
    report = lint_paths(["."])
    assert [(one.filename, one.code) for one in report.findings] == [("a.py", "HTD101"), ("d.py", "HTD101")]
    # Newer Pythons parse e.py.
    assert {one.filename for one in report.problems} - {"e.py"} == {"b.py", "c.py", "f.py"}
    assert all("\n" not in str(one) for one in report.problems)
    crash = next(one for one in report.problems if one.filename == "c.py")
    assert crash.fatal and "please report" in crash.message and "front_helpers.py" in crash.message
    syntax = next(one for one in report.problems if one.filename == "b.py")
    assert not syntax.fatal, "it was found by the walk"
    assert lint_paths(["b.py"]).failed


def test_a_named_file_is_parsed_even_if_nothing_can_be_said_of_it(tmp_path: Path) -> None:
    path = write(tmp_path, {"a.py": "def f(:\n"}) / "a.py"
    assert lint_paths([path]).failed
    assert not lint_paths([tmp_path]).problems


def test_per_file_ignores_and_nearest_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = '[tool.h2dlint]\nper-file-ignores = {"tests/*" = ["HTD1"], "!keep/**" = ["HTD2"]}\n'
    write(
        tmp_path,
        {
            "pyproject.toml": table,
            "tests/a.py": PRELUDE + "bad()\n",
            "b.py": PRELUDE + "bad()\nrace()\n",
            "keep/c.py": PRELUDE + "race()\n",
            "inner/pyproject.toml": '[tool.h2dlint]\nignore = ["HTD101"]\n',
            "inner/d.py": PRELUDE + "bad()\nrace()\n",
        },
    )
    monkeypatch.chdir(tmp_path)
    found = [(one.filename, one.code) for one in lint_paths(["."]).findings]
    assert found == [("b.py", "HTD101"), ("inner/d.py", "HTD202"), ("keep/c.py", "HTD202")]


def test_fixes_are_written_and_everything_else_kept(tmp_path: Path) -> None:
    write(tmp_path, {"real/a.py": b"non_blocking = 1\r\nbad()"})
    target = tmp_path / "real/a.py"
    target.chmod(0o750)
    link = tmp_path / "link.py"
    link.symlink_to(target)
    report = run_paths([str(link)], ConfigFinder(), fix=True)
    assert report.fixed == 1 and not report.problems
    assert target.read_bytes() == b"non_blocking = 1\r\ngood(non_blocking)"
    assert target.stat().st_mode & 0o777 == 0o750
    assert link.is_symlink()
    assert sorted(os.listdir(tmp_path / "real")) == ["a.py"]
    assert run_paths([str(link)], ConfigFinder(), fix=True).fixed == 0


def test_a_file_without_fixes_is_not_touched(tmp_path: Path) -> None:
    path = write(tmp_path, {"a.py": PRELUDE + "breaks()\nrisky()\n"}) / "a.py"
    os.utime(path, (1, 1))
    run_paths([str(path)], ConfigFinder(), fix=True)
    assert path.stat().st_mtime == 1


def test_a_read_only_file_keeps_its_bytes(tmp_path: Path) -> None:
    path = write(tmp_path, {"a.py": PRELUDE + "bad()\n", "b.py": PRELUDE + "bad()\n"}) / "a.py"
    path.chmod(0o444)
    report = run_paths([str(tmp_path)], ConfigFinder(), fix=True)
    assert [str(one) for one in report.problems] == [f"{path}: is read-only; it was not fixed"]
    assert path.read_text() == PRELUDE + "bad()\n"
    assert report.fixed == 1 and [one.filename for one in report.findings] == [str(path)]


def test_a_file_that_changed_since_it_was_read_is_not_overwritten(tmp_path: Path) -> None:
    path = write(tmp_path, {"a.py": "new\n"}) / "a.py"
    with pytest.raises(atomic.WriteError, match="has changed"):
        atomic.replace_file(str(path), b"old\n", b"fixed\n")
    assert path.read_text() == "new\n" and os.listdir(tmp_path) == ["a.py"]


@pytest.mark.parametrize("call", ["fsync", "replace", "chmod"])
def test_a_full_disk_leaves_the_old_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    path = write(tmp_path, {"a.py": "old\n"}) / "a.py"
    monkeypatch.setattr(os, call, fail)
    with pytest.raises(atomic.WriteError, match="no space left"):
        atomic.replace_file(str(path), b"old\n", b"new\n")
    assert path.read_text() == "old\n" and os.listdir(tmp_path) == ["a.py"]


def test_an_interrupt_leaves_the_old_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*args: object) -> None:
        raise KeyboardInterrupt

    path = write(tmp_path, {"a.py": "old\n"}) / "a.py"
    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        atomic.replace_file(str(path), b"old\n", b"new\n")
    assert path.read_text() == "old\n" and os.listdir(tmp_path) == ["a.py"]


KILLED = """
import sys
from h2dlint.atomic import replace_file
path, old, new = sys.argv[1], b"a" * 100_000, b"b" * 100_000
print("ready", flush=True)
while True:
    replace_file(path, old, new)
    replace_file(path, new, old)
"""


def test_killed_at_random_moments_a_file_is_old_or_new(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(b"a" * 100_000)
    for turn in range(12):
        process = subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.004 * turn + 0.001)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        assert path.read_bytes() in (b"a" * 100_000, b"b" * 100_000)
        path.write_bytes(b"a" * 100_000)
    atomic.sweep(atomic.find_strays([str(tmp_path)]))
    assert os.listdir(tmp_path) == ["a.py"]


def test_the_next_run_sweeps_up_what_a_dead_one_left(tmp_path: Path) -> None:
    process = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    dead, alive = int(process.stdout), os.getppid()
    write(
        tmp_path,
        {
            f".h2dlint-{dead}-00aa.tmp": "",
            f"in/.h2dlint-{dead}-00aa.tmp": "",
            f".h2dlint-{alive}-00aa.tmp": "",
            "in/a.py": "x = 1\n",
        },
    )
    run_paths([str(tmp_path)], ConfigFinder())
    assert len(os.listdir(tmp_path)) == 3, "a run that only looks removes nothing"
    run_paths([str(tmp_path)], ConfigFinder(), fix=True)
    assert sorted(os.listdir(tmp_path)) == [f".h2dlint-{alive}-00aa.tmp", "in"]
    assert os.listdir(tmp_path / "in") == ["a.py"]


def test_jobs_change_nothing_in_the_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-ins live in this process and its forks only, so the pool is made to fork."""
    import multiprocessing
    from concurrent import futures

    pool = futures.ProcessPoolExecutor
    fork = multiprocessing.get_context("fork")
    monkeypatch.setattr(futures, "ProcessPoolExecutor", lambda number, **more: pool(number, mp_context=fork, **more))
    files: dict[str, str | bytes] = {f"p{n % 5}/m{n}.py": PRELUDE + "bad()\n" * (n % 3) for n in range(40)}
    write(tmp_path, {**files, "broken.py": PRELUDE + "(\n"})
    assert lint_paths([tmp_path], jobs=1) == lint_paths([tmp_path], jobs=3)


def test_nothing_found_in_nothing(tmp_path: Path) -> None:
    assert lint_paths([tmp_path]) == engine.Report()
    assert lint_paths([]) == engine.Report()


def test_the_public_names_are_there() -> None:
    assert h2dlint.lint_source is lint_source
    assert h2dlint.fix_source is fix_source
    assert h2dlint.lint_paths is lint_paths
    assert all(hasattr(h2dlint, name) for name in h2dlint.__all__)
    with pytest.raises(AttributeError):
        h2dlint.nothing  # noqa: B018
    with pytest.raises(h2dlint.SourceError):
        lint_source("def f(:\n")
