"""The files of one project: loaded when an import or a caller leads there, parsed once, searched by text first.

`Scope` is a module, class, function or lambda with its flow; `Module.index` knows the calls, attribute stores and
classes of a file by name. `Project.grep` narrows a question about the whole project ("who calls this?") to the few
files that hold the name.
"""

from __future__ import annotations

import ast
import os
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from h2dlint.flow import Flow, ScopeNode, Store, build_flow
from h2dlint.source import parse, read_source

if TYPE_CHECKING:
    from h2dlint.config import Config
    from h2dlint.facts import Interpreter

SKIPPED_FOLDERS = frozenset(("node_modules", "__pycache__", "build", "dist", "site-packages", "venv", "env"))
MAX_FILE_BYTES = 2_000_000
MAX_PROJECT_BYTES = 400_000_000
MAX_FILES_A_NAME = 32
"""A name that stands in more files than this is too common to look for its callers."""


@dataclass(frozen=True, slots=True)
class Usage:
    """How a name stands in the text where it is used in one way. `every` finds all such names of a file at once.

    The first `patience` questions scan all files for one name; then it pays to note the names of all files.
    """

    one: str
    every: re.Pattern[bytes]
    patience: int


CALLED = Usage(
    r"(?<!def )(?<!class )\b{0}\s*\(|\bpartial\(\s*(?:\w+\.)*{0}\b",
    re.compile(rb"(?<!def )(?<!class )\b([A-Za-z_]\w*)\s*\((?:(?<=partial\()\s*(?:\w+\.)*(\w+))?"),
    80,
)
STORED = Usage(
    r"\.{}(?=\s*(?::[^=\n()]*)?(?:,[^=\n()]*)?=(?!=))",
    re.compile(rb"\.([A-Za-z_]\w*)(?=\s*(?::[^=\n()]*)?(?:,[^=\n()]*)?=(?!=))"),
    20,
)
DERIVED = Usage(r"\bclass\s+\w+\s*\([^)]*\b{}\b", re.compile(rb"\bclass\s+\w+\s*\(([^)]*)\)"), 20)
DEFINED = Usage(r"\bdef\s+{}\s*\(", re.compile(rb"\bdef\s+(\w+)\s*\("), 20)
MENTIONED = Usage(r"\b{}\b", re.compile(rb"\w+"), 1 << 30)
TENSOR_TEXT = re.compile(rb"^\(?(?:torch|np|numpy)\.|\.(?:to|cpu|cuda|pin_memory|copy_|numpy)\(")
_WORD = re.compile(rb"\w+")
_STAR = re.compile(rb"\bimport\s*\*")

TEST_FOLDERS = frozenset(("tests", "test", "testing", "benchmarks", "benchmark", "examples", "example"))

ROOT_MARKS = ("pyproject.toml", "setup.py", "setup.cfg", ".git")


