"""The rules, one module each, found by walking this folder.

A rule module `htdNNN_some_name.py` has `CODE`, `NAME`, `DEFAULT` (whether it runs unless asked for), a docstring with
the sections of `SECTIONS`, and `check(site, context) -> Finding | None`: a pure function of one site's facts. Adding a
rule touches no other file here.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from h2dlint.fixes.context import RuleContext
from h2dlint.model import Finding, Site

SECTIONS = (
    "What it does",
    "Why it is bad",
    "Example",
    "Use instead",
    "When it is fine",
    "Fix safety",
    "References",
)

__all__ = ["SECTIONS", "Rule", "RuleContext", "RuleError", "load"]


class RuleError(ValueError):
    """A rule module that lacks something; the message names the module and what was expected."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. `doc` is its page as Markdown, `summary` the first line of it."""

    code: str
    name: str
    default: bool
    doc: str
    check: Callable[[Site, RuleContext], Finding | None]

    @property
    def summary(self) -> str:
        return self.doc.split("\n", 1)[0]

    @property
    def sections(self) -> dict[str, str]:
        """The text of each section by its heading."""
        parts = re.split(r"^## (.+)$", self.doc, flags=re.MULTILINE)
        return {title: text.strip() for title, text in zip(parts[1::2], parts[2::2])}


@cache
def load() -> dict[str, Rule]:
    """All rules by code, in the order of their codes. Raises RuleError for a module that is no rule."""
    modules = sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name.startswith("htd"))
    rules = [_read_rule(name) for name in modules]
    return {rule.code: rule for rule in rules}


def _read_rule(name: str) -> Rule:
    module = importlib.import_module(f"{__name__}.{name}")
    for attribute, kind in (("CODE", str), ("NAME", str), ("DEFAULT", bool), ("__doc__", str)):
        if not isinstance(getattr(module, attribute, None), kind):
            raise RuleError(f"{module.__name__}: {attribute} has to be a {kind.__name__}")
    if not callable(getattr(module, "check", None)):
        raise RuleError(f"{module.__name__}: check has to be a function")
    if name.split("_")[0].upper() != module.CODE:
        raise RuleError(f"{module.__name__}: the file's name has to begin with the code {module.CODE}")
    rule = Rule(module.CODE, module.NAME, module.DEFAULT, (module.__doc__ or "").strip(), module.check)
    if missing := [section for section in SECTIONS if section not in rule.sections]:
        raise RuleError(f"{module.__name__}: the docstring lacks the section {missing[0]!r}")
    return rule
