"""The pre-commit hooks, run by a real pre-commit in a repository of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from front_helpers import write

pytest.importorskip("pre_commit")
yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parent.parent
MANIFEST = ROOT / ".pre-commit-hooks.yaml"
FINDING = "import torch\n\n\ndef f():\n    x = torch.zeros(1_000_000)\n    return x.to('cuda', non_blocking=True)\n"

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def start(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("GIT_", "PRE_COMMIT"))}
    clean["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{clean['PATH']}"
    clean |= {f"GIT_{role}_{what}": "x@y" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    return subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, timeout=500)


def pre_commit(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return start(sys.executable, "-m", "pre_commit", *arguments, cwd=cwd)


def read_hooks() -> list[dict[str, Any]]:
    hooks: list[dict[str, Any]] = yaml.safe_load(MANIFEST.read_text())
    return hooks


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose configuration runs the manifest's hooks with the h2dlint of this interpreter."""
    if not (Path(sys.executable).parent / "h2dlint").exists():
        pytest.skip("h2dlint is not installed here, only importable")
    hooks = [{**hook, "language": "system"} for hook in read_hooks()]
    folder = tmp_path / "repository"
    config = yaml.safe_dump({"repos": [{"repo": "local", "hooks": hooks}]})
    write(folder, {".pre-commit-config.yaml": config, "a.py": FINDING, "b.py": "x = 1\n", "c.txt": "non_blocking\n",
                   "gen/d.py": FINDING, "pyproject.toml": "[tool.h2dlint]\nextend-exclude = ['gen']\n"})  # fmt: skip
    monkeypatch.setenv("PRE_COMMIT_HOME", str(tmp_path / "home"))
    start("git", "init", "-q", cwd=folder)
    start("git", "add", ".", cwd=folder)
    return folder


def test_the_manifest_is_one() -> None:
    done = pre_commit("validate-manifest", str(MANIFEST), cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    hooks = {hook["id"]: hook for hook in read_hooks()}
    assert set(hooks) == {"h2dlint", "h2dlint-fix"}
    assert all(hook["require_serial"] and hook["types_or"] == ["python"] for hook in hooks.values())


@needs_git
def test_the_check_fails_on_a_finding_and_obeys_excludes(repository: Path) -> None:
    done = pre_commit("run", "h2dlint", "--all-files", cwd=repository)
    assert done.returncode == 1 and "a.py:6:12: HTD103" in done.stdout
    assert "gen/d.py" not in done.stdout
    assert (repository / "a.py").read_text() == FINDING


@needs_git
def test_the_fix_mends_the_file_and_then_passes(repository: Path) -> None:
    done = pre_commit("run", "h2dlint-fix", "--files", "a.py", "b.py", cwd=repository)
    assert done.returncode == 1 and "files were modified by this hook" in done.stdout, done.stdout
    fixed = (repository / "a.py").read_text()
    assert fixed != FINDING and "pin_memory" in fixed
    start("git", "add", ".", cwd=repository)
    done = pre_commit("run", "--all-files", cwd=repository)
    assert done.returncode == 0, done.stdout
    assert (repository / "a.py").read_text() == fixed
    assert (repository / "gen/d.py").read_text() == FINDING


@needs_git
def test_no_files_are_fine(repository: Path) -> None:
    assert pre_commit("run", "h2dlint", "--files", "c.txt", cwd=repository).returncode == 0


@needs_git
@pytest.mark.slow
def test_the_repository_installs_as_a_hook(repository: Path, tmp_path: Path) -> None:
    """What a user's pre-commit does: clone, make an environment, install, run."""
    clone = tmp_path / "clone"
    names = [".pre-commit-hooks.yaml", "pyproject.toml", "README.md", "LICENSE", "h2dlint"]
    for name in names:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, clone / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            clone.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, clone / name)
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "snapshot"]):
        assert start("git", *command, cwd=clone).returncode == 0
    done = pre_commit("try-repo", str(clone), "h2dlint", "--files", "a.py", cwd=repository)
    if "An unexpected error has occurred" in done.stdout and "pip" in done.stdout:
        pytest.skip("packages cannot be installed here")
    assert done.returncode == 1 and "a.py:6:12: HTD103" in done.stdout, done.stdout
