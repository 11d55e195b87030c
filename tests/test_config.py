"""Options: what is accepted, what overrides what, and how mistakes are told."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest
from front_helpers import write

from h2dlint.config import Config, ConfigError, ConfigFinder, Selection, build_config, override, read_config

CODES = ("HTD101", "HTD102", "HTD201", "HTD301")


def chosen(config: Config) -> list[str]:
    return [code for code in CODES if config.is_selected(code)]


@pytest.mark.parametrize(
    ("table", "options", "expected"),
    [
        ({}, {}, ["HTD101", "HTD102", "HTD201"]),
        ({"select": ["HTD3"]}, {}, ["HTD301"]),
        ({"select": ["HTD"]}, {}, list(CODES)),
        ({"select": ["ALL"], "ignore": ["HTD10"]}, {}, ["HTD201", "HTD301"]),
        ({"extend-select": ["HTD3"]}, {}, list(CODES)),
        ({"ignore": ["HTD1"]}, {}, ["HTD201"]),
        ({"select": ["HTD1"], "ignore": ["HTD1"]}, {}, []),
        ({"select": ["HTD101"], "ignore": ["HTD1"]}, {}, ["HTD101"]),
        ({"select": ["HTD1"], "ignore": ["HTD101"]}, {}, ["HTD102"]),
        ({"ignore": ["HTD101"]}, {"select": ("HTD101",)}, ["HTD101"]),
        ({"select": ["HTD101"]}, {"ignore": ("HTD1",)}, []),
        ({"select": ["HTD101"]}, {"extend_select": ("HTD3",)}, ["HTD101", "HTD301"]),
        ({"extend-select": ["HTD3"]}, {"select": ("HTD102",)}, ["HTD102"]),
        ({}, {"select": ("HTD",), "ignore": ("HTD2",)}, ["HTD101", "HTD102", "HTD301"]),
        ({"select": []}, {}, []),
    ],
)
def test_longest_prefix_wins_layer_by_layer(
    table: dict[str, Any], options: dict[str, Any], expected: list[str]
) -> None:
    assert chosen(override(build_config(table, "here"), options)) == expected


def test_every_key_is_read() -> None:
    config = build_config(
        {
            "per-file-ignores": {"tests/*": ["HTD1"]},
            "exclude": ["a"],
            "extend-exclude": ["b"],
            "include-cold": True,
            "include-small": True,
            "unsafe-fixes": True,
            "report-unused-noqa": True,
            "fixable": ["HTD1"],
            "unfixable": ["HTD102"],
            "extend-safe-fixes": ["HTD101"],
            "cold": ["warm_*"],
            "functions": {"pkg.make": {"effect": "new", "memory": "pinned"}},
            "pin-flags": ["pkg.PIN"],
            "allowed-contexts": ["pkg.allow"],
            "pin-expression": "pkg.can_pin()",
            "pinned-copy": "pkg.copy",
            "src": ["lib"],
        },
        "here",
    )
    assert config == Config(
        per_file_ignores=(("tests/*", ("HTD1",)),),
        exclude=("a",),
        extend_exclude=("b",),
        include_cold=True,
        include_small=True,
        unsafe_fixes=True,
        report_unused_noqa=True,
        fixable=("HTD1",),
        unfixable=("HTD102",),
        extend_safe_fixes=("HTD101",),
        cold=("warm_*",),
        functions={"pkg.make": {"effect": "new", "memory": "pinned"}},
        pin_flags=("pkg.PIN",),
        allowed_contexts=("pkg.allow",),
        pin_expression="pkg.can_pin()",
        pinned_copy="pkg.copy",
        src=("lib",),
    )
    assert config.is_fixable("HTD101") and not config.is_fixable("HTD102") and not config.is_fixable("HTD201")
    assert config.is_safe("HTD101", "unsafe") and not config.is_safe("HTD102", "unsafe")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[tool.h2dlint]\nselct = []\n", ["tool.h2dlint.selct", "did you mean select?"]),
        ("[tool.h2dlint]\nzzz = 1\n", ["tool.h2dlint.zzz", "expected one of allowed-contexts"]),
        ("[tool.h2dlint]\nselect = 'HTD1'\n", ["tool.h2dlint.select", "list of rule codes", '"HTD1"']),
        ("[tool.h2dlint]\nselect = [1]\n", ["tool.h2dlint.select", "list of rule codes"]),
        ("[tool.h2dlint]\ninclude-cold = 1\n", ["tool.h2dlint.include-cold", "true or false", "found 1"]),
        ("[tool.h2dlint]\ninclude-cold = 'yes'\n", ["true or false"]),
        ("[tool.h2dlint]\nper-file-ignores = ['a']\n", ["per-file-ignores", "table"]),
        ("[tool.h2dlint]\nper-file-ignores = {a = 'HTD1'}\n", ["per-file-ignores", "table"]),
        ("[tool.h2dlint]\nfunctions = {a = 'new'}\n", ["tool.h2dlint.functions", "row"]),
        ("[tool.h2dlint]\npin-expression = []\n", ["pin-expression", "a string"]),
        ("[tool]\nh2dlint = 3\n", ["tool.h2dlint", "table"]),
        ("[tool.h2dlint\n", ["not valid TOML", "line 1"]),
        ("[tool.h2dlint]\nselect = ['HTD999']\n", ["select", "HTD999", "expected a prefix of HTD101"]),
        ("[tool.h2dlint]\nignore = ['HTD1011']\n", ["ignore", "HTD1011", "did you mean HTD101?"]),
        ("[tool.h2dlint]\nper-file-ignores = {a = ['E501']}\n", ["per-file-ignores", "E501"]),
        ("[tool.h2dlint]\nunfixable = ['htd101']\n", ["unfixable", "htd101"]),
    ],
)
def test_mistakes_name_file_key_and_what_was_expected(tmp_path: Path, text: str, words: list[str]) -> None:
    path = write(tmp_path, {"pyproject.toml": text}) / "pyproject.toml"
    with pytest.raises(ConfigError) as caught:
        ConfigFinder(known=CODES).find(tmp_path)
    assert "\n" not in str(caught.value)
    for word in [str(path), *words]:
        assert word in str(caught.value)


def test_a_wrong_code_on_the_command_line_is_said_to_be_there() -> None:
    with pytest.raises(ConfigError, match="command line: select: unknown rule code 'HTD9'"):
        ConfigFinder({"select": ("HTD9",)}, known=CODES)


def test_the_nearest_table_counts(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "pyproject.toml": "[tool.h2dlint]\ninclude-cold = true\n",
            "a/pyproject.toml": "[tool.other]\nx = 1\n",
            "a/b/pyproject.toml": "\ufeff[tool.h2dlint]\ninclude-small = true\n",
            "a/b/c/pyproject.toml": "this is not TOML and not ours",
        },
    )
    (tmp_path / "a/b/c/d").mkdir()
    finder = ConfigFinder()
    assert finder.find(tmp_path / "a").include_cold and finder.find(tmp_path / "a").root == tmp_path
    inner = finder.find(tmp_path / "a/b/c/d")
    assert (inner.include_cold, inner.include_small, inner.root) == (False, True, tmp_path / "a/b")
    assert finder.find(tmp_path / "a/b/c/d") is inner
    assert ConfigFinder(isolated=True).find(tmp_path) == Config()
    fixed = ConfigFinder(file=tmp_path / "pyproject.toml").find(tmp_path / "a/b")
    assert fixed.include_cold and fixed.root == Path.cwd()


def test_a_named_configuration_must_be_one(tmp_path: Path) -> None:
    write(tmp_path, {"x.toml": "a = 1\n"})
    with pytest.raises(ConfigError, match=r"no \[tool.h2dlint\]"):
        ConfigFinder(file=tmp_path / "x.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        ConfigFinder(file=tmp_path / "absent.toml")
    assert read_config(tmp_path / "x.toml") is None


def test_command_line_options_beat_the_file(tmp_path: Path) -> None:
    table = (
        "[tool.h2dlint]\nexclude = ['a']\nextend-exclude = ['b']\ninclude-cold = true\nper-file-ignores = {p = []}\n"
    )
    write(tmp_path, {"pyproject.toml": table})
    options = {"exclude": ("x",), "extend_exclude": ("y",), "per_file_ignores": (("q", ()),), "jobs": 3, "config": None}
    config = ConfigFinder(options).find(tmp_path)
    assert config.exclude == ("x",)
    assert config.extend_exclude == ("b", "y")
    assert config.per_file_ignores == (("p", ()), ("q", ()))
    assert config.include_cold


def test_configurations_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        Config().include_cold = True  # type: ignore[misc]
    assert Selection().decide("HTD101", True) is True
