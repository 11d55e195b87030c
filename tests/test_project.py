"""The files of a project: where imports lead, who calls and stores what, and what is left unread."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from h2dlint.config import Config
from h2dlint.project import MAX_FILES_A_NAME, Module, Project, find_root
from h2dlint.source import SourceError


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def open_project(root: Path, files: dict[str, str]) -> Project:
    write(root, files)
    return Project(root, Config())


def path_of(module: Module | None, root: Path) -> str | None:
    return None if module is None or module.path is None else module.path.relative_to(root.resolve()).as_posix()


LAYOUT = {
    "pyproject.toml": "",
    "main.py": "",
    "src/pkg/__init__.py": "",
    "src/pkg/a.py": "",
    "src/pkg/sub/__init__.py": "",
    "src/pkg/sub/b.py": "",
    "tools/extra/c.py": "",
    "deep/below/here/inner/__init__.py": "",
    "deep/below/here/inner/d.py": "",
    "deep/below/here/inner/e.py": "",
}


@pytest.mark.parametrize(
    ("importer", "name", "level", "found"),
    [
        ("src/pkg/a.py", "pkg.sub.b", 0, "src/pkg/sub/b.py"),
        ("src/pkg/a.py", "pkg.sub", 0, "src/pkg/sub/__init__.py"),
        ("src/pkg/a.py", "sub.b", 1, "src/pkg/sub/b.py"),
        ("src/pkg/a.py", "", 1, "src/pkg/__init__.py"),
        ("src/pkg/sub/b.py", "a", 2, "src/pkg/a.py"),
        ("src/pkg/sub/b.py", "", 2, "src/pkg/__init__.py"),
        ("src/pkg/sub/__init__.py", "b", 1, "src/pkg/sub/b.py"),
        ("main.py", "pkg.a", 0, "src/pkg/a.py"),
        ("main.py", "tools.extra.c", 0, "tools/extra/c.py"),
        ("deep/below/here/inner/d.py", "inner.e", 0, "deep/below/here/inner/e.py"),
        ("main.py", "torch", 0, None),
        ("main.py", "pkg.missing", 0, None),
        ("src/pkg/a.py", "missing", 1, None),
    ],
)
def test_imports_lead_to_files(tmp_path: Path, importer: str, name: str, level: int, found: str | None) -> None:
    project = open_project(tmp_path, LAYOUT)
    module = project.load(tmp_path / importer)
    assert path_of(project.resolve(name, level, module), tmp_path) == found


def test_a_module_is_loaded_once(tmp_path: Path) -> None:
    project = open_project(tmp_path, {"a.py": "x = 1\n"})
    assert project.load(tmp_path / "a.py") is project.load(str(tmp_path / "a.py"))


def test_a_given_tree_is_used(tmp_path: Path) -> None:
    tree = ast.parse("x = 1\n")
    module = Project(tmp_path, Config()).load(tmp_path / "not_there.py", b"x = 1\n", tree)
    assert module.tree is tree
    assert module.text == "x = 1\n"


def test_changed_text_replaces_the_module(tmp_path: Path) -> None:
    project = open_project(tmp_path, {"a.py": "x = 1\n"})
    before = project.load(tmp_path / "a.py")
    after = project.load(tmp_path / "a.py", b"x = 2\n")
    assert after is not before
    assert after.text == "x = 2\n"


def test_files_that_cannot_be_read_are_no_modules(tmp_path: Path) -> None:
    project = open_project(tmp_path, {"bad.py": "def (\n", "a.py": ""})
    (tmp_path / "null.py").write_bytes(b"x = '\0'\n")
    module = project.load(tmp_path / "a.py")
    assert project.resolve("bad", 0, module) is None
    assert project.resolve("null", 0, module) is None
    with pytest.raises(SourceError):
        project.load(tmp_path / "bad.py")


def test_hidden_and_vendored_folders_are_left_out(tmp_path: Path) -> None:
    files = {"a.py": "", ".git/b.py": "", "node_modules/c.py": "", "venv/d.py": "", "pkg/e.py": "", "notes.txt": ""}
    project = open_project(tmp_path, files)
    assert [path.name for path in project.files] == ["a.py", "e.py"]


def test_calls_of_a_name(tmp_path: Path) -> None:
    project = open_project(
        tmp_path,
        {
            "a.py": "def send(x): pass\n\n\ndef one(o):\n    o.send(1)\n    send(2)\n",
            "b.py": "import functools\nimport a\nf = functools.partial(a.send, 3)\nsender = 4\n",
        },
    )
    calls = project.calls_of("send", project.load(tmp_path / "a.py"))
    assert calls is not None
    assert [ast.unparse(call) for _, call in calls] == ["o.send(1)", "send(2)", "functools.partial(a.send, 3)"]
    assert [scope.qualname for scope, _ in calls] == ["one", "one", ""]


def test_tests_do_not_speak_for_production(tmp_path: Path) -> None:
    files = {"a.py": "def send(x): pass\nsend(1)\n", "tests/test_a.py": "from a import send\nsend(2)\n"}
    project = open_project(tmp_path, files)
    production = project.calls_of("send", project.load(tmp_path / "a.py"))
    test = project.calls_of("send", project.load(tmp_path / "tests/test_a.py"))
    assert production is not None and test is not None
    assert [ast.unparse(call) for _, call in production] == ["send(1)"]
    assert len(test) == 2


def test_a_name_that_is_everywhere_is_not_followed(tmp_path: Path) -> None:
    project = open_project(tmp_path, {f"m{i}.py": "go(1)\n" for i in range(MAX_FILES_A_NAME + 1)})
    assert project.calls_of("go", project.load(tmp_path / "m0.py")) is None


def test_stores_and_subclasses(tmp_path: Path) -> None:
    project = open_project(
        tmp_path,
        {
            "a.py": "class Base:\n    def __init__(self):\n        self.x = None\n",
            "b.py": "import a\n\n\nclass Derived(a.Base):\n    pass\n\n\ndef put(o):\n    o.x = 1\n    o.x.append(2)\n",
        },
    )
    module = project.load(tmp_path / "a.py")
    stores = project.stores_of("x", module)
    assert stores is not None
    assert sorted(scope.qualname for scope, _ in stores) == ["Base.__init__", "put"]
    assert [scope.name for scope in project.derived_from("Base", module)] == ["Derived"]


def test_scopes_know_their_place(tmp_path: Path) -> None:
    text = "class A:\n    def m(self):\n        def inner():\n            pass\n        return lambda: 1\n"
    module = open_project(tmp_path, {"a.py": text}).load(tmp_path / "a.py")
    names = [scope.qualname for scope in module.scopes()]
    assert names == ["", "A", "A.m", "A.m.inner"]
    method = next(scope for scope in module.scopes() if scope.name == "m")
    assert method.owner is not None and method.owner.name == "A"
    assert method.is_function and not method.owner.is_function


def test_the_root_is_the_nearest_project_mark(tmp_path: Path) -> None:
    write(tmp_path, {"pyproject.toml": "", "src/pkg/__init__.py": "", "src/pkg/a.py": ""})
    assert find_root(tmp_path / "src/pkg/a.py") == tmp_path


def test_imports_start_from_the_configured_folders(tmp_path: Path) -> None:
    for name in ("lib/pkg/__init__.py", "lib/pkg/a.py", "app/main.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    for src, expected in (((".", "src"), None), (("lib",), tmp_path / "lib/pkg/a.py")):
        project = Project(tmp_path, Config(root=tmp_path, src=src))
        found = project.resolve("pkg.a", 0, project.load(tmp_path / "app/main.py"))
        assert (found and found.path) == (expected and expected.resolve())
