"""Every rule is complete: its page, examples that lint as the page says, its message; and the seed, end to end."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from fix_helpers import context_of, finding, gpu, host, made, site_of, view

import h2dlint
from h2dlint import rules
from h2dlint.config import Config, Selection
from h2dlint.model import Fact

FIXTURES = Path(__file__).parent.parent / "fixtures"
SEED = FIXTURES / "seed"
EVERYTHING = Config(selections=(Selection(select=("HTD",)),), include_cold=True, include_small=True)
RULES = rules.load()
CODES = ["HTD101", "HTD102", "HTD103", "HTD104", "HTD105", "HTD301", "HTD302", "HTD303", "HTD304"]


def test_the_rules_of_this_part_are_found() -> None:
    assert set(CODES) <= set(RULES)
    assert list(RULES) == sorted(RULES)


@pytest.mark.parametrize("code", sorted(RULES))
def test_each_rule_has_a_whole_page(code: str) -> None:
    rule = RULES[code]
    assert list(rule.sections) == list(rules.SECTIONS)
    assert all(rule.sections.values())
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", rule.name)
    assert rule.default is (code[3] in "12")
    assert rule.summary.endswith((".", ":")) and len(rule.summary) <= 120
    assert "https://" in rule.sections["References"]


def example(code: str, section: str) -> str:
    blocks = re.findall(r"```python\n(.*?)```", RULES[code].sections[section], re.DOTALL)
    assert len(blocks) == 1, f"{code}: {section} holds one example"
    return str(blocks[0])


@pytest.mark.parametrize("code", sorted(RULES))
def test_examples_lint_as_the_page_says(code: str) -> None:
    bad = h2dlint.lint_source(example(code, "Example"), filename="example.py", config=EVERYTHING)
    good = h2dlint.lint_source(example(code, "Use instead"), filename="example.py", config=EVERYTHING)
    assert code in {one.code for one in bad}
    assert [one.message for one in good] == []


def test_a_module_that_is_no_rule_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = ModuleType("h2dlint.rules.htd999_broken")
    broken.__dict__.update(CODE="HTD999", NAME="broken", DEFAULT=True, __doc__="Nothing.")
    monkeypatch.setattr("importlib.import_module", lambda name: broken)
    read = rules._read_rule
    with pytest.raises(rules.RuleError, match="check has to be a function"):
        read("htd999_broken")
    broken.check = lambda site, context: None  # type: ignore[attr-defined]
    with pytest.raises(rules.RuleError, match="lacks the section 'What it does'"):
        read("htd999_broken")
    with pytest.raises(rules.RuleError, match="begin with the code HTD999"):
        read("htd998_broken")


def messages() -> list[tuple[str, str]]:
    """(code, message) of one plain site for each default rule."""
    head = "import torch\ndef f(x, d, n, dev):\n    "
    found = []
    for code, line, source, down, fault, call, kind in [
        ("HTD101", "d.copy_(x[:, :n], True)", host(view(3, 4, gap=(0,)), "pinned"), gpu(), "gapped", "", ""),
        ("HTD102", "d.copy_(torch.cat(x), non_blocking=True)", host(), gpu(), "pageable", "torch.cat", "join"),
        ("HTD103", "d.copy_(torch.tensor(x), non_blocking=True)", host(), gpu(), "pageable", "torch.tensor", "new"),
        ("HTD104", "d.copy_(torch.sub(x, 1), non_blocking=True)", host(), gpu(), "pageable", "torch.sub", "op"),
        ("HTD105", "d.copy_(x, non_blocking=True)", gpu(), host(), "pageable", "", ""),
    ]:  # fmt: skip
        context = context_of(f"{head}{line}  # site\n")
        fact: Fact = made(context, source, call, kind) if call else source
        direction = "d2h" if code == "HTD105" else "h2d"
        found.append((code, finding(context, site_of(context, code, fact, down, fault, direction=direction)).message))
    return found


@pytest.mark.parametrize(("code", "message"), messages(), ids=lambda value: value[:6])
def test_messages_say_what_happens_why_and_what_to_write(code: str, message: str) -> None:
    assert "\n" not in message
    assert "holds the host" in message
    assert "; " in message, "what to write instead stands behind a semicolon"
    assert not message.endswith(".")
    assert "`" in message


def test_a_finding_covers_the_call_and_its_statement() -> None:
    text = """\