@dataclass(eq=False, slots=True)
class Scope:
    """A module, class, function or lambda. Compared by identity: there is one for each node."""

    module: Module
    node: ScopeNode
    parent: Scope | None
    name: str
    _flow: Flow | None = None
    _children: dict[ast.AST, Scope] = field(default_factory=dict)
    _defs: list[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef] | None = None
    _members: dict[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef] | None = None

    @property
    def flow(self) -> Flow:
        if self._flow is None:
            self._flow = build_flow(self.node)
        return self._flow

    def child(self, node: ScopeNode) -> Scope:
        """The scope of a def, class or lambda that stands directly in this one."""
        found = self._children.get(node)
        if found is None:
            found = Scope(self.module, node, self, getattr(node, "name", "<lambda>"))
            self._children[node] = found
        return found

    @property
    def owner(self) -> Scope | None:
        """The class of a method, else None."""
        parent = self.parent
        return parent if parent is not None and isinstance(parent.node, ast.ClassDef) else None

    @property
    def qualname(self) -> str:
        if self.parent is None:
            return ""
        outer = self.parent.qualname
        return f"{outer}.{self.name}" if outer else self.name

    @property
    def is_function(self) -> bool:
        return isinstance(self.node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))

    def method(self, name: str) -> Scope | None:
        """The last def or nested class of that name in a class body (any branch of it)."""
        bound = self.members.get(name)
        return None if bound is None else self.child(bound)

    @property
    def defs(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
        """Every def and class statement directly in this scope, in whatever branch."""
        if self._defs is None:
            body = [] if isinstance(self.node, ast.Lambda) else self.node.body
            self._defs = list(_defs_in(body))
        return self._defs

    @property
    def members(self) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
        if self._members is None:
            self._members = {node.name: node for node in self.defs}
        return self._members


def _defs_in(body: list[ast.stmt]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield statement
            continue
        for part in ("body", "orelse", "finalbody"):
            yield from _defs_in(getattr(statement, part, None) or [])
        for handler in getattr(statement, "handlers", ()):
            yield from _defs_in(handler.body)
        for case in getattr(statement, "cases", ()):
            yield from _defs_in(case.body)


class Module:
    """One parsed file. `filename` is as the user named it; `text` has \\n line ends."""

    def __init__(self, project: Project, path: Path | None, filename: str, text: str, tree: ast.Module) -> None:
        self.project = project
        self.path = path
        self.filename = filename
        self.text = text
        self.tree = tree
        self.scope = Scope(self, tree, None, "<module>")
        self._calls: dict[str, list[tuple[Scope, ast.Call]]] = {}
        self._stores: dict[str, list[Scope]] = {}

    @cached_property
    def lines(self) -> list[str]:
        return self.text.split("\n")

    @cached_property
    def import_root(self) -> Path | None:
        """The folder that absolute imports of this file's package start from."""
        if self.path is None:
            return None
        folder = self.path.parent
        while (folder / "__init__.py").is_file() and folder.parent != folder:
            folder = folder.parent
        return folder

    @cached_property
    def is_test(self) -> bool:
        return self.path is not None and is_test_path(self.path, self.project.root)

    def scopes(self) -> Iterator[Scope]:
        """The module, and every def and class in it at any depth."""
        todo = [self.scope]
        while todo:
            scope = todo.pop()
            yield scope
            todo.extend(scope.child(node) for node in reversed(scope.defs))

    # Questions by name read the text first and walk only the statements that hold the name.

    def calls(self, name: str) -> list[tuple[Scope, ast.Call]]:
        """The calls whose callee ends in `name`, and the functools.partial of it."""
        if name not in self._calls:
            self._calls[name] = [
                (scope, node)
                for scope, node in self._nodes_at(name)
                if isinstance(node, ast.Call)
                and (
                    last_name(node.func) == name
                    or (node.args and last_name(node.func) == "partial" and last_name(node.args[0]) == name)
                )
            ]
        return self._calls[name]

    def stores(self, attr: str) -> list[Scope]:
        """The scopes that assign `something.attr`, or may put something into what it holds."""
        if attr not in self._stores:
            found: dict[Scope, None] = {}
            for scope, node in self._nodes_at(attr):
                if isinstance(node, ast.Attribute) and node.attr == attr:
                    found[scope] = None
                elif isinstance(node, ast.Constant) and node.value == attr:
                    found[scope] = None  # setattr(x, "attr", ...)
            self._stores[attr] = list(found)
        return self._stores[attr]

    def derived(self, name: str) -> list[Scope]:
        """The classes with a base whose last name is `name`."""
        return [
            scope
            for scope in (self.scopes() if name in self.text else ())
            if isinstance(scope.node, ast.ClassDef) and any(last_name(base) == name for base in scope.node.bases)
        ]

    def _nodes_at(self, name: str) -> Iterator[tuple[Scope, ast.AST]]:
        """Every node that spans a line which holds the text `name`, with its scope, in source order."""
        rows: list[int] = []
        at = self.text.find(name)
        while at >= 0:
            row = bisect_right(self._starts, at)
            rows.append(row)
            at = self.text.find(name, self._starts[row]) if row < len(self._starts) else -1
        if not rows:
            return
        todo: list[tuple[Scope, ast.AST]] = [(self.scope, self.tree)]
        while todo:
            scope, node = todo.pop()
            yield scope, node
            inner = scope
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
                inner = scope.child(node)
            for child in reversed(list(ast.iter_child_nodes(node))):
                first = getattr(child, "lineno", None)
                if first is not None:
                    decorators = getattr(child, "decorator_list", None)
                    first = min(first, decorators[0].lineno) if decorators else first
                    at = bisect_left(rows, first)
                    if at == len(rows) or rows[at] > child.end_lineno:  # type: ignore[attr-defined]
                        continue
                outside = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and not isinstance(
                    child, ast.stmt
                )
                todo.append((scope if outside else inner, child))

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(match.end() for match in re.finditer("\n", self.text))]


def last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Subscript):
        return last_name(node.value)
    return ""


