"""Write the parts of the documentation that come from the code, the data and the tool itself.

`python -m scripts.build_docs` writes them. With `--check` it names what is not current, writes nothing, and exits 1.

Rule pages are whole files. In other pages a part stands between `<!-- begin NAME -->` and `<!-- end NAME -->`, where
NAME is one of `PARTS`.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from h2dlint import facts, rules, values
from h2dlint.rules import Rule
from scripts.copy_table import render_table

ROOT = Path(__file__).parent.parent
RULE_PAGES = ROOT / "docs" / "rules"
PAGES = (ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in ("architecture", "copy-model", "fixes")))
_PART = re.compile(r"(<!-- begin (?P<name>[\w-]+) -->\n).*?(<!-- end (?P=name) -->)", re.DOTALL)


def build() -> dict[Path, str]:
    """The text that each page should have. Raises ValueError for a part that nobody knows how to write."""
    pages = {RULE_PAGES / f"{rule.code}.md": render_rule(rule) for rule in rules.load().values()}
    return pages | {page: fill(page.read_text(encoding="utf-8")) for page in PAGES}


def render_rule(rule: Rule) -> str:
    """A rule's page: what its module says of itself."""
    state = "On by default." if rule.default else "Off by default: `--extend-select` it."
    return f"# {rule.code} {rule.name}\n\n{state} [All rules](../../README.md#rules)\n\n{rule.doc}\n"


def fill(text: str) -> str:
    """The text with its marked parts written anew."""

    def write(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in PARTS:
            raise ValueError(f"unknown part {name!r}; expected one of {', '.join(PARTS)}")
        return f"{match[1]}{PARTS[name]()}\n{match[3]}"

    return _PART.sub(write, text)


def run_tool(*arguments: str) -> str:
    """What `h2dlint` prints on standard output, in the repository's root. Raises ValueError where the run failed."""
    command = [sys.executable, "-m", "h2dlint", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8")
    if done.returncode not in (0, 1):
        raise ValueError(f"h2dlint {' '.join(arguments)} failed: {done.stderr.strip()}")
    return done.stdout.rstrip()


def show_run(*arguments: str, language: str = "text") -> str:
    """A command and what it prints, fenced."""
    return f"```{language}\n$ h2dlint {' '.join(arguments)}\n{run_tool(*arguments)}\n```"


def list_rules() -> str:
    lines = ["| code | name | finds | default |", "|---|---|---|---|"]
    for rule in rules.load().values():
        code = f"[{rule.code}](docs/rules/{rule.code}.md)"
        lines.append(_join_cells(code, rule.name, rule.summary.rstrip("."), "on" if rule.default else "off"))
    return "\n".join(lines)


def list_bounds() -> str:
    return "\n".join(
        [
            "| at most | of |",
            "|---:|---|",
            f"| {facts.MAX_STEPS:,} | questions asked for one site |",
            f"| {facts.MAX_DEPTH:,} | questions open at once, one waiting for the other |",
            f"| {facts.MAX_FRAMES:,} | calls followed into each other |",
            f"| {facts.MAX_CALLERS:,} | callers looked at where a parameter decides |",
            f"| {facts.MAX_TURNS:,} | turns of a loop until its values have to stay as they are |",
            f"| {values.MAX_ALTERNATIVES:,} | values that one expression may have on different paths |",
            f"| {values.MAX_NESTING:,} | containers in containers that are told apart where paths join |",
        ]
    )


def describe_loop() -> str:
    """The measured serving loop, in words."""
    data = read_data("serving_loop")
    before, after = (sorted(data[name]["host_ms"])[len(data[name]["host_ms"]) // 2] for name in ("before", "after"))
    return (
        f"In a loop with {data['step_ms']:g} ms of GPU work a step, two such copies held the host for {before:.2f} ms "
        f"of every step; after the fixes it was {after:.2f} ms ({name_machine(data)})."
    )


def describe_overhead() -> str:
    """What `watch` adds to a call, in words; copies are the calls that cross between host and device."""
    data = read_data("watch_overhead")
    added = {name: each["under_us"] - each["without_us"] for name, each in data["calls"].items()}
    copies = max(each for name, each in added.items() if name.endswith(("h2d", "d2h")))
    others = max(each for name, each in added.items() if not name.endswith(("h2d", "d2h")))
    return (
        f"It adds up to {copies:.1f} µs to a copy between host and device and at most {others:.1f} µs to any other "
        f"call that it has to look at ({name_machine(data)})."
    )


def tabulate_costs(row_bytes: int = 4096, counts: Sequence[int] = (1, 3, 4, 8, 16, 64, 256, 1024)) -> str:
    """What each way to upload padded rows costs the host."""
    data = read_data("fix_costs")
    table = {row["rows"]: row["ways"] for row in data["rows"] if row["row_bytes"] == row_bytes}
    lines = [
        f"Microseconds of host time to upload rows of {row_bytes:,} bytes from a padded pinned buffer, the stream idle "
        f"({name_machine(data)}).",
        "",
        _join_cells("way", *(f"{count:,} row{'s' * (count > 1)}" for count in counts)),
        f"|---|{'---:|' * len(counts)}",
    ]
    for way in next(iter(table.values())):
        lines.append(_join_cells(way, *(f"{round(table[count][way]['host']):,}" for count in counts)))
    return "\n".join(lines)


def _join_cells(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def read_data(name: str) -> Any:
    return json.loads((ROOT / "benchmarks" / "gpu" / f"{name}_h200.json").read_text(encoding="utf-8"))


def name_machine(data: Any) -> str:
    machine = data["machine"]
    return f"{machine['card']}, driver {machine['driver']}, PyTorch {machine['torch']}, {machine['date']}"


PARTS: dict[str, Callable[[], str]] = {
    "findings": lambda: show_run("fixtures/seed"),
    "diff": lambda: show_run("--diff", "--exit-zero", "fixtures/seed", language="diff"),
    "sites": lambda: show_run("sites", "--output-format", "summary", "fixtures/seed"),
    "trace": lambda: show_run("trace", "--exit-zero", "--source", "fixtures/traces", "fixtures/traces/serving.json.gz"),
    "loop": describe_loop,
    "overhead": describe_overhead,
    "rules": list_rules,
    "bounds": list_bounds,
    "costs": tabulate_costs,
    "measured": render_table,
}


def find_stale(pages: dict[Path, str]) -> list[Path]:
    """The pages that differ from what is on disk, and rule pages without a rule."""
    changed = [page for page, text in pages.items() if not page.exists() or page.read_text(encoding="utf-8") != text]
    return changed + sorted(set(RULE_PAGES.glob("*.md")) - set(pages))


def main(argv: Sequence[str]) -> int:
    pages = build()
    stale = find_stale(pages)
    for page in stale:
        print(f"{page.relative_to(ROOT)} {'is not current' if '--check' in argv else 'written'}")
    if "--check" in argv:
        return int(bool(stale))
    for page in stale:
        if page in pages:
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(pages[page], encoding="utf-8")
        else:
            page.unlink()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
