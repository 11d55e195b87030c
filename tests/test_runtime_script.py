"""`h2dlint watch`, the pytest plugin, and the join with static sites, as users run them."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from h2dlint.model import Site, Verdict
from h2dlint.runtime.observation import Observation
from h2dlint.runtime.observed import join, read, render
from h2dlint.runtime.report import render_json

ROOT = Path(__file__).parent.parent
BOOT = f"import sys; sys.path.insert(0, {str(ROOT)!r}); "
FAKE = """
import torch
torch.Tensor.is_cuda = property(lambda t: t.device.type == "meta")
torch.Tensor.is_pinned = lambda t: False
"""


def run(folder, *argv, program="", name="prog.py"):
    if program:
        (folder / name).write_text(textwrap.dedent(program))
    code = BOOT + "from h2dlint.runtime import watch_cli; sys.exit(watch_cli(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", code, *argv], cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )


class TestScript:
    """The program is real; `is_cuda` is faked inside it."""

    @pytest.fixture(autouse=True)
    def _torch(self):
        pytest.importorskip("torch")

    PROGRAM = (
        FAKE
        + """
import sys
print(sys.argv, __name__)
big = torch.zeros(100_000)
for _ in range(3):
    big.to("meta", non_blocking=True)
big.to("meta", non_blocking=True)
sys.exit(int(sys.argv[1]))
"""
    )

    def test_reports_after_the_program(self, tmp_path):
        ran = run(tmp_path, "--", "prog.py", "0", "--flag", program=self.PROGRAM)
        assert ran.stdout == "['prog.py', '0', '--flag'] __main__\n"
        assert "prog.py:10:5: HTD102/HTD103/HTD104 to h2d blocks, 3 times, 1.1 MiB" in ran.stderr
        assert "prog.py:11:1: HTD102/HTD103/HTD104 to h2d blocks, 1 times" in ran.stderr
        assert "(cold: it ran too seldom to count)" in ran.stderr
        assert ran.stderr.splitlines()[-1].startswith("h2dlint watch: 4 copies on 2 lines seen; 1 hold the host")
        assert ran.returncode == 1

    def test_json_goes_to_a_file_and_the_programs_exit_code_wins(self, tmp_path):
        ran = run(tmp_path, "--output-format", "json", "--output-file", "w.json", "prog.py", "7", program=self.PROGRAM)
        assert (ran.returncode, ran.stderr) == (7, "")
        rows = read(str(tmp_path / "w.json"))
        assert [(row.row, row.count, row.found) for row in sorted(rows, key=lambda row: row.row)] == [
            (10, 3, True),
            (11, 1, False),
        ]

    def test_exit_zero_and_from_call(self, tmp_path):
        assert run(tmp_path, "--exit-zero", "prog.py", "0", program=self.PROGRAM).returncode == 0
        assert run(tmp_path, "--from-call", "4", "prog.py", "0").returncode == 0
        assert "; 2 hold" in run(tmp_path, "--from-call", "1", "prog.py", "0").stderr

    def test_error_mode_stops_the_program_with_a_traceback(self, tmp_path):
        ran = run(tmp_path, "--error", "prog.py", "0", program=self.PROGRAM)
        assert ran.returncode == 2
        assert "BlockingCopyError" in ran.stderr
        assert "prog.py:10: HTD102" in ran.stderr

    def test_a_program_that_raises_is_reported_all_the_same(self, tmp_path):
        ran = run(tmp_path, "prog.py", program="raise SystemExit('bye')")
        assert (ran.returncode, ran.stderr.splitlines()[0]) == (1, "bye")
        ran = run(tmp_path, "prog.py", program="1 / 0")
        assert ran.returncode == 2
        assert "ZeroDivisionError" in ran.stderr
        assert "0 copies on 0 lines" in ran.stderr

    def test_modules(self, tmp_path):
        ran = run(tmp_path, "-m", "prog", "0", program=self.PROGRAM)
        assert ran.returncode == 1
        assert "3 times" in ran.stderr

    def test_what_torch_cannot_be_imported_says_what_to_install(self, tmp_path):
        (tmp_path / "torch.py").write_text("raise ImportError('no torch here')")
        code = f"{BOOT}sys.path.insert(0, {str(tmp_path)!r}); "
        code += "from h2dlint.runtime import watch_cli; sys.exit(watch_cli(['prog.py']))"
        (tmp_path / "prog.py").write_text("")
        ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stderr.count("\n")) == (2, 1)
        assert "install torch" in ran.stderr

    def test_wrong_command_lines(self, tmp_path):
        for argv, message in (((), "name the script"), (("--", "absent.py"), "no such script: absent.py")):
            ran = run(tmp_path, *argv)
            assert ran.returncode == 2
            assert message in ran.stderr

    PYTEST = (
        FAKE
        + """
import pytest

def copy():
    torch.zeros(100_000).to("meta", non_blocking=True)

def test_bad():
    copy()

@pytest.mark.h2dlint_allow("loads weights")
def test_allowed():
    copy()

def test_good():
    assert "to" in vars(torch.Tensor) or WATCHED is False

