"""Options: their defaults, `[tool.h2dlint]` of the nearest pyproject.toml, and what overrides what.

A command line option beats the file, the file beats the default. Which rules run is decided in layers (default, file,
command line); within a layer the longest matching prefix wins, and `ignore` wins a draw.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

DEFAULT_SELECT = ("HTD1", "HTD2")
EVERYTHING = "ALL"
UNUSED_NOQA = "HTD001"


class ConfigError(ValueError):
    """An option that cannot be used; the message is one line that names file, key and what was expected."""


@dataclass(frozen=True, slots=True)
class Selection:
    """One layer of rule selection; `select` None leaves what the layers below chose."""

    select: tuple[str, ...] | None = None
    extend: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()

    def decide(self, code: str, before: bool) -> bool:
        chosen = _longest(code, (*(self.select or ()), *self.extend))
        ignored = _longest(code, self.ignore)
        if chosen or ignored:
            return chosen > ignored
        return before if self.select is None else False


@dataclass(frozen=True, slots=True)
class Config:
    """Every option of a run over one project.

    root              the folder that patterns are relative to: that of the configuration file, else None
    selections        the layers of select, extend-select and ignore, the default first
    per_file_ignores  (pattern, codes); a pattern that begins with "!" means all other files
    exclude           gitignore-like patterns instead of the built-in list; None keeps that list
    extend_exclude    further ones
    cold              patterns of function names that count as cold
    functions         rows for the project's own functions, in the schema of h2dlint.apis
    pin_flags         dotted names that say whether memory can be pinned
    allowed_contexts  dotted names of context managers in which copies may block
    pin_expression    how a fix spells "pinned here"
    pinned_copy       the project's own pinned asynchronous copy, dotted
    src               folders, relative to root, that imports start from
    """

    root: Path | None = None
    file: Path | None = None
    selections: tuple[Selection, ...] = (Selection(select=DEFAULT_SELECT),)
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] = ()
    exclude: tuple[str, ...] | None = None
    extend_exclude: tuple[str, ...] = ()
    include_cold: bool = False
    include_small: bool = False
    unsafe_fixes: bool = False
    fixable: tuple[str, ...] = (EVERYTHING,)
    unfixable: tuple[str, ...] = ()
    extend_safe_fixes: tuple[str, ...] = ()
    cold: tuple[str, ...] = ()
    functions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    pin_flags: tuple[str, ...] = ()
    allowed_contexts: tuple[str, ...] = ()
    pin_expression: str | None = None
    pinned_copy: str | None = None
    src: tuple[str, ...] = (".", "src")
    report_unused_noqa: bool = False
    disable_noqa: bool = False

    def is_selected(self, code: str) -> bool:
        chosen = False
        for layer in self.selections:
            chosen = layer.decide(code, chosen)
        return chosen

    def is_fixable(self, code: str) -> bool:
        return _longest(code, self.fixable) > _longest(code, self.unfixable)

    def is_safe(self, code: str, safety: str) -> bool:
        """Whether a fix counts as safe, by itself or because the user trusts this rule's fixes."""
        return safety == "safe" or _longest(code, self.extend_safe_fixes) > 0

    def wants_opt_in(self, codes: Iterable[str]) -> bool:
        """Whether a rule of the opt-in family runs."""
        return any(code.startswith("HTD3") and self.is_selected(code) for code in codes)

    def codes(self) -> list[tuple[str, str]]:
        """(option, code) of every code that the user wrote, for validation."""
        written = [("per-file-ignores", code) for _, codes in self.per_file_ignores for code in codes]
        for layer in self.selections[1:]:
            written += [("select", code) for code in layer.select or ()]
            written += [("extend-select", code) for code in layer.extend]
            written += [("ignore", code) for code in layer.ignore]
        for option in ("fixable", "unfixable", "extend_safe_fixes"):
            written += [(option.replace("_", "-"), code) for code in getattr(self, option)]
        return written


_KINDS: dict[str, str] = {
    "select": "a list of rule codes",
    "extend-select": "a list of rule codes",
    "ignore": "a list of rule codes",
    "fixable": "a list of rule codes",
    "unfixable": "a list of rule codes",
    "extend-safe-fixes": "a list of rule codes",
    "per-file-ignores": "a table of file pattern = list of rule codes",
    "exclude": "a list of patterns",
    "extend-exclude": "a list of patterns",
    "cold": "a list of function name patterns",
    "pin-flags": "a list of dotted names",
    "allowed-contexts": "a list of dotted names",
    "src": "a list of folders",
    "include-cold": "true or false",
    "include-small": "true or false",
    "unsafe-fixes": "true or false",
    "report-unused-noqa": "true or false",
    "pin-expression": "a string",
    "pinned-copy": "a string",
    "functions": "a table of dotted name = row",
}
_SELECTIONS = ("select", "extend-select", "ignore")


