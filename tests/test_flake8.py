"""The plugin inside a real flake8: the same findings as the command line, and never a crash."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest
from front_helpers import PRELUDE, run, write

from h2dlint.flake8_plugin import Plugin

pytest.importorskip("flake8")

CODE = "import torch\n\n\ndef f():\n    x = torch.zeros(1_000_000)\n    return x.to('cuda', non_blocking=True){}\n"
FINDING = CODE.format("")
OPT_IN = "import torch\n\n\ndef forward(n):\n    return [torch.tensor([i], device='cuda') for i in range(n)]\n"


def flake8(*arguments: str, cwd: Path, data: bytes | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flake8", *arguments]
    done = subprocess.run(command, cwd=cwd, input=data, capture_output=True, timeout=120)
    return subprocess.CompletedProcess(command, done.returncode, done.stdout.decode(), done.stderr.decode())


def found(*arguments: str, cwd: Path, data: bytes | None = None) -> list[str]:
    """`path:row:column: code` of each finding of ours."""
    done = flake8("--isolated", *arguments, cwd=cwd, data=data)
    assert done.stderr == ""
    return [" ".join(line.split(" ")[:2]) for line in done.stdout.splitlines() if " HTD" in line]


def test_finds_what_the_command_line_finds(tmp_path: Path) -> None:
    odd = "import torch\nx = torch.zeros(1_000_000)\n\n\ndef é():\n    'é'; x.to('cuda', non_blocking=True)\n"
    write(tmp_path, {"a.py": FINDING, "b/c.py": odd, "d.py": CODE.format("  # noqa: HTD103"), "e.py": "x = 1\n"})
    ours = run("--output-format", "concise", "-q", ".", cwd=tmp_path).stdout.decode().splitlines()
    ours = [" ".join(line.split(" ")[:2]) for line in ours]
    assert len(ours) == 2
    assert sorted(line.removeprefix("./") for line in found(".", cwd=tmp_path)) == ours
    serial = found("--jobs=1", ".", cwd=tmp_path)
    assert serial == found("--jobs=2", ".", cwd=tmp_path)
    assert found("a.py", cwd=tmp_path) == ours[:1]


def test_stdin(tmp_path: Path) -> None:
    assert found("-", cwd=tmp_path, data=FINDING.encode()) == ["stdin:6:12: HTD103"]
    named = found("--stdin-display-name=x/y.py", "-", cwd=tmp_path, data=FINDING.encode())
    assert named == ["x/y.py:6:12: HTD103"]


@pytest.mark.parametrize(
    "arguments",
    [["--extend-select=HTD3"], ["--select=HTD"], ["--select=HTD301"], ["--extend-select=HTD3", "--ignore=E501"],
     ["--extend-select=HTD301", "--ignore=E,W", "--jobs=2"]],
)  # fmt: skip
def test_opt_in_rules_run_when_flake8_is_asked_to(tmp_path: Path, arguments: list[str]) -> None:
    write(tmp_path, {"a.py": OPT_IN, "b.py": "x = 1\n"})
    assert [line.split(" ")[1] for line in found(*arguments, ".", cwd=tmp_path)] == ["HTD301"]


@pytest.mark.parametrize("arguments", [[], ["--ignore=E501"], ["--extend-ignore=E501"], ["--select=E,F"]])
def test_opt_in_rules_are_silent_otherwise(tmp_path: Path, arguments: list[str]) -> None:
    write(tmp_path, {"a.py": OPT_IN})
    assert found(*arguments, ".", cwd=tmp_path) == []


def test_the_projects_own_table_counts(tmp_path: Path) -> None:
    write(tmp_path, {"on/pyproject.toml": "[tool.h2dlint]\nextend-select = ['HTD3']\n", "on/a.py": OPT_IN,
                     "off/pyproject.toml": "[tool.h2dlint]\nignore = ['HTD103']\n", "off/a.py": FINDING})  # fmt: skip
    assert [line.split(" ")[1] for line in found("--ignore=E501", ".", cwd=tmp_path)] == ["HTD301"]


SPOKEN = ["", "  # noqa: E501", "  # noqa: htd103", "  #noqa"]
SILENCED = ["  # noqa", "  # noqa: HTD103", "  # noqa:HTD1", "  # NOQA : HTD103", "  # noqa: E501,HTD103"]
HEADS = ["# flake8: noqa\n", "  # flake8=NOQA\n", "x = 1  # flake8: noqa\n", "# flake8: noqa: E501\n", "# noqa\n"]


def test_noqa_means_the_same_in_both(tmp_path: Path) -> None:
    write(tmp_path, {f"line{number}.py": CODE.format(comment) for number, comment in enumerate(SPOKEN + SILENCED)})
    ours = run("-q", "--output-format", "concise", ".", cwd=tmp_path).stdout.decode().splitlines()
    ours = [line.split(":")[0] for line in ours]
    assert ours == [f"line{number}.py" for number in range(len(SPOKEN))]
    assert sorted(line.split(":")[0].removeprefix("./") for line in found(".", cwd=tmp_path)) == ours
    assert len(found("--disable-noqa", ".", cwd=tmp_path)) == len(SPOKEN + SILENCED)


def test_the_file_level_form_means_the_same_in_both(tmp_path: Path) -> None:
    write(tmp_path, {f"head{number}.py": head + FINDING for number, head in enumerate(HEADS)})
    ours = run("-q", "--output-format", "concise", ".", cwd=tmp_path).stdout.decode().splitlines()
    theirs = sorted(line.split(":")[0].removeprefix("./") for line in found(".", cwd=tmp_path))
    assert theirs == [line.split(":")[0] for line in ours] != []


def test_noqa_counts_on_the_last_line_of_a_statement(tmp_path: Path) -> None:
    call = "x.to(\n        'cuda',\n        non_blocking=True,\n    )"
    write(tmp_path, {"a.py": FINDING.replace("x.to('cuda', non_blocking=True)", f"{call}  # noqa: HTD103")})
    assert found("a.py", cwd=tmp_path) == []
    write(tmp_path, {"a.py": FINDING.replace("x.to('cuda', non_blocking=True)", call)})
    assert len(found("a.py", cwd=tmp_path)) == 1


def test_a_spawned_worker_knows_the_options(tmp_path: Path) -> None:
    """What flake8 does under spawn: a new interpreter parses the options again."""
    script = (
        "import multiprocessing, sys\nfrom flake8.main.cli import main\n"
        "if __name__ == '__main__':\n    multiprocessing.set_start_method('spawn')\n"
        "    sys.exit(main(['--isolated', '--jobs=2', '--extend-select=HTD3', 'a.py', 'b.py']))\n"
    )
    write(tmp_path, {"a.py": OPT_IN, "b.py": FINDING, "go.py": script})
    done = subprocess.run([sys.executable, "go.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert "a.py:5:13: HTD301" in done.stdout and "b.py:6:12: HTD103" in done.stdout, done


def test_a_run_without_nominees_imports_no_libcst(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": "import torch\nx = torch.zeros(3).to('cpu')\n"})
    script = (
        "import sys\nfrom flake8.main.cli import main\nmain(['--isolated', '--jobs=1', 'a.py'])\n"
        "print({'libcst', 'torch'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "set()"


@pytest.mark.parametrize(
    ("name", "data"),
    [("syntax.py", b"def f(:\n"), ("latin.py", b"non_blocking = '\xe9'\n"), ("empty.py", b""),
     ("deep.py", b"non_blocking = " + b"(" * 90 + b"x" + b".y" * 200 + b")" * 90 + b"\n"),
     ("crlf.py", FINDING.replace("\n", "\r\n").encode()), ("bom.py", b"\xef\xbb\xbf" + FINDING.encode()),
     ("cookie.py", b"# coding: latin-1\n# \xe9\n" + FINDING.encode())],
)  # fmt: skip
def test_odd_files_never_end_the_run(tmp_path: Path, name: str, data: bytes) -> None:
    write(tmp_path, {name: data, "z.py": FINDING})
    done = flake8("--isolated", ".", cwd=tmp_path)
    assert done.returncode == 1 and "z.py:6:12: HTD103" in done.stdout
    assert "Traceback" not in done.stderr and "flake8.exceptions" not in done.stderr
    if FINDING.splitlines()[0].encode() in data:
        assert f"{name}:" in done.stdout and done.stdout.count("HTD103") == 2


def plugin(text: str) -> Plugin:
    return Plugin(ast.parse(text), text.splitlines(keepends=True), "a.py")


@pytest.mark.parametrize("error", [RecursionError(), MemoryError(), KeyError("x"), AssertionError()])
def test_run_never_raises(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    fake_rules: None,
    error: Exception,
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise error

    monkeypatch.setattr(Plugin, "engine", None)
    monkeypatch.setattr("h2dlint.engine.Engine.lint", fail)
    assert list(plugin(PRELUDE + "bad()\n").run()) == []
    monkeypatch.setattr("h2dlint.engine.attempt", fail)
    assert list(plugin(PRELUDE + "bad()\n").run()) == []
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_columns_count_from_zero_and_the_code_leads(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    fake_rules: None,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Plugin, "engine", None)
    ((row, column, text, kind),) = plugin(PRELUDE + "é = bad()\n").run()
    assert (row, column, text, kind) == (2, 5, "HTD101 bad() holds the host", Plugin)


def test_options_are_read_from_what_flake8_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Plugin, "asked", ())
    monkeypatch.setattr(Plugin, "disable_noqa", False)
    Plugin.parse_options(types.SimpleNamespace(select=None, extend_select=["HTD3", "B9"], disable_noqa=True))  # type: ignore[arg-type]
    assert Plugin.asked == ("HTD3",) and Plugin.disable_noqa
    Plugin.parse_options(types.SimpleNamespace(select=["E"]))  # type: ignore[arg-type]
    assert Plugin.asked == () and not Plugin.disable_noqa


def test_the_entry_point_is_a_code_that_flake8_takes() -> None:
    from importlib.metadata import entry_points

    ours = [point for point in entry_points(group="flake8.extension") if point.value.startswith("h2dlint.")]
    if not ours:
        pytest.skip("h2dlint is not installed here, only importable")
    assert [(point.name, point.load()) for point in ours] == [("HTD", Plugin)]
    assert os.path.basename(sys.modules["h2dlint.flake8_plugin"].__file__ or "") == "flake8_plugin.py"
