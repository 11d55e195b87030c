"""Which files a run looks at: a walk as git would do it, the paths that were named, and where imports start.

The walk honours .gitignore files (nested ones too) and .git/info/exclude, follows no symlinked folder, and leaves out
the built-in list of folders that hold no source of the project. A named path is looked at even if git ignores it or
the built-in list has it, but it obeys the user's own exclude patterns: pre-commit passes names.
"""

from __future__ import annotations

import itertools
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

DEFAULT_EXCLUDE = tuple(
    ".bzr .direnv .eggs .git .git-rewrite .hg .ipynb_checkpoints .mypy_cache .nox .pants.d .pyenv .pytest_cache "
    ".pytype .ruff_cache .svn .tox .venv .vscode __pycache__ __pypackages__ _build buck-out build dist node_modules "
    "site-packages venv".split()
)
SUFFIXES = (".py", ".pyw")
# For an absolute folder: (exclude, extend-exclude, root); exclude None means the built-in list.
Excludes: TypeAlias = Callable[[str], tuple["tuple[str, ...] | None", "tuple[str, ...]", "Path | None"]]
TEMPORARY = re.compile(r"\.h2dlint-(\d+)-[0-9a-f]+\.tmp")


@dataclass(frozen=True, slots=True)
class Ignore:
    """The patterns of one ignore file; `base` is its folder, with "/" at the end. The last match decides."""

    base: str
    groups: tuple[tuple[bool, re.Pattern[str] | None, re.Pattern[str] | None], ...]

    def decide(self, path: str, is_folder: bool) -> bool | None:
        """True: ignored, False: taken back in by "!", None: no pattern matches. `path` is absolute, with "/"."""
        if not path.startswith(self.base):
            return None
        relative = path[len(self.base) :]
        for ignored, everything, folders in reversed(self.groups):
            if everything is not None and everything.match(relative):
                return ignored
            if is_folder and folders is not None and folders.match(relative):
                return ignored
        return None


@dataclass(slots=True)
class Found:
    """What a walk found: files as they are to be shown, each with True if it was named; troubles as (path, message,
    named); temporaries that a killed run left.

    `by_path` and `links` hold, while the walk lasts, the files by their absolute paths and the symlinks to files.
    """

    files: list[tuple[str, bool]] = field(default_factory=list)
    by_path: dict[str, tuple[str, bool]] = field(default_factory=dict)
    links: list[tuple[str, bool]] = field(default_factory=list)
    troubles: list[tuple[str, str, bool]] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)


def compile_ignore(lines: Iterable[str], base: str) -> Ignore:
    """Compile gitignore lines. Neighbours of the same kind become one expression, so that a walk stays fast."""
    runs: list[tuple[bool, list[str], list[str]]] = []
    for line in lines:
        pattern = _strip(line)
        negated = pattern.startswith("!")
        if negated or pattern.startswith(("\\!", "\\#")):
            pattern = pattern[1:]
        translated = _translate(pattern.rstrip("/"))
        if translated is None:
            continue
        if not runs or runs[-1][0] == negated:
            runs.append((not negated, [], []))
        _, plain, folders = runs[-1]
        (folders if pattern.endswith("/") else plain).append(translated)
    return Ignore(base, tuple((ignored, _join(plain), _join(folders)) for ignored, plain, folders in runs))


@lru_cache(maxsize=256)
def compile_patterns(patterns: tuple[str, ...], base: str) -> Ignore:
    return compile_ignore(patterns, base)


def matches(patterns: tuple[str, ...], path: str, root: Path | None) -> bool:
    """Whether an absolute file path, or a folder above it, matches gitignore-like patterns relative to root."""
    path = _slashes(path)
    base = "/" if root is None else _slashes(str(root)).rstrip("/") + "/"
    ignore = compile_patterns(patterns, base if path.startswith(base) else "/")
    rest = path[len(ignore.base) :]
    ends = [match.start() for match in re.finditer("/", rest)]
    if any(ignore.decide(ignore.base + rest[:end], True) for end in ends):
        return True
    return ignore.decide(path, os.path.isdir(path)) is True


def find_files(paths: Sequence[str], excludes: Excludes) -> Found:
    """Find the files of the paths, in a stable order and each once."""
    found = Found()
    for path in paths:
        _add_named(path, found, excludes)
    found.files = _unique(found.by_path, found.links)
    return found


def import_roots(path: Path, stop: Path) -> list[Path]:
    """The folders that an absolute import in the file may start from, the likeliest first.

    First the folder above the topmost package (folders with __init__.py) around the file, then every folder above up
    to `stop` (for namespace packages and scripts), `stop`/src included.
    """
    top = path.parent
    while (top / "__init__.py").is_file() and top != stop and top.parent != top:
        top = top.parent
    roots = [top]
    for folder in top.parents:
        if not folder.is_relative_to(stop):
            break
        roots.append(folder)
    for folder in (stop / "src", path.parent):
        if folder not in roots and folder.is_dir():
            roots.append(folder)
    return roots