def find_root(path: Path) -> Path:
    """The folder of the project that holds `path`: the nearest with a project mark, else above its packages."""
    folder = path if path.is_dir() else path.parent
    for candidate in (folder, *folder.parents):
        if any((candidate / mark).exists() for mark in ROOT_MARKS):
            return candidate
    while (folder / "__init__.py").is_file() and folder.parent != folder:
        folder = folder.parent
    return folder


_BEFORE_PARTIAL = re.compile(rb"\bpartial\(\s*(?:\w+\.)*$")


def is_called(data: bytes, name: bytes) -> bool:
    """What CALLED.one matches, found by the name first: ten times as fast."""
    at = data.find(name)
    while at >= 0:
        end = at + len(name)
        before, after = data[at - 1 : at], data[end : end + 8].lstrip(b" \t")
        if not (before.isalnum() or before == b"_"):
            if after.startswith(b"(") and not data[max(at - 6, 0) : at].endswith((b"def ", b"class ")):
                return True
            if data[end : end + 1] in (b",", b")", b" ", b"\n") and _BEFORE_PARTIAL.search(data, max(at - 60, 0), at):
                return True
        at = data.find(name, end)
    return False


class Project:
    """All Python files below `root`, read and parsed on demand. `root` None holds only what is loaded by hand."""

    def __init__(self, root: Path | None, config: Config | None = None) -> None:
        self.root = None if root is None else root.resolve()
        self.config = config
        self.modules: dict[Path, Module | None] = {}
        self._grepped: dict[tuple[str, Usage, bool], list[Path] | None] = {}
        self._asked: dict[Usage, int] = {}
        self._strangers: dict[Path, None] = {}  # modules that are loaded but stand outside `contents`
        self._noted: dict[Usage, dict[bytes, list[Path]]] = {}
        self._located: dict[tuple[Path | None, str], Path | None] = {}
        self.interpreter: Interpreter | None = None

    # --- files -------------------------------------------------------------------------------------------------

    @cached_property
    def files(self) -> list[Path]:
        """Every Python file below the root, sorted; hidden and vendored folders are left out."""
        if self.root is None:
            return []
        found: list[Path] = []
        for folder, names, files in os.walk(self.root):
            names[:] = sorted(name for name in names if not name.startswith(".") and name not in SKIPPED_FOLDERS)
            found.extend(Path(folder, name) for name in sorted(files) if name.endswith(".py"))
        return found

    @cached_property
    def contents(self) -> dict[Path, bytes]:
        """The bytes of every file, for text search; beyond the bounds above a file is left out."""
        contents: dict[Path, bytes] = {}
        total = 0
        for path in self.files:
            try:
                data = path.read_bytes()
            except OSError:
                continue
            if len(data) > MAX_FILE_BYTES:
                continue
            total += len(data)
            if total > MAX_PROJECT_BYTES:
                break
            contents[path] = data
            self._strangers.pop(path, None)
        return contents

    def grep(self, name: str, usage: Usage, tests: bool = True) -> list[Path] | None:
        """The files that use the name so; None when they are too many to look at."""
        key = (name, usage, tests)
        if key not in self._grepped:
            found = self._scan(name, usage)
            if not tests:
                found = [path for path in found if not is_test_path(path, self.root)]
            self._grepped[key] = found if len(found) <= MAX_FILES_A_NAME else None
        return self._grepped[key]

    def _scan(self, name: str, usage: Usage) -> list[Path]:
        needle, search = name.encode(), re.compile(usage.one.format(re.escape(name)).encode()).search
        self._asked[usage] = self._asked.get(usage, 0) + 1
        if self._asked[usage] > usage.patience:
            found = list(self._names(usage).get(needle, ()))
        else:
            found = [
                path
                for path, data in self.contents.items()
                if needle in data and (is_called(data, needle) if usage is CALLED else search(data))
            ]
        for path in self._strangers:
            module = self.modules.get(path)
            if module is not None and search(module.text.encode()):
                found.append(path)
        return found

    def _names(self, usage: Usage) -> dict[bytes, list[Path]]:
        """The files of every name that is used so."""
        names = self._noted.get(usage)
        if names is None:
            names = self._noted[usage] = {}
            for path, data in self.contents.items():
                for found in set(usage.every.findall(data)):
                    for word in dict.fromkeys(_WORD.findall(found if isinstance(found, bytes) else b" ".join(found))):
                        files = names.setdefault(word, [])
                        if not files or files[-1] is not path:
                            files.append(path)
        return names

    # --- modules -----------------------------------------------------------------------------------------------

    def load(
        self, path: Path | str, source: bytes | None = None, tree: ast.Module | None = None, filename: str | None = None
    ) -> Module:
        """The module of a file. `source` and `tree` save a read and a parse; `filename` is how reports name it.

        Raises OSError, SyntaxError or ValueError (null bytes, wrong encoding) when there is no tree to be had.
        """
        key = Path(path)
        key = key.resolve() if key.exists() else Path(os.path.abspath(key))
        known = self.modules.get(key)
        if source is None and tree is None and known is not None:
            return known
        name = filename or self.display(key)
        read = read_source(name, key.read_bytes() if source is None else source)
        if known is not None and known.filename == name:
            if known.text == read.text:
                return known
            self.forget(key, read.data)
        module = Module(self, key, name, read.text, tree if tree is not None else parse(read))
        self.modules[key] = module
        if "contents" not in self.__dict__ or key not in self.contents:
            self._strangers[key] = None
        return module

    def forget(self, path: Path, data: bytes) -> None:
        """A file changed: drop what was learnt, for any of it may rest on the old text."""
        self.interpreter = None
        self._located.clear()
        self._grepped.clear()
        self._noted.clear()
        if "contents" in self.__dict__:
            self.contents[path] = data

    def display(self, path: Path) -> str:
        """How messages name a file that the user did not name: relative to the current folder when below it."""
        try:
            return os.path.relpath(path) if path.is_relative_to(os.getcwd()) else str(path)
        except (OSError, ValueError):
            return str(path)

    def peek(self, path: Path) -> Module | None:
        """The module of a file that something refers to; None when it cannot be read or parsed."""
        if path not in self.modules:
            try:
                self.load(path, self.contents.get(path) if "contents" in self.__dict__ else None)
            except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
                self.modules[path] = None
        return self.modules[path]

    def resolve(self, name: str, level: int, importer: Module) -> Module | None:
        """The project's module of that dotted name as `importer` would import it; None for any other."""
        path = self.locate(name, level, importer)
        return None if path is None else self.peek(path)

    def locate(self, name: str, level: int, importer: Module) -> Path | None:
        """The file of what `resolve` gives; nothing is read yet."""
        if level:
            if importer.path is None:
                return None
            folder = importer.path.parent
            for _ in range(level - 1):
                folder = folder.parent
            return self._at(folder, name)
        key = (importer.import_root, name)
        if key not in self._located:
            found = (self._at(folder, name) for folder in self._import_folders(importer))
            self._located[key] = next((path for path in found if path is not None), None)
        return self._located[key]

    def may_export(self, path: Path, name: str) -> bool:
        """Whether a file's text lets it bind the name, be it by a star import: others need not be parsed to tell."""
        if path in self.modules:
            return True
        data = self.contents.get(path)
        return data is None or name.encode() in data or _STAR.search(data) is not None

    def _import_folders(self, importer: Module) -> Iterator[Path]:
        if importer.import_root is not None:
            yield importer.import_root
        if self.root is not None:
            base = self.root if self.config is None or self.config.root is None else self.config.root
            for folder in ("", "src") if self.config is None else self.config.src:
                yield base / folder
            yield self.root
            # a namespace package has no __init__.py: any folder between the root and the file may be on the path
            if importer.path is not None and importer.path.is_relative_to(self.root):
                for above in importer.path.parents:
                    if above == self.root:
                        break
                    yield above

    def _at(self, folder: Path, name: str) -> Path | None:
        base = folder.joinpath(*name.split(".")) if name else folder
        for path in (base.with_suffix(".py") if name else None, base / "__init__.py"):
            if path is not None and (path in self.modules or path.is_file()):
                return path
        return None

    def submodule(self, module: Module, name: str) -> Module | None:
        """`package.name` where it is a file of its own."""
        if module.path is None or module.path.name != "__init__.py":
            return None
        path = self._at(module.path.parent, name)
        return None if path is None else self.peek(path)

    # --- questions about the whole project ----------------------------------------------------------------------

    def modules_with(self, name: str, usage: Usage, asker: Module) -> list[Module] | None:
        """The modules whose text matches; tests and examples only for a question that a test asks."""
        paths = self.grep(name, usage, asker.is_test)
        if paths is None:
            return None
        return [module for path in paths if (module := self.peek(path)) is not None]

    def calls_of(self, name: str, asker: Module) -> list[tuple[Scope, ast.Call]] | None:
        """Every call whose callee ends in `name`; None when the name is too common."""
        modules = self.modules_with(name, CALLED, asker)
        if modules is None:
            return None
        return [one for module in modules for one in module.calls(name)]

    def calls_near(self, name: str, others: list[str], asker: Module) -> list[tuple[Scope, ast.Call]] | None:
        """The calls of `name` in files that mention one of `others`; None when those are too many as well."""
        paths = [path for path in self._scan(name, CALLED) if asker.is_test or not is_test_path(path, self.root)]
        needles = [one.encode() for one in others]
        paths = [path for path in paths if any(needle in self.contents.get(path, b"") for needle in needles)]
        if len(paths) > MAX_FILES_A_NAME:
            return None
        return [one for path in paths if (module := self.peek(path)) is not None for one in module.calls(name)]

    def stores_of(self, attr: str, asker: Module) -> list[tuple[Scope, Store]] | None:
        """Every `something.attr = ...`; None when the name is too common."""
        modules = self.modules_with(attr, STORED, asker)
        if modules is None:
            return None
        return [
            (scope, store)
            for module in modules
            for scope in module.stores(attr)
            for store in scope.flow.stores
            if store.attr == attr and not store.fill
        ]

    def only_tensors_stored(self, attr: str, asker: Module) -> bool:
        """Whether, by the text, every `something.attr = ...` stores what a tensor library gives."""
        paths = self.grep(attr, STORED, asker.is_test)
        if not paths:
            return False
        stored = re.compile(rb"\.%b\s*(?::[^=\n]*)?(,[^=\n()]*)?=(?!=)\s*([^\n]*)" % re.escape(attr.encode()))
        for path in paths:
            for also, value in stored.findall(self.contents.get(path, b"")):
                if also or not (value.startswith(b"None") or TENSOR_TEXT.search(value)):
                    return False
        return True

    def derived_from(self, name: str, asker: Module) -> list[Scope]:
        """Classes that name `name` as a base; none when the name is too common."""
        modules = self.modules_with(name, DERIVED, asker) or []
        return [scope for module in modules for scope in module.derived(name)]


def in_tests(module: Module) -> bool:
    """Whether a file is a test, a benchmark or an example: what those pass says little about production."""
    return module.is_test


def is_test_path(path: Path, root: Path | None) -> bool:
    name = path.name
    if name.startswith("test_") or name.endswith("_test.py") or name == "conftest.py":
        return True
    parts = path.parts if root is None or not path.is_relative_to(root) else path.relative_to(root).parts
    return any(part in TEST_FOLDERS for part in parts[:-1])
