"""The walk, held against git's own where git is there, and the roots of imports."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest
from front_helpers import write

from h2dlint.discover import Found, compile_ignore, find_files, find_root, import_roots, matches

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def walk(
    *paths: str, exclude: tuple[str, ...] | None = None, extend: tuple[str, ...] = (), root: Path | None = None
) -> Found:
    return find_files(list(paths) or ["."], lambda folder: (exclude, extend, root or Path.cwd()))


def names(found: Found) -> list[str]:
    return [name for name, _ in found.files]


def git(*arguments: str, cwd: Path) -> str:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    clean |= {"HOME": str(cwd), "XDG_CONFIG_HOME": str(cwd), "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run(["git", *arguments], cwd=cwd, env=clean, capture_output=True, text=True, check=True).stdout


def ask_git(folder: Path) -> list[str]:
    listed = git("ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=folder).split("\0")
    return sorted(name for name in listed if name.endswith(".py"))


PATTERNS = [
    "*.py",
    "a",
    "/a",
    "a/",
    "a/b",
    "/a/b.py",
    "a/*",
    "a/**",
    "**/b",
    "**/b.py",
    "a/**/c.py",
    "!b.py",
    "!a/",
    "!a/b.py",
    "?.py",
    "[ab].py",
    "[!a].py",
    "[^a-b]*",
    "*b*",
    "b.py ",
    "b.py\\ ",
    "\\!x.py",
    "\\#x.py",
    "#x.py",
    "",
    "/",
    "!*/",
    "a**b.py",
    "**",
    "/**/c.py",
    "[]a].py",
    "[a",
    "x\\.py",
    "c.py/",
    "/*",
    "!/a",
    "a b.py",
    "*.[pq]y",
    "b?",
    "*/b.py",
]
FILES = ["a.py", "b.py", "c.py", "x.py", "!x.py", "#x.py", "a b.py", "b.py ", "ab.py", "].py", "[a.py"]
FOLDERS = ["", "a/", "b/", "a/b/", "a/a/", "b/a/b/", "c.py/"]


@needs_git
@pytest.mark.parametrize("seed", range(12))
def test_agrees_with_git_on_random_ignore_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    dice = random.Random(seed)
    git("init", "-q", cwd=tmp_path)
    for folder in FOLDERS:
        for name in FILES:
            if folder + name + "/" not in FOLDERS:
                write(tmp_path, {folder + name: ""})
    monkeypatch.chdir(tmp_path)
    places = [".git/info/exclude", ".gitignore", "a/.gitignore", "b/a/.gitignore"]
    for _ in range(12):
        for place in places:
            lines = dice.sample(PATTERNS, dice.randint(0, 4)) if dice.random() < 0.7 else []
            write(tmp_path, {place: "\n".join(lines)})
        expected = ask_git(tmp_path)
        rules = {place: Path(place).read_text() for place in places}
        assert names(walk(exclude=())) == expected, rules
        below = sorted(name for name in expected if name.startswith("a/"))
        if below:
            assert names(walk("a", exclude=())) == below, rules


@needs_git
def test_another_repository_inside_has_rules_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git("init", "-q", cwd=tmp_path)
    write(tmp_path, {".gitignore": "x.py\n", "in/x.py": "", "in/y.py": "", "in/.gitignore": "y.py\n", "x.py": ""})
    git("init", "-q", cwd=tmp_path / "in")
    monkeypatch.chdir(tmp_path)
    assert names(walk()) == ["in/x.py"]


@needs_git
def test_a_worktree_reads_the_exclude_file_of_its_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    main = write(tmp_path, {"main/a.py": ""}) / "main"
    git("init", "-q", cwd=main)
    git("add", ".", cwd=main)
    git("-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "m", cwd=main)
    git("worktree", "add", "-q", str(tmp_path / "tree"), cwd=main)
    write(tmp_path, {"main/.git/info/exclude": "b.py\n", "tree/b.py": "", "tree/c.py": ""})
    monkeypatch.chdir(tmp_path / "tree")
    assert names(walk()) == ["a.py", "c.py"]


def test_the_built_in_list_and_other_suffixes_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = ["a.py", "w.pyw", "notes.txt", "stub.pyi", ".venv/b.py", "node_modules/c.py", "d/build/e.py", "d/f.py"]
    write(tmp_path, dict.fromkeys(files, ""))
    monkeypatch.chdir(tmp_path)
    assert names(walk()) == ["a.py", "d/f.py", "w.pyw"]
    assert names(walk(extend=("d/",))) == ["a.py", "w.pyw"]
    assert ".venv/b.py" in names(walk(exclude=("d",)))


@pytest.mark.parametrize("ignored", ["gone.py", "*.py", "/sub/gone.py", "sub/"])
def test_named_files_are_linted_though_git_ignores_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ignored: str
) -> None:
    write(tmp_path, {".git/HEAD": "", ".gitignore": ignored, "sub/gone.py": "", "tool": ""})
    monkeypatch.chdir(tmp_path)
    assert walk("sub/gone.py", "tool").files == [("sub/gone.py", True), ("tool", True)]


def test_a_named_folder_of_the_built_in_list_is_walked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"build/b.py": "", "build/venv/c.py": ""})
    monkeypatch.chdir(tmp_path)
    assert walk("build").files == [("build/b.py", False)]


@pytest.mark.parametrize("pattern", ["gone.py", "sub", "sub/", "/sub", "sub/*", "**/gone.py", "sub/**"])
def test_named_files_obey_the_users_exclude(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str) -> None:
    write(tmp_path, {"sub/gone.py": "", "a.py": ""})
    monkeypatch.chdir(tmp_path)
    assert names(walk("sub/gone.py", "a.py", exclude=(pattern,))) == ["a.py"]
    assert names(walk(".", extend=(pattern,))) == ["a.py"]
    assert names(walk(str(tmp_path / "sub/gone.py"), extend=(pattern,))) == []


def test_troubles_are_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"a.py": ""})
    (tmp_path / "dangling.py").symlink_to("absent")
    os.mkfifo(tmp_path / "pipe.py")
    monkeypatch.chdir(tmp_path)
    assert names(walk()) == ["a.py"]
    assert walk().troubles == [("dangling.py", "is a symlink to nothing", False)]
    found = walk("absent.py", "dangling.py", "pipe.py", "a.py")
    assert names(found) == ["a.py"]
    assert found.troubles == [
        ("absent.py", "cannot be read: no such file or directory", True),
        ("dangling.py", "is a symlink to nothing", True),
        ("pipe.py", "is not a regular file", True),
    ]


def test_a_folder_that_cannot_be_read_is_one_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"a.py": "", "locked/b.py": ""})
    monkeypatch.chdir(tmp_path)
    scan = os.scandir

    def refuse(folder: str) -> object:
        if folder.endswith("locked"):
            raise PermissionError(13, "Permission denied")
        return scan(folder)

    monkeypatch.setattr(os, "scandir", refuse)
    found = walk()
    assert names(found) == ["a.py"]
    assert found.troubles == [("locked", "cannot be read: permission denied", True)]


def test_links_to_folders_are_not_followed_and_files_come_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"a/b.py": "", "z.py": "", "other/far.py": ""})
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "c.py").symlink_to("a/b.py")
    (tmp_path / "far.py").symlink_to("other/far.py")
    monkeypatch.chdir(tmp_path)
    assert names(walk()) == ["a/b.py", "other/far.py", "z.py"]
    assert names(walk("z.py", ".", "z.py", "./a")) == ["a/b.py", "other/far.py", "z.py"]
    assert names(walk("c.py")) == ["c.py"]
    assert [Path(name).name for name in names(walk(str(tmp_path)))] == ["b.py", "far.py", "z.py"]


def test_patterns_relative_to_the_configuration(tmp_path: Path) -> None:
    path = str(tmp_path / "tests/deep/a.py")
    assert matches(("tests/**",), path, tmp_path)
    assert matches(("a.py",), path, tmp_path)
    assert matches(("deep",), path, tmp_path)
    assert not matches(("/deep",), path, tmp_path)
    assert not matches(("tests/*.py",), path, tmp_path)
    assert matches(("tests/deep/*.py", "!tests/deep/b.py"), path, tmp_path)


def test_many_stars_do_not_hang() -> None:
    ignore = compile_ignore(["a" + "*" * 60 + "b", "*a" * 12 + "b"], "/")
    assert ignore.decide("/" + "a" * 40, False) is None


def test_import_roots(tmp_path: Path) -> None:
    write(
        tmp_path,
        dict.fromkeys(
            ["src/pkg/__init__.py", "src/pkg/sub/__init__.py", "src/pkg/sub/a.py", "ns/deep/b.py", "script.py"], ""
        ),
    )
    assert import_roots(tmp_path / "src/pkg/sub/a.py", tmp_path)[:2] == [tmp_path / "src", tmp_path]
    assert import_roots(tmp_path / "ns/deep/b.py", tmp_path) == [
        tmp_path / "ns/deep",
        tmp_path / "ns",
        tmp_path,
        tmp_path / "src",
    ]
    assert import_roots(tmp_path / "script.py", tmp_path) == [tmp_path, tmp_path / "src"]


def test_the_root_of_a_project(tmp_path: Path) -> None:
    write(
        tmp_path,
        dict.fromkeys(
            [
                "p/pyproject.toml",
                "p/pkg/__init__.py",
                "p/pkg/a.py",
                "bare/pkg/__init__.py",
                "bare/pkg/sub/__init__.py",
                "bare/pkg/sub/b.py",
                "bare/loose/c.py",
            ],
            "",
        ),
    )
    bare = tmp_path / "bare"
    assert find_root(tmp_path / "p/pkg/a.py") == tmp_path / "p"
    assert find_root(bare / "pkg/sub/b.py") == bare
    assert find_root(bare / "pkg/sub/b.py", bare / "pkg") == bare
    assert find_root(bare / "loose/c.py", bare) == bare
    assert find_root(bare / "loose/c.py") == bare / "loose"
