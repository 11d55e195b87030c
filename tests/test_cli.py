"""The command line: options, output streams and exit statuses, with stand-in rules; and as a process of its own."""

from __future__ import annotations

import ast
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from front_helpers import PRELUDE, run, write

from h2dlint import cli

BAD = PRELUDE + "bad()\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake_rules: None) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    return tmp_path


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """(exit status, stdout, stderr)."""
    try:
        status = cli.main(arguments)
    except SystemExit as stop:
        status = int(stop.code or 0)
    out, err = capsys.readouterr()
    return status, out, err


STATUSES = [
    ({}, [], 0),
    ({"a.py": "x = 1\n"}, [], 0),
    ({"a.py": BAD}, [], 1),
    ({"a.py": BAD}, ["check"], 1),
    ({"a.py": BAD}, ["--exit-zero"], 0),
    ({"a.py": BAD}, ["--ignore", "HTD1"], 0),
    ({"a.py": BAD}, ["--select=HTD2"], 0),
    ({"a.py": BAD}, ["--exclude", "a.py"], 0),
    ({"a.py": BAD}, ["--extend-exclude", "b,a.*"], 0),
    ({"a.py": BAD}, ["--per-file-ignores", "a.py:HTD2,HTD101"], 0),
    ({"a.py": BAD}, ["--per-file-ignores", "b.py:HTD101"], 1),
    ({"a.py": BAD}, ["--fix"], 0),
    ({"a.py": BAD}, ["--fix", "--exit-non-zero-on-fix"], 1),
    ({"a.py": BAD}, ["--fix", "--unfixable", "HTD101"], 1),
    ({"a.py": BAD}, ["--diff"], 1),
    ({"a.py": BAD}, ["--diff", "--exit-zero"], 0),
    ({"a.py": "x = 1\n"}, ["--diff"], 0),
    ({"a.py": PRELUDE + "risky()\n"}, ["--fix"], 1),
    ({"a.py": PRELUDE + "risky()\n"}, ["--fix", "--unsafe-fixes"], 0),
    ({"a.py": PRELUDE + "risky()\n"}, ["--fix", "--extend-safe-fixes", "HTD102"], 0),
    ({"a.py": PRELUDE + "risky()\n"}, ["--fix-only"], 0),
    ({"a.py": PRELUDE + "cold()\n"}, [], 0),
    ({"a.py": PRELUDE + "cold()\n"}, ["--include-cold"], 1),
    ({"a.py": PRELUDE + "small()\n"}, ["--include-small"], 1),
    ({"a.py": PRELUDE + "held()\n"}, ["--extend-select", "HTD3"], 1),
    ({"a.py": "good()  # noqa: HTD101\n"}, ["--report-unused-noqa"], 1),
    ({"a.py": PRELUDE + "bad()  # noqa\n"}, ["--disable-noqa"], 1),
    ({"a.py": BAD, "pyproject.toml": "[tool.h2dlint]\nignore = ['HTD1']\n"}, [], 0),
    ({"a.py": BAD, "pyproject.toml": "[tool.h2dlint]\nignore = ['HTD1']\n"}, ["--isolated"], 1),
    ({"a.py": BAD, "x.toml": "[tool.h2dlint]\nignore = ['HTD1']\n"}, ["--config", "x.toml"], 0),
    ({"a.py": BAD}, ["--no-cache", "--jobs", "2", "--quiet"], 1),
]