def read_config(path: Path, root: Path | None = None) -> Config | None:
    """The configuration in a TOML file, None where it has no `[tool.h2dlint]`. Raises ConfigError."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    if b"h2dlint" not in data:
        return None
    try:
        table = _load_toml(data).get("tool", {})
    except ValueError as error:
        raise ConfigError(f"{path}: is not valid TOML: {error}") from None
    table = table.get("h2dlint") if isinstance(table, dict) else None
    if table is None:
        return None
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: tool.h2dlint: expected a table, found {_describe(table)}")
    return replace(build_config(table, str(path)), root=root or path.parent, file=path)


def build_config(table: Mapping[str, Any], where: str) -> Config:
    """The configuration that a `[tool.h2dlint]` table describes. Raises ConfigError, which names `where`."""
    for key, value in table.items():
        if key not in _KINDS:
            close = difflib.get_close_matches(key, _KINDS, n=1)
            hint = f"did you mean {close[0]}?" if close else f"expected one of {', '.join(sorted(_KINDS))}"
            raise ConfigError(f"{where}: tool.h2dlint.{key}: unknown key; {hint}")
        if not _fits(_KINDS[key], value):
            raise ConfigError(f"{where}: tool.h2dlint.{key}: expected {_KINDS[key]}, found {_describe(value)}")
    names = {one.name for one in fields(Config)}
    options: dict[str, Any] = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if key == "per-file-ignores":
            options[name] = tuple((pattern, tuple(codes)) for pattern, codes in value.items())
        elif name in names:
            options[name] = tuple(value) if isinstance(value, list) else value
    if any(key in table for key in _SELECTIONS):
        select = tuple(table["select"]) if "select" in table else None
        layer = Selection(select, tuple(table.get("extend-select", ())), tuple(table.get("ignore", ())))
        options["selections"] = (Selection(select=DEFAULT_SELECT), layer)
    return Config(**options)


def override(config: Config, options: Mapping[str, Any]) -> Config:
    """The configuration with command line options put over it; absent ones keep the file's values."""
    changes = {name: value for name, value in options.items() if name in _FIELDS}
    if "extend_exclude" in changes:
        changes["extend_exclude"] = (*config.extend_exclude, *changes["extend_exclude"])
    if "per_file_ignores" in changes:
        changes["per_file_ignores"] = (*config.per_file_ignores, *changes["per_file_ignores"])
    if any(name in options for name in ("select", "extend_select", "ignore")):
        layer = Selection(options.get("select"), options.get("extend_select", ()), options.get("ignore", ()))
        changes["selections"] = (*config.selections, layer)
    return replace(config, **changes)


def check_codes(config: Config, known: Iterable[str], where: str) -> None:
    """Raises ConfigError where a written code is no prefix of a known rule."""
    known = sorted(known)
    for option, code in config.codes():
        if code == EVERYTHING or any(one.startswith(code) for one in (*known, UNUSED_NOQA)):
            continue
        close = difflib.get_close_matches(code, known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"expected a prefix of {', '.join(known)}"
        raise ConfigError(f"{where}: {option}: unknown rule code {code!r}; {hint}")


class ConfigFinder:
    """Finds the configuration for a file; each folder is looked at once.

    `options` are command line options (see `override`), `file` replaces the search, `isolated` skips every file.
    `known` are the rule codes that written codes are checked against.
    """

    def __init__(
        self,
        options: Mapping[str, Any] | None = None,
        file: Path | None = None,
        isolated: bool = False,
        known: Iterable[str] | None = None,
    ) -> None:
        self._options = options or {}
        self._known = None if known is None else tuple(known)
        self._folders: dict[str, Config] = {}
        self._default = self._finish(Config(), "command line")
        self._fixed = self._default if isolated else None
        if file is not None and not isolated:
            found = read_config(file, root=Path.cwd())
            if found is None:
                raise ConfigError(f"{file}: has no [tool.h2dlint] table")
            self._fixed = self._finish(found, str(file))

    def find(self, folder: str | os.PathLike[str]) -> Config:
        """The configuration of the files in an absolute folder. Raises ConfigError."""
        if self._fixed is not None:
            return self._fixed
        folder = os.fspath(folder)
        if (known := self._folders.get(folder)) is not None:
            return known
        path = os.path.join(folder, "pyproject.toml")
        found = read_config(Path(path)) if os.path.isfile(path) else None
        if found is not None:
            config = self._finish(found, path)
        else:
            above = os.path.dirname(folder)
            config = self._default if above == folder else self.find(above)
        self._folders[folder] = config
        return config

    def _finish(self, config: Config, where: str) -> Config:
        if self._known is not None:
            check_codes(config, self._known, where)
        config = override(config, self._options)
        if self._known is not None:
            check_codes(config, self._known, "command line")
        return config


_FIELDS = frozenset(one.name for one in fields(Config)) - {"selections", "root", "file"}


def _longest(code: str, prefixes: Iterable[str]) -> int:
    """Length of the longest prefix that matches, plus one so that ALL (length 0) differs from no match."""
    plain = ["" if one == EVERYTHING else one for one in prefixes]
    return max((len(one) + 1 for one in plain if code.startswith(one)), default=0)


def _fits(kind: str, value: object) -> bool:
    match value:
        case bool():
            return kind == "true or false"
        case str():
            return kind == "a string"
        case list():
            return kind.startswith("a list") and all(isinstance(one, str) for one in value)
        case dict() if kind.startswith("a table of dotted"):
            return all(isinstance(row, dict) for row in value.values())
        case dict():
            return kind.startswith("a table of file") and all(_fits("a list", codes) for codes in value.values())
        case _:
            return False


def _describe(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case list():
            return f"a list of {', '.join(sorted({_describe(one).split()[0] for one in value}))}" if value else "a list"
        case dict():
            return "a table"
        case str():
            return f'"{value}"'
        case _:
            return f"{value!r}"


def _load_toml(data: bytes) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    table: dict[str, Any] = tomllib.loads(data.decode("utf-8-sig"))
    return table