WATCHED = True
"""
    )

    @pytest.mark.parametrize(
        ("options", "code", "shown"),
        [
            ((), 1, "1 failed, 2 passed"),
            (("--h2dlint-watch",), 0, "3 passed"),
            (("--h2dlint-watch=error",), 1, "1 failed, 2 passed"),
        ],
    )
    def test_pytest_plugin(self, tmp_path, options, code, shown):
        """Without the option nothing is patched, so that only the test that looks for the patch fails."""
        (tmp_path / "test_it.py").write_text(self.PYTEST)
        plugin = () if _is_registered() else ("-p", "h2dlint.runtime.pytest_plugin")
        argv = ("-q", "-p", "no:cacheprovider", "--strict-markers", *plugin, *options)
        boot = BOOT + "import pytest; sys.exit(pytest.main(sys.argv[1:]))"
        ran = subprocess.run(
            [sys.executable, "-c", boot, *argv], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert ran.returncode == code, ran.stdout
        assert shown in ran.stdout
        if options == ("--h2dlint-watch",):
            assert "copies that held the host" in ran.stdout
            assert "test_it.py:9:5: HTD102" in ran.stdout
            assert "test_it.py::test_bad" in ran.stdout
            assert "test_allowed" not in ran.stdout
        if options == ("--h2dlint-watch=error",):
            assert "BlockingCopyError" in ran.stdout


def _is_registered():
    """Whether the package is installed, so that pytest finds the plugin by itself."""
    return any(each.name == "h2dlint" for each in entry_points(group="pytest11"))


def site(verdict, row=3, end=(3, 30), operation="to", filename="/src/a.py"):
    return Site(filename, row, 5, *end, operation, Verdict(verdict, "h2d", "reason"), "unknown", "unknown", True)


def seen(verdict, row=3, end=(3, 30), operation="to", size=100, filename="/src/a.py"):
    codes = ("HTD101",) if verdict == "blocks" else ()
    return Observation(
        filename, row, 5, *end, operation, "h2d", verdict, "why", codes, "pinned", "gapped", 2, size, 9000, 5000
    )


@pytest.mark.parametrize(
    ("static", "observed", "wrong"),
    [
        ("blocks", ["blocks"], False),
        ("blocks", ["async"], True),
        ("blocks", ["blocks", "async"], True),
        ("async", ["async"], False),
        ("async", ["blocks"], True),
        ("unknown", ["blocks", "async"], False),
        ("blocks", ["unknown"], False),
        ("async", [], False),
    ],
)
def test_contradictions_are_marked(static, observed, wrong):
    (row,) = join([site(static)], [seen(each) for each in observed])
    assert bool(row.contradiction) == wrong
    assert row.to_dict()["count"] == 2 * len(observed)
    assert render([row]).startswith("!! " if wrong else "   ")


def test_copies_of_nothing_prove_nothing():
    (row,) = join([site("blocks")], [seen("async", size=0)])
    assert row.contradiction == ""


def test_copies_belong_to_the_call_that_ends_where_they_end():
    sites = [site("async", end=(3, 20)), site("blocks", end=(3, 44)), site("blocks", row=9, end=(11, 6))]
    rows = join(sites, [seen("blocks", end=(3, 44)), seen("blocks", row=10, end=(11, 6))])
    assert [len(row.observed) for row in rows] == [0, 1, 1]
    assert not any(row.contradiction for row in rows)


def test_without_columns_the_row_and_the_operation_decide():
    sites = [site("blocks", row=3, end=(6, 2), operation="copy_"), site("async", row=4, end=(4, 9))]
    rows = join(sites, [seen("blocks", row=5, end=(5, 0), operation="copy_")])
    assert [len(row.observed) for row in rows] == [1, 0]


def test_an_assignment_is_found_by_its_target():
    (row,) = join([site("blocks", operation="setitem", end=(3, 40))], [seen("blocks", operation="setitem", end=(3, 9))])
    assert len(row.observed) == 1


def test_what_only_the_runtime_saw_is_listed_once_for_each_place():
    observed = [seen("blocks", row=8), seen("async", row=8), seen("blocks", row=9), seen("blocks", operation="sync")]
    rows = join([], observed)
    assert [(row.row, row.site, len(row.observed)) for row in rows] == [(8, None, 2), (9, None, 1)]
    assert "static not listed, observed async/blocks (4 times, 0.02 ms)" in render(rows)
    assert rows[0].to_dict()["static"] is None


def test_files_are_the_same_by_their_real_path(tmp_path):
    real = tmp_path / "a.py"
    real.write_text("")
    (tmp_path / "link.py").symlink_to(real)
    (row,) = join([site("blocks", filename=str(tmp_path / "link.py"))], [seen("blocks", filename=str(real))])
    assert len(row.observed) == 1


def test_reading_observations(tmp_path):
    pytest.importorskip("torch")
    path = tmp_path / "w.json"
    path.write_text(render_json([seen("blocks")]))
    assert read(str(path)) == [seen("blocks")]
    assert json.loads(path.read_text())["version"] == 1