@pytest.mark.parametrize(("files", "arguments", "status"), STATUSES)
def test_exit_status(
    here: Path, capsys: pytest.CaptureFixture[str], files: dict[str, str | bytes], arguments: list[str], status: int
) -> None:
    write(here, files)
    assert call(capsys, *arguments)[0] == status


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--select", "HTD9"], "unknown rule code 'HTD9'"),
        (["--ignore", "E501"], "unknown rule code 'E501'"),
        (["--nonsense"], "--nonsense"),
        (["--output-format", "xml"], "xml"),
        (["--jobs", "0"], "expected a number from 1"),
        (["--per-file-ignores", "a.py"], "expected PATTERN:CODE"),
        (["--config", "absent.toml"], "absent.toml"),
        (["--output-file", "absent/x"], "absent/x: cannot be written"),
        (["absent.py"], "absent.py: cannot be read: no such file or directory"),
        (["rule"], "expected a rule code or --all"),
        (["rule", "HTD999"], "unknown rule code"),
        (["sites", "absent.py"], "absent.py: cannot be read"),
        (["sites", "--observed", "absent.json"], "absent.json"),
    ],
)
def test_a_failed_run_says_why_in_one_line(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    status, _, err = call(capsys, *arguments)
    lines = err.splitlines()
    assert status == 2 and len(lines) == 1 and words in lines[0] and lines[0].startswith("h2dlint")


def test_the_full_format_and_the_summary(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(here, {"a.py": BAD + "risky()\n"})
    status, out, err = call(capsys)
    assert status == 1 and err == ""
    lines = out.splitlines()
    assert lines[0] == "a.py:2:1: HTD101 bad() holds the host"
    assert "2 | bad()" in lines and "  | ^^^^^" in lines
    assert "  = a.py:1: made here" in lines
    assert "  = fix (safe): write good(non_blocking)" in lines
    assert "  = fix (unsafe: another thread may write it): write good(non_blocking)" in lines
    assert lines[-1] == "Found 2 findings (1 fixable with --fix, 1 with --unsafe-fixes)."
    assert "Found" not in call(capsys, "--quiet")[1]


def test_formats_keep_stdout_for_themselves(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(here, {"a.py": BAD})
    _, out, err = call(capsys, "--output-format", "json")
    assert [one["code"] for one in json.loads(out)] == ["HTD101"] and "Found 1 finding" in err
    _, out, _ = call(capsys, "--output-format", "concise")
    assert out == "a.py:2:1: HTD101 bad() holds the host\n"
    call(capsys, "--output-format", "json", "--output-file", "out.json")
    assert json.loads((here / "out.json").read_text())[0]["code"] == "HTD101"


def test_colour(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(here, {"a.py": BAD})
    assert "\033[" not in call(capsys)[1]
    assert "\033[" in call(capsys, "--color", "always")[1]
    assert "\033[31m-bad()" in call(capsys, "--color", "always", "--diff")[1]


def test_statistics(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(here, {"a.py": BAD * 10 + "race()\n"})
    assert call(capsys, "--statistics", "-q")[1] == "10\tHTD101\trule-htd101\n 1\tHTD202\trule-htd202\n"


def test_fixing_reports_what_is_left(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(here, {"a.py": BAD + "risky()\nstays()\n"})
    status, out, err = call(capsys, "--fix")
    assert status == 1
    assert (here / "a.py").read_text() == PRELUDE + "good(non_blocking)\nrisky()\nstays()\n"
    assert out.splitlines()[-1] == "1 fixed, 2 left (1 need --unsafe-fixes)."
    assert err == "h2dlint: warning: a.py:4: the fix of HTD102 was taken back: HTD102 would still be there\n"
    assert "good(non_blocking)" not in call(capsys, "--fix-only", "-q")[1]


DIFFED = {
    "plain.py": BAD,
    "with blank.py": BAD,
    "deep/no_end.py": PRELUDE + "x = 1\nbad()",
    "crlf.py": BAD.replace("\n", "\r\n"),
    "mixed.py": "non_blocking = 1\r\nx = 1\nbad()\ny = 2\r\n",
    "latin.py": b"# coding: latin-1\nnon_blocking = '\xe9'\nbad()  # \xe9\n",
    "bom.py": b"\xef\xbb\xbf" + BAD.encode(),
    "grows.py": PRELUDE + "def f():\n    x = 1\n" + "lines()\n" + "y = 1\n" * 20 + "lines()\n",
}


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_diff_applies_with_git_and_is_what_fix_does(here: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    write(here, {"fixed/" + name: data for name, data in DIFFED.items()})
    write(here, {"diffed/" + name: data for name, data in DIFFED.items()})
    os.chdir(here / "diffed")
    assert cli.main(["--diff", "--quiet"]) == 1
    diff = capfdbinary.readouterr().out
    assert (here / "diffed/plain.py").read_text() == BAD
    subprocess.run(["git", "init", "-q"], check=True)
    applied = subprocess.run(["git", "apply", "--whitespace=nowarn", "-"], input=diff, capture_output=True)
    assert applied.returncode == 0, applied.stderr
    assert cli.main(["--fix", "--quiet", str(here / "fixed")]) == 0
    for name in DIFFED:
        assert (here / "diffed" / name).read_bytes() == (here / "fixed" / name).read_bytes() != DIFFED[name]


def test_a_diff_tells_on_stderr_what_it_mends(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(here, {"a.py": BAD + "risky()\n"})
    _, out, err = call(capsys, "--diff")
    assert out.startswith("--- a/a.py\n+++ b/a.py\n@@ ")
    assert err.splitlines() == [
        "a.py:2:1: HTD101 bad() holds the host",
        "a.py:3:1: HTD102 risky() holds the host",
        "1 would be fixed, 1 left (1 need --unsafe-fixes).",
    ]


def feed(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_stdin(here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    feed(monkeypatch, BAD.encode())
    assert call(capsys, "-", "--output-format", "concise", "-q")[:2] == (
        1,
        "<stdin>:2:1: HTD101 bad() holds the host\n",
    )
    feed(monkeypatch, BAD.encode())
    assert call(capsys, "-", "--fix", "-q") == (0, PRELUDE + "good(non_blocking)\n", "")
    feed(monkeypatch, BAD.encode())
    status, out, err = call(capsys, "-", "--diff", "--stdin-filename", "x/y.py")
    assert status == 1 and out.startswith("--- a/x/y.py\n") and "x/y.py:2:1: HTD101" in err
    feed(monkeypatch, b"non_blocking = (\n")
    status, out, err = call(capsys, "-", "--fix")
    assert status == 2 and out == "non_blocking = (\n" and "<stdin>:1: syntax error" in err


def test_stdin_uses_the_options_of_its_name(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(here, {"in/pyproject.toml": "[tool.h2dlint]\nignore = ['HTD101']\nextend-exclude = ['gone.py']\n"})
    feed(monkeypatch, BAD.encode())
    assert call(capsys, "-", "--stdin-filename", "in/a.py")[0] == 0
    feed(monkeypatch, BAD.encode() + b"race()\n")
    assert call(capsys, "-", "--stdin-filename", "in/a.py")[0] == 1
    feed(monkeypatch, BAD.encode() + b"race()\n")
    assert call(capsys, "-", "--stdin-filename", "in/gone.py")[0] == 0


def test_add_noqa(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(here, {"a.py": BAD + "race()\n", "b.py": "x = 1\n"})
    assert call(capsys, "--add-noqa") == (0, "Added noqa comments for 2 findings.\n", "")
    assert (here / "a.py").read_text() == PRELUDE + "bad()  # noqa: HTD101\nrace()  # noqa: HTD202\n"
    assert call(capsys)[0] == 0


SITE_KEYS = {
    "filename", "row", "end_row", "column", "operation", "direction", "memory", "layout", "verdict", "codes", "cold",
    "small", "reason", "evidence",
}  # fmt: skip


def test_sites(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(here, {"a.py": PRELUDE + "cold()  # noqa\nheld()\n", "b.py": PRELUDE + "(\n"})
    status, out, err = call(capsys, "sites", "--output-format", "json", ".")
    sites = json.loads(out)
    assert status == 0 and "b.py:2: syntax error" in err
    assert [(site["row"], site["codes"], site["cold"]) for site in sites] == [
        (2, ["HTD101"], True),
        (3, ["HTD301"], False),
    ]
    assert all(set(site) == SITE_KEYS for site in sites)
    _, out, _ = call(capsys, "sites")
    assert out.splitlines()[0] == "a.py:2:1: blocks: to h2d pageable contiguous: the memory is pageable [HTD101 cold]"
    _, out, _ = call(capsys, "sites", "--output-format", "summary")
    assert out.splitlines()[0] == "2 sites in 1 files"


def test_an_interrupt_is_one_line(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "run_paths", interrupt)
    assert call(capsys, ".") == (130, "", "h2dlint: interrupted\n")


def test_help_and_version_exit_with_zero(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--help"], ["--version"], ["sites", "--help"], ["rule", "--help"]):
        status, out, _ = call(capsys, *arguments)
        assert status == 0 and "h2dlint" in out


SLOW = {"torch", "libcst", "numpy", "concurrent.futures", "multiprocessing", "unittest"}


def test_a_run_that_nominates_nothing_stays_lean(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": "import torch\nx = torch.zeros(3).to('cpu')\n"})
    script = f"import sys; from h2dlint.cli import main; main(['.']); print({SLOW!r} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "set()", done.stderr


def test_as_a_process(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": "x = 1\n", "ü.py": "def f(:\n"})
    assert run(cwd=tmp_path).returncode == 0
    assert run("--version", cwd=tmp_path).stdout.startswith(b"h2dlint ")
    done = run("ü.py", cwd=tmp_path, env={**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 2 and b"syntax error" in done.stderr and b"Traceback" not in done.stderr
    assert run("-", cwd=tmp_path, data=b"").returncode == 0


def test_a_reader_that_goes_away_is_no_crash(tmp_path: Path) -> None:
    script = f"{sys.executable} -m h2dlint rule --all | head -c 1 >/dev/null; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert "Traceback" not in done.stderr and "Exception" not in done.stderr


def test_rules_explain_themselves(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = call(capsys, "rule", "HTD101")
    assert status == 0 and out.startswith("# HTD101 strided-copy (on by default)")
    status, out, _ = call(capsys, "rule", "--all", "--output-format", "json")
    rules = json.loads(out)
    assert [rule["code"] for rule in rules] == sorted(rule["code"] for rule in rules)
    assert {rule["code"]: rule["default"] for rule in rules}["HTD301"] is False


def test_the_parser_names_every_option_of_the_contract() -> None:
    contract = (
        "--fix --diff --unsafe-fixes --fix-only --select --extend-select --ignore --per-file-ignores --exclude "
        "--output-format --output-file --statistics --add-noqa --include-cold --include-small --jobs --no-cache "
        "--isolated --config --stdin-filename --exit-zero --quiet --version --exit-non-zero-on-fix --extend-exclude "
        "--color --report-unused-noqa"
    ).split()
    assert set(contract) <= set(cli.build_parser()._option_string_actions)


def test_stages_import_only_what_lies_above_them() -> None:
    """The fronts may import the engine; the engine and what it stands on import no front."""
    package = Path(cli.__file__).parent
    fronts = {"cli", "flake8_plugin", "report", "listing", "runtime"}
    for name in ("source", "config", "discover", "noqa", "atomic", "engine"):
        tree = ast.parse((package / f"{name}.py").read_text())
        imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert not {f"h2dlint.{front}" for front in fronts} & imported, name
