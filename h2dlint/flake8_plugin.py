"""The flake8 plugin: the engine on the tree that flake8 has parsed already.

It is imported and called for every file of every flake8 run, so nothing but the text gate runs before a file has a
word that a rule needs. Opt-in rules run where `[tool.h2dlint]` or flake8's own select, extend-select or
enable-extensions names them; flake8's `extend_default_ignore` would not do, as any `ignore` of the user undoes it.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from h2dlint import __version__
from h2dlint.source import OPT_IN_WORDS, wrap_text

if TYPE_CHECKING:
    import argparse

    from h2dlint.config import Config
    from h2dlint.engine import Engine

FAMILY = "HTD"
_WORDS = (*(word.decode() for word in OPT_IN_WORDS), FAMILY)


class Plugin:
    """What flake8 makes for each file. `lines` have their newlines; `filename` may be "-" or "stdin"."""

    name = "h2dlint"
    version = __version__
    # Codes that the user names in flake8's own options; a spawned worker parses the options again.
    asked: ClassVar[tuple[str, ...]] = ()
    disable_noqa: ClassVar[bool] = False
    engine: ClassVar[Engine | None] = None

    def __init__(self, tree: ast.Module, lines: list[str], filename: str) -> None:
        self._tree = tree
        self._lines = lines
        self._filename = filename

    @classmethod
    def parse_options(cls, options: argparse.Namespace) -> None:
        asked: list[str] = []
        for name in ("select", "extend_select", "enable_extensions"):
            asked += [code for code in getattr(options, name, None) or () if code.startswith(FAMILY)]
        cls.asked = tuple(asked)
        cls.disable_noqa = bool(getattr(options, "disable_noqa", False))

    def run(self) -> Iterator[tuple[int, int, str, type[Plugin]]]:
        """(row, column from 0, "CODE message", type) of each finding. Never raises: that would end the whole run."""
        try:
            yield from self._run()
        except Exception as error:
            text = " ".join(str(error).split()) or type(error).__name__
            print(f"h2dlint: error: {self._filename}: {text}", file=sys.stderr)

    def _run(self) -> Iterator[tuple[int, int, str, type[Plugin]]]:
        if not any(word in line for line in self._lines for word in _WORDS):
            return
        from h2dlint.engine import attempt

        findings, problems = attempt(self._filename, self._lint)
        for problem in problems:
            print(f"h2dlint: error: {problem}", file=sys.stderr)
        for finding in findings or ():
            yield finding.row, finding.column - 1, f"{finding.code} {finding.message}", type(self)

    def _lint(self) -> list[Any]:
        from h2dlint.config import ConfigFinder
        from h2dlint.engine import Engine, rule_codes

        if Plugin.engine is None:
            Plugin.engine = Engine(ConfigFinder(known=rule_codes()))
        config = self._extend(Plugin.engine.config(self._filename))
        source = wrap_text(self._filename, "".join(self._lines))
        return Plugin.engine.lint(source, self._tree, config)

    def _extend(self, config: Config) -> Config:
        """The project's configuration with what flake8's options ask for. flake8 itself drops what it ignores."""
        from dataclasses import replace

        from h2dlint.config import EVERYTHING, Selection

        codes = tuple(EVERYTHING if code == FAMILY else code for code in Plugin.asked)
        layers = (*config.selections, Selection(extend=codes)) if codes else config.selections
        return replace(config, selections=layers, disable_noqa=config.disable_noqa or Plugin.disable_noqa)
