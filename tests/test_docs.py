"""The documentation is current, its links lead somewhere, and what it says was measured is what was measured."""

from __future__ import annotations

import json
import re
import statistics
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from h2dlint import rules  # noqa: E402
from scripts import build_docs, copy_table  # noqa: E402

PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
RULES = rules.load()


def test_generated_pages_are_current() -> None:
    stale = [str(page.relative_to(ROOT)) for page in build_docs.find_stale(build_docs.build())]
    assert not stale, f"run python -m scripts.build_docs: {', '.join(stale)}"


def test_every_rule_has_a_page_that_says_what_the_rule_says() -> None:
    pages = {page.stem: page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "rules").iterdir()}
    assert set(pages) == set(RULES)
    for code, rule in RULES.items():
        assert pages[code].startswith(f"# {code} {rule.name}\n")
        assert pages[code].endswith(f"{rule.doc}\n")
        assert ("On by default" in pages[code]) is rule.default


def slug(heading: str) -> str:
    """The anchor that a Markdown reader gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        linked = page.parent / name if name else page
        assert linked.is_file(), f"{page.name}: {target}"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", linked.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in map(slug, headings), f"{page.name}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_named_files_are_there(page: Path) -> None:
    names = re.findall(r"`((?:h2dlint|benchmarks|tests|fixtures|docs)/[\w/.*-]+)`", page.read_text(encoding="utf-8"))
    missing = [name for name in names if "NNN" not in name and not list(ROOT.glob(name))]
    assert not missing


def test_pages_name_no_path_of_this_machine() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert str(ROOT) not in text and str(Path.home()) not in text, page.name


def test_fill_writes_between_the_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_docs, "PARTS", {"one": lambda: "1\n2", "other": lambda: "3"})
    text = "a\n<!-- begin one -->\nold\n<!-- end one -->\nb\n<!-- begin other -->\n<!-- end other -->\n"
    filled = "a\n<!-- begin one -->\n1\n2\n<!-- end one -->\nb\n<!-- begin other -->\n3\n<!-- end other -->\n"
    assert build_docs.fill(text) == filled
    assert build_docs.fill(filled) == filled
    with pytest.raises(ValueError, match="unknown part 'two'; expected one of one, other"):
        build_docs.fill(text.replace("one", "two"))


def test_main_writes_what_is_not_current(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readme, folder = tmp_path / "README.md", tmp_path / "docs" / "rules"
    readme.write_text("<!-- begin rules -->\n<!-- end rules -->\n", encoding="utf-8")
    folder.mkdir(parents=True)
    (folder / "HTD999.md").write_text("a rule that is gone\n", encoding="utf-8")
    for name, value in (("ROOT", tmp_path), ("RULE_PAGES", folder), ("PAGES", (readme,))):
        monkeypatch.setattr(build_docs, name, value)
    assert build_docs.main(["--check"]) == 1
    assert "rule that is gone" in (folder / "HTD999.md").read_text(encoding="utf-8")
    assert build_docs.main([]) == 0
    assert {page.stem for page in folder.iterdir()} == set(RULES)
    assert all(f"[{code}](docs/rules/{code}.md)" in readme.read_text(encoding="utf-8") for code in RULES)
    assert build_docs.main(["--check"]) == 0


def test_a_failed_run_is_not_documented() -> None:
    with pytest.raises(ValueError, match="no-such-option"):
        build_docs.run_tool("--no-such-option")


# --- the measured table ------------------------------------------------------------------------------------------


def read_cases() -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = json.loads(copy_table.DATA.read_text(encoding="utf-8"))["cases"]
    return cases


def test_each_recorded_copy_stands_in_one_row() -> None:
    cases = read_cases()
    groups = copy_table.group_cases(cases)
    assert sum(map(len, groups.values())) == len(cases)
    assert all(groups.values())


def test_the_table_refuses_what_was_not_measured() -> None:
    cases = read_cases()
    with pytest.raises(ValueError, match="no row speaks of 'sideways'"):
        copy_table.group_cases([*cases, {"name": "sideways", "waits": True, "share": 1.0}])
    turned = [{**case, "waits": not case["waits"]} if case["name"] == "cpu" else case for case in cases]
    with pytest.raises(ValueError, match="'cpu' did otherwise"):
        copy_table.group_cases(turned)
    with pytest.raises(ValueError, match="nothing was recorded for 'a tensor without elements"):
        copy_table.group_cases([case for case in cases if not str(case["name"]).startswith("empty")])


def test_the_pages_of_the_seeds_rules_give_the_measured_figures() -> None:
    data = json.loads((ROOT / "benchmarks" / "gpu" / "serving_loop_h200.json").read_text(encoding="utf-8"))
    for code in ("HTD101", "HTD102"):
        said = [float(number) for number in re.findall(r"([\d.]+) ms", RULES[code].sections["Why it is bad"])]
        step, before, after = said
        assert step == data["step_ms"]
        for figure, name in ((before, "before"), (after, "after")):
            assert figure == round(sorted(data[name]["host_ms"])[len(data[name]["host_ms"]) // 2], 1)


# The recorded copies that the share on a rule's page speaks of.
MEASURED = {
    "HTD104": "upload pageable",
    "HTD105": "download into pageable",
    "HTD301": "(tensor|as_tensor) of",
    "HTD302": "(pinned|pageable) (to|cuda|copy_ up)",
    "HTD303": "(pinned|pageable) index|index by",
    "HTD304": "(pinned|pageable) setitem",
}


@pytest.mark.parametrize("code", sorted(MEASURED))
def test_the_pages_give_the_measured_share(code: str) -> None:
    said = re.findall(r"Measured on an H200[^.]*?(\d+) %", RULES[code].sections["Why it is bad"])
    shares = [case["share"] for case in read_cases() if re.match(MEASURED[code], str(case["name"]))]
    assert said == [f"{statistics.median(shares):.0%}".rstrip("%")]


def test_every_page_of_a_waiting_copy_gives_a_figure_and_its_card() -> None:
    for code, rule in RULES.items():
        if code[3] in "13":
            assert re.search(r"H200.*\d", rule.sections["Why it is bad"], re.DOTALL), code
