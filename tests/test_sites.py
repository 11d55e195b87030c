"""Every site of the fixtures in fixtures/sites, with its verdict, direction, codes and marks; and no site more.

A comment on the first line of the call says it: `# site: blocks h2d HTD101`, `# site: async`, `# site: unknown`, with
`cold`, `small` or `captured` where it is so. A file whose docstring says `sites: opt-in` is read with the rules that
are off by default. An admitted miss, `(missed: unknown)`, may only be silence.
"""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from fact_helpers import FIXTURES, comments

from h2dlint.config import Config
from h2dlint.model import Site
from h2dlint.project import Module, Project
from h2dlint.sites import find_sites

FILES = sorted((FIXTURES / "sites").glob("*.py"))
FLAGS = ("cold", "small", "captured")


def load(path: Path) -> Module:
    return Project(None, Config()).load(path)


def sites_of(path: Path) -> list[Site]:
    module = load(path)
    return find_sites(module.project, module, opt_in="sites: opt-in" in (ast.get_docstring(module.tree) or ""))


def spell(site: Site, wanted: set[str]) -> set[str]:
    """A site in the words of the comments; the direction only where the comment gives one."""
    words = {site.verdict.kind, *site.codes, *(flag for flag in FLAGS if getattr(site, flag))}
    return words | ({site.verdict.direction} if wanted & {"h2d", "d2h", "d2d", "h2h"} else set())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_sites(path: Path) -> None:
    marks = {row: (said, missed) for row, said, missed in comments(path.read_text(encoding="utf-8"), "site")}
    wrong = []
    found = sites_of(path)
    for site in found:
        said, missed = marks.get(site.row, ("no site", None))
        wanted = set((missed or said).split())
        if spell(site, wanted) != wanted:
            words = " ".join(sorted(spell(site, {"h2d"})))
            wrong.append(f"{path.name}:{site.row}: expected {missed or said}, found {words}: {site.verdict.reason}")
    rows = Counter(site.row for site in found)
    wrong += [f"{path.name}:{row}: found {rows[row]} sites, expected 1" for row in marks if rows[row] != 1]
    assert not wrong, "\n" + "\n".join(wrong)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_misses_are_silence(path: Path) -> None:
    for row, _, missed in comments(path.read_text(encoding="utf-8"), "site"):
        assert missed is None or missed.split()[0] == "unknown", f"{path.name}:{row} admits a wrong verdict"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_sites_point_at_their_calls(path: Path) -> None:
    module = load(path)
    for site in sites_of(path):
        text = module.lines[site.row - 1][site.column - 1 :]
        first = ast.unparse(site.call).partition("(")[0].partition("[")[0] if site.call is not None else ""
        assert text.startswith(first.split(".")[0].split("(")[0]), (site.row, text)
        assert (site.row, site.column) < (site.end_row, site.end_column)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_is_known_has_evidence(path: Path) -> None:
    for site in sites_of(path):
        if site.codes and site.operation in ("to", "cuda", "copy_") and site.verdict.fault != "missing non_blocking":
            assert site.steps, f"{path.name}:{site.row}: no evidence"
            assert all(step.row >= 1 and step.message for step in site.steps)
        if site.verdict.kind == "unknown":
            assert site.verdict.reason


def test_columns_count_characters(tmp_path: Path) -> None:
    path = tmp_path / "wide.py"
    path.write_text('import torch\n\n\ndef f():\n    "äö"; torch.zeros(3).cuda(non_blocking=True)\n', encoding="utf-8")
    (site,) = sites_of(path)
    assert site.column == 11


def test_opt_in_only_adds(tmp_path: Path) -> None:
    for path in FILES:
        module = load(path)
        plain = find_sites(module.project, module, opt_in=False)
        more = find_sites(module.project, module, opt_in=True)
        seen = {replace(site, call=None, function=None) for site in more}
        assert all(replace(site, call=None, function=None) in seen for site in plain)
