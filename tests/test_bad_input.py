"""Bad input as a user meets it: one clear line each, status 2 where it was named, the rest linted, nothing changed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from front_helpers import run, write

from h2dlint.config import Config
from h2dlint.engine import lint_source

FINDING = "import torch\n\n\ndef f():\n    x = torch.zeros(1_000_000)\n    return x.to('cuda', non_blocking=True)\n"
BAD_FILES: dict[str, tuple[bytes, str]] = {
    "syntax.py": (b"non_blocking = 1\ndef f(:\n", "syntax error"),
    "nulls.py": (b"non_blocking = 1\nx\0\n", "null byte"),
    "latin.py": (b"non_blocking = '\xe9'\n", "no encoding is declared"),
    "cookie.py": (b"# coding: nonsense\nnon_blocking = 1\n", "encoding"),
    "deep.py": (b"non_blocking = " + b"(" * 3000 + b")" * 3000 + b"\n", "nested|syntax error"),
    "unary.py": (b"non_blocking = 1\nx = " + b"-" * 20_000 + b"1\n", "nested|syntax error"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_one_line_and_the_rest_is_linted(tmp_path: Path, name: str) -> None:
    data, words = BAD_FILES[name]
    write(tmp_path, {name: data, "good.py": FINDING})
    for arguments, status in ([name, "good.py"], 2), (["."], 1):
        done = run("--output-format", "concise", "--quiet", *arguments, cwd=tmp_path)
        lines = done.stderr.decode().splitlines()
        assert done.returncode == status and len(lines) == 1, done.stderr
        assert name in lines[0] and any(word in lines[0] for word in words.split("|"))
        assert done.stdout.startswith(b"good.py:6:")
    done = run("--fix", "--unsafe-fixes", "--quiet", name, cwd=tmp_path)
    assert done.returncode == 2 and (tmp_path / name).read_bytes() == data


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xef\xbb\xbf",
        b"x = 1",
        b"\x0cx = 1\n\x0c\n",
        b"# coding: latin-1\nx = '\xe9'\n",
        b"\xef\xbb\xbfx = 1\r\n",
        b"x = 1\ry = 2\r",
        b"\n\n\n",
        b"#",
    ],
)
def test_odd_files_are_fine(tmp_path: Path, data: bytes) -> None:
    write(tmp_path, {"odd.py": data})
    done = run("odd.py", cwd=tmp_path)
    assert done.returncode == 0 and done.stderr == b""


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", [True, False])
def test_findings_stand_where_they_stand_in_every_encoding(newline: str, bom: bytes, end: bool) -> None:
    text = FINDING.replace("    return", "    'é'\x0c; return") if end else FINDING.rstrip("\n")
    (finding,) = lint_source(bom + text.replace("\n", newline).encode(), config=Config())
    column = text.split("\n")[5].index("x.to") + 1
    assert (finding.code, finding.row, finding.column) == ("HTD103", 6, column)


def test_paths_that_are_not_there(tmp_path: Path) -> None:
    write(tmp_path, {"good.py": FINDING})
    (tmp_path / "dangling.py").symlink_to("absent")
    done = run("absent.py", "dangling.py", "good.py", "-q", cwd=tmp_path)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 2
    assert b"HTD103" in done.stdout
    done = run("-q", cwd=tmp_path)
    assert done.returncode == 1 and b"dangling.py" in done.stderr


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_folder_without_permission(tmp_path: Path) -> None:
    write(tmp_path, {"good.py": FINDING, "locked/a.py": FINDING})
    (tmp_path / "locked").chmod(0)
    try:
        done = run("-q", cwd=tmp_path)
    finally:
        (tmp_path / "locked").chmod(0o700)
    assert done.returncode == 2 and b"locked: cannot be read: permission denied" in done.stderr
    assert b"good.py" in done.stdout


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("selct = []", "selct"),
        ("select = 3", "list of rule codes"),
        ("select = ['HTD9']", "HTD9"),
        ("[", "not valid TOML"),
    ],
)
def test_a_bad_configuration(tmp_path: Path, table: str, words: str) -> None:
    write(tmp_path, {"pyproject.toml": f"[tool.h2dlint]\n{table}\n", "a.py": FINDING})
    done = run(cwd=tmp_path)
    lines = done.stderr.decode().splitlines()
    assert done.returncode == 2 and len(lines) == 1 and "pyproject.toml" in lines[0] and words in lines[0]


@pytest.mark.skipif(os.name == "nt", reason="no such signal")
def test_an_interrupted_fix_leaves_whole_files(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {f"m{number:03}.py": FINDING for number in range(60)}
    write(tmp_path, files)
    for wait in (0.25, 0.5, 0.8):
        process = subprocess.Popen(
            [sys.executable, "-m", "h2dlint", "--fix", "--unsafe-fixes", "-q", "."],
            cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        time.sleep(wait)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert b"Error" not in err or b"KeyboardInterrupt" in err
        for path in tmp_path.iterdir():
            assert path.name in files, "no temporary is left"
            compile(path.read_bytes(), path.name, "exec")
