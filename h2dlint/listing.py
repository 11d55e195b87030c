"""List the calls that move tensors between host and device, found or not, cold or not."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from h2dlint import rules
from h2dlint.config import ConfigError
from h2dlint.model import Site
from h2dlint.report.json import describe_steps
from h2dlint.rules import Rule

FORMATS = ("text", "json", "summary")


def render(sites: Sequence[Site], name: str) -> str:
    """The sites as lines, as a JSON array, or counted by verdict and by code."""
    match name:
        case "json":
            return json.dumps([describe(site) for site in sites], indent=2) + "\n"
        case "summary":
            return _summarize(sites)
        case _:
            return "".join(_render_line(site) for site in sites)


def describe(site: Site) -> dict[str, Any]:
    """The object of one site."""
    return {
        "filename": site.filename,
        "row": site.row,
        "end_row": site.end_row,
        "column": site.column,
        "operation": site.operation,
        "direction": site.verdict.direction,
        "memory": site.memory,
        "layout": site.layout,
        "verdict": site.verdict.kind,
        "codes": list(site.codes),
        "cold": site.cold,
        "small": site.small,
        "reason": site.verdict.reason,
        "evidence": describe_steps(site.steps),
    }


def compare(sites: Sequence[Site], path: str, name: str) -> tuple[str, bool]:
    """The sites beside what a `watch` run observed, and whether the two contradict each other."""
    from h2dlint.runtime.observed import join, read, render

    try:
        rows = join(sites, read(path))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read as what `h2dlint watch` writes: {error}") from None
    text = json.dumps([row.to_dict() for row in rows], indent=2) + "\n" if name == "json" else render(rows)
    return text, any(row.contradiction for row in rows)


def explain(codes: Iterable[str], name: str) -> str:
    """The pages of the rules, in the order of the codes."""
    known = rules.load()
    chosen = [known[code] for code in codes]
    if name == "json":
        keys = ("code", "name", "default", "summary", "doc")
        return json.dumps([{key: getattr(rule, key) for key in keys} for rule in chosen], indent=2) + "\n"
    return "\n".join(_render_rule(rule) for rule in chosen)


def _render_rule(rule: Rule) -> str:
    title = f"# {rule.code} {rule.name} ({'on' if rule.default else 'off'} by default)"
    return f"{title}\n\n{rule.doc.strip()}\n"


def _render_line(site: Site) -> str:
    notes = [*site.codes, *(word for word, holds in (("cold", site.cold), ("small", site.small)) if holds)]
    place = f"{site.filename}:{site.row}:{site.column}"
    facts = f"{site.operation} {site.verdict.direction} {site.memory} {site.layout}"
    tail = f" [{' '.join(notes)}]" if notes else ""
    return f"{place}: {site.verdict.kind}: {facts}: {site.verdict.reason}{tail}\n"


def _summarize(sites: Sequence[Site]) -> str:
    verdicts = Counter((site.verdict.kind, site.verdict.direction) for site in sites)
    codes = Counter(code for site in sites for code in site.codes)
    files = len({site.filename for site in sites})
    lines = [f"{len(sites)} sites in {files} files"]
    lines += [f"{count:6} {kind} {direction}" for (kind, direction), count in sorted(verdicts.items())]
    lines += [f"{count:6} {code}" for code, count in sorted(codes.items())]
    return "\n".join(lines) + "\n"