def find_root(path: Path, linted: Path | None = None) -> Path:
    """The folder of the project around an absolute file path.

    The nearest one above with pyproject.toml, setup.py, setup.cfg or .git; else the topmost that holds the package of
    the linted folder or of the file.
    """
    for folder in path.parents:
        if _holds_project(folder):
            return folder
    top = linted if linted is not None and path.is_relative_to(linted) and linted != path else path.parent
    while (top / "__init__.py").is_file() and top.parent != top:
        top = top.parent
    return top


@lru_cache(maxsize=4096)
def _holds_project(folder: Path) -> bool:
    return any((folder / name).exists() for name in ("pyproject.toml", "setup.py", "setup.cfg", ".git"))


def _add_named(path: str, found: Found, excludes: Excludes) -> None:
    absolute = os.path.abspath(path)
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        dangling = os.path.islink(path) and isinstance(error, FileNotFoundError)
        message = "is a symlink to nothing" if dangling else f"cannot be read: {(error.strerror or '').lower()}"
        found.troubles.append((path, message, True))
        return
    exclude, extend, root = excludes(absolute if stat.S_ISDIR(mode) else os.path.dirname(absolute))
    own = (*(exclude or ()), *extend)
    if own and matches(own, absolute, root):
        return
    shown = os.path.normpath(path)
    if stat.S_ISDIR(mode):
        _walk(absolute, "" if shown == "." else shown, excludes, found)
    elif stat.S_ISREG(mode) and os.path.islink(path):
        found.links.append((shown, True))
    elif stat.S_ISREG(mode):
        found.by_path[absolute] = (found.by_path.get(absolute, (shown, True))[0], True)
    else:
        found.troubles.append((path, "is not a regular file", True))


def _walk(top: str, shown: str, excludes: Excludes, found: Found) -> None:
    pending = [(top, shown, _ignores_above(top))]
    while pending:
        folder, name, ignores = pending.pop()
        try:
            with os.scandir(folder) as scan:
                entries = sorted(scan, key=lambda entry: entry.name)
        except OSError as error:
            found.troubles.append((name or ".", f"cannot be read: {(error.strerror or '').lower()}", True))
            continue
        names = {entry.name for entry in entries}
        ignores = _ignores_here(folder, names, ignores)
        exclude, extend, root = excludes(folder)
        inner = []
        for entry in entries:
            is_folder = entry.is_dir(follow_symlinks=False)
            if not is_folder and not entry.name.endswith(SUFFIXES):
                if TEMPORARY.fullmatch(entry.name):
                    found.strays.append(entry.path)
                continue
            path = _slashes(entry.path)
            if _is_excluded(path, entry.name, is_folder, exclude, extend, root):
                continue
            if _is_ignored(path, is_folder, ignores):
                continue
            label = f"{name}{os.sep}{entry.name}" if name else entry.name
            if is_folder:
                inner.append((entry.path, label, ignores))
            elif entry.is_symlink():
                _add_link(entry, label, found)
            elif entry.is_file(follow_symlinks=False):
                found.by_path.setdefault(entry.path, (label, False))
        pending.extend(reversed(inner))


def _add_link(entry: os.DirEntry[str], label: str, found: Found) -> None:
    try:
        mode = entry.stat().st_mode
    except OSError:
        found.troubles.append((label, "is a symlink to nothing", False))
        return
    if stat.S_ISREG(mode):
        found.links.append((label, False))


def _is_excluded(
    path: str,
    name: str,
    is_folder: bool,
    exclude: tuple[str, ...] | None,
    extend: tuple[str, ...],
    root: Path | None,
) -> bool:
    if exclude is None and name in _BUILT_IN:
        return True
    own = (*(exclude or ()), *extend)
    if not own:
        return False
    base = "/" if root is None else _slashes(str(root)).rstrip("/") + "/"
    return compile_patterns(own, base if path.startswith(base) else "/").decide(path, is_folder) is True


def _is_ignored(path: str, is_folder: bool, ignores: tuple[Ignore, ...]) -> bool:
    for ignore in reversed(ignores):
        if (decided := ignore.decide(path, is_folder)) is not None:
            return decided
    return False


def _ignores_above(top: str) -> tuple[Ignore, ...]:
    """The ignore files that speak of a folder from above it, up to the repository's top."""
    folders = []
    folder = top
    while not os.path.lexists(os.path.join(folder, ".git")):
        parent = os.path.dirname(folder)
        if parent == folder:
            return ()
        folder = parent
        folders.append(folder)
    ignores: tuple[Ignore, ...] = ()
    for above in reversed(folders):
        ignores = _ignores_here(above, {name for name in (".git", ".gitignore") if _exists(above, name)}, ignores)
    return ignores


