"""The flag that the rest of the project pins with, for a module that has none of its own.

Only names that this module has, or can import from a module that it imports already, are taken: a new dependency could
close a circle of imports.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path
from typing import Protocol
from weakref import WeakKeyDictionary

from h2dlint.fixes.context import FUNCTIONS, RuleContext
from h2dlint.fixes.names import names_in

# One file may have its own reasons.
_MIN_FILES = 2
_FLAG = re.compile(rb"\bpin_memory\s*=\s*([A-Za-z_]\w*(?:\(\))?)\s*[,)\n]")
_WORDS = frozenset(("True", "False", "None", "pin_memory"))


class Texts(Protocol):
    """What is asked of a project: the bytes of its files."""

    @property
    def contents(self) -> dict[Path, bytes]: ...


_counted: WeakKeyDictionary[Texts, Counter[str]] = WeakKeyDictionary()
_sources: WeakKeyDictionary[Texts, dict[str, set[str]]] = WeakKeyDictionary()


def flag_of_project(context: RuleContext, at: ast.AST) -> tuple[str, str] | None:
    """(expression, import line or ""); None where the project has no such flag, or this module cannot reach it."""
    project: Texts | None = getattr(context.module, "project", None)
    if project is None:
        return None
    if project not in _counted:
        _counted[project] = _count(project)
    imports = [node for node in context.tree.body if isinstance(node, ast.ImportFrom)]
    known = {node.module for node in imports if node.module is not None and node.level == 0}
    taken = names_in(context.tree)
    for flag, files in _counted[project].most_common():
        if files < _MIN_FILES:
            return None
        name = flag.removesuffix("()")
        if name in {alias.asname or alias.name for node in imports for alias in node.names}:
            if not any(name in context.bound_in(up) for up in context.ancestors(at) if isinstance(up, FUNCTIONS)):
                return flag, ""
        elif name not in taken:
            for module in known & _sources_of(project, name):
                return flag, f"from {module} import {name}"
    return None


def _count(project: Texts) -> Counter[str]:
    """In how many files each flag is given as `pin_memory=`; of names, only those that are no plain parameters."""
    counts: Counter[str] = Counter()
    for data in project.contents.values():
        if b"pin_memory" in data:
            counts.update({one.decode() for one in _FLAG.findall(data)} - _WORDS)
    return Counter({flag: count for flag, count in counts.items() if flag.endswith("()") or flag.isupper()})


def _sources_of(project: Texts, name: str) -> set[str]:
    """The modules that other files import `name` from by absolute names; one search a name."""
    known = _sources.setdefault(project, {})
    if name not in known:
        known[name] = _search_sources(project, name)
    return known[name]


def _search_sources(project: Texts, name: str) -> set[str]:
    found: set[str] = set()
    pattern = re.compile(
        rb"^from ([A-Za-z_][\w.]*) import (?:\([^)]*?|[^\n(]*?)\b" + name.encode() + rb"\b", re.MULTILINE
    )
    for data in project.contents.values():
        if name.encode() in data:
            found |= {one.decode() for one in pattern.findall(data)}
    return found