import torch
def f(d, v):
    with d.lock, d.copy_(  # site
        torch.tensor(v), non_blocking=True
    ):
        pass
"""
    context = context_of(text)
    found = finding(context, site_of(context, "HTD103", host(), gpu()))
    assert (found.row, found.column, found.end_row, found.end_column) == (3, 18, 5, 6)
    assert found.statement == (3, 5)


# --- the seed ----------------------------------------------------------------------------------------------------


def load(side: str, name: str) -> Any:
    """A module of the seed's package, imported under a name of its own."""
    package = f"seed_{side}"
    for part in ("", *(["buffers"] if name == "runner" else []), name):
        full = f"{package}.{part}" if part else package
        path = SEED / side / f"{part or '__init__'}.py"
        spec = importlib.util.spec_from_file_location(full, path, submodule_search_locations=None if part else [])
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[full] = module
        spec.loader.exec_module(module)
    return sys.modules[f"{package}.{name}"]


SEED_FINDINGS = {"runner.py": ["HTD101", "HTD101"], "vision.py": ["HTD102"], "buffers.py": []}


@pytest.mark.parametrize("name", sorted(SEED_FINDINGS))
def test_the_seed_is_found_and_mended_as_by_hand(name: str) -> None:
    before, after = SEED / "before" / name, (SEED / "after" / name).read_text("utf-8")
    found = h2dlint.lint_source(before.read_text("utf-8"), filename=str(before))
    assert [one.code for one in found] == SEED_FINDINGS[name]
    assert [one.fix and one.fix.safety for one in found] == ["safe"] * len(found)
    result = h2dlint.fix_source(before.read_text("utf-8"), filename=str(before))
    text = result.source if isinstance(result.source, str) else result.source.decode()
    assert text == after
    assert result.findings == ()
    assert h2dlint.lint_source(after, filename=str(SEED / "after" / name)) == []


def test_the_seed_names_the_allocation_and_the_guard() -> None:
    before = SEED / "before" / "runner.py"
    first = h2dlint.lint_source(before.read_text("utf-8"), filename=str(before))[0]
    assert "buffers.py:18" in first.message
    assert any(step.filename.endswith("buffers.py") for step in first.steps)
    assert first.fix is not None and "self.inputs_ready" in first.fix.message


def test_without_its_guard_the_seed_is_not_safe() -> None:
    before = SEED / "before" / "runner.py"
    text = before.read_text("utf-8").replace("self.inputs_ready.synchronize()", "pass")
    fixes = [one.fix for one in h2dlint.lint_source(text, filename=str(before))]
    assert [fix and fix.safety for fix in fixes] == ["unsafe", "unsafe"]
    assert all(fix is not None and "record an event" in fix.why for fix in fixes)


@pytest.mark.parametrize("extra", [0, 4])
@pytest.mark.parametrize("count", [0, 1, 5])
def test_the_seed_runs_the_same_before_and_after(extra: int, count: int) -> None:
    torch = pytest.importorskip("torch")
    results = []
    for side in ("before", "after"):
        runner = load(side, "runner").Runner(8, extra, torch.device("cpu"))
        positions = torch.arange(3 * count).reshape(3, count)
        results.append(runner.step(list(range(count)), positions))
    for one, two in zip(*results):
        assert torch.equal(one, two)
        assert one.shape[-1] == count


@pytest.mark.parametrize("grids", [[], [[1, 2, 2]], [[1, 4, 2], [3, 2, 2]]])
def test_the_seed_joins_the_same_before_and_after(grids: list[list[int]]) -> None:
    torch = pytest.importorskip("torch")
    results: list[Any] = []
    for side in ("before", "after"):
        try:
            results.append(load(side, "vision").VisionTower(2, torch.device("cpu")).patch_positions(grids))
        except Exception as error:
            results.append(type(error))
    assert results[0] is results[1] if not grids else torch.equal(*results)