def _ignores_here(folder: str, names: set[str], ignores: tuple[Ignore, ...]) -> tuple[Ignore, ...]:
    base = _slashes(folder).rstrip("/") + "/"
    if ".git" in names:
        # Another repository: git asks that one's own files, not those of the one around it.
        ignores = _read_ignore(_exclude_file(os.path.join(folder, ".git")), base)
    if ".gitignore" in names:
        ignores = (*ignores, *_read_ignore(os.path.join(folder, ".gitignore"), base))
    return ignores


def _read_ignore(path: str, base: str) -> tuple[Ignore, ...]:
    try:
        with open(path, encoding="utf-8-sig", errors="surrogateescape") as stream:
            ignore = compile_ignore(stream, base)
    except OSError:
        return ()
    return (ignore,) if ignore.groups else ()


def _exclude_file(git: str) -> str:
    """info/exclude of a .git folder, or of the one that a .git file (worktree, submodule) points to."""
    if os.path.isfile(git):
        with open(git, encoding="utf-8", errors="surrogateescape") as stream:
            git = os.path.join(os.path.dirname(git), stream.readline().removeprefix("gitdir:").strip())
        common = os.path.join(git, "commondir")
        if os.path.isfile(common):
            with open(common, encoding="utf-8", errors="surrogateescape") as stream:
                git = os.path.join(git, stream.readline().strip())
    return os.path.join(git, "info", "exclude")


def _unique(by_path: dict[str, tuple[str, bool]], links: Iterable[tuple[str, bool]]) -> list[tuple[str, bool]]:
    """Each file once, under the name that came first; a symlink to a file that is there itself is left out."""
    files = list(by_path.values())
    real = {os.path.realpath(path) for path in by_path} if links else set()
    for shown, named in links:
        target = os.path.realpath(shown)
        if target not in real:
            real.add(target)
            files.append((shown, named))
    return sorted(files)


def _exists(folder: str, name: str) -> bool:
    return os.path.lexists(os.path.join(folder, name))


def _slashes(path: str) -> str:
    return path if os.sep == "/" else path.replace(os.sep, "/")


def _strip(line: str) -> str:
    line = line.rstrip("\r\n")
    if line.startswith("#"):
        return ""
    bare = line.rstrip(" \t")
    return bare + " " if bare.endswith("\\") and bare != line else bare


def _join(patterns: Sequence[str]) -> re.Pattern[str] | None:
    return re.compile("(?:" + "|".join(patterns) + r")\Z", re.DOTALL) if patterns else None


def _translate(pattern: str) -> str | None:
    """A gitignore pattern, without "!" and the last "/", as an expression for the path relative to its folder."""
    if not pattern:
        return None
    anchored = "/" in pattern
    parts = pattern.lstrip("/").split("/") if anchored else ["**", pattern]
    out = []
    for index, part in enumerate(parts):
        last = index == len(parts) - 1
        if part == "**":
            out.append(".+" if last else "(?:[^/]+/)*")
        else:
            out.append(_translate_part(part) + ("" if last else "/"))
    return "".join(out)


def _translate_part(part: str) -> str:
    """One path component: `*`, `?`, `[...]`, `\\x`; none of them crosses a "/"."""
    chunks = [""]
    for token in _tokens(part):
        if token == _STAR:
            chunks.append("")
        else:
            chunks[-1] += token
    first, *others = chunks
    if not others:
        return first
    # What a star takes up to the next chunk is settled at once (a lookahead is never re-entered), else a name such as
    # "aaaa..." would make a pattern with many stars run for hours.
    middle = ""
    for chunk in filter(None, others[:-1]):
        name = f"star{next(_COUNTER)}"
        middle += f"(?=(?P<{name}>[^/]*?{chunk}))(?P={name})"
    return f"{first}{middle}[^/]*{others[-1]}"


def _tokens(part: str) -> Iterator[str]:
    index = 0
    while index < len(part):
        character = part[index]
        index += 1
        if character == "*":
            yield _STAR
        elif character == "?":
            yield "[^/]"
        elif character == "\\" and index < len(part):
            yield re.escape(part[index])
            index += 1
        elif character == "[" and (end := _find_end(part, index)) > 0:
            inverted = part[index] in "!^"
            inside = re.sub(r"([\\\[\]&~|^])", r"\\\1", part[index + inverted : end])
            yield f"[^/{inside}]" if inverted else f"[{inside}]"
            index = end + 1
        else:
            yield re.escape(character)


def _find_end(part: str, index: int) -> int:
    """Where the "]" of a set is that begins before `index`; a first "]" belongs to the set. -1 if there is none."""
    return part.find("]", index + (2 if part[index : index + 1] in ("!", "^") else 1))


_BUILT_IN = frozenset(DEFAULT_EXCLUDE)
_STAR = "*"
_COUNTER = itertools.count()
