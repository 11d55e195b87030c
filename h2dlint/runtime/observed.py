"""Static sites and runtime observations side by side: `h2dlint sites --observed watch.json`.

Both come from the one copy model, so a contradiction is a mistake of the linter's facts, and is marked.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from h2dlint.model import Site
from h2dlint.runtime.observation import SYNC, Observation
from h2dlint.runtime.report import read_json


@dataclass(frozen=True, slots=True)
class Joined:
    """One line of the comparison.

    `site` is None for a copy that the linter does not list, `observed` is empty for a site that never ran (or never
    moved data across). `contradiction` says in words what disagrees, "" where nothing does.
    """

    filename: str
    row: int
    column: int
    operation: str
    site: Site | None
    observed: tuple[Observation, ...]
    contradiction: str = ""

    def to_dict(self) -> dict[str, object]:
        """The JSON object of this line."""
        verdicts = sorted({each.verdict for each in self.observed})
        return {
            "filename": self.filename,
            "row": self.row,
            "column": self.column,
            "operation": self.operation,
            "static": None if self.site is None else self.site.verdict.kind,
            "codes": [] if self.site is None else list(self.site.codes),
            "observed": verdicts,
            "observed_codes": sorted({code for each in self.observed for code in each.codes}),
            "count": sum(each.count for each in self.observed),
            "bytes": sum(each.bytes for each in self.observed),
            "host_ns": sum(each.host_ns for each in self.observed),
            "contradiction": self.contradiction,
        }


def read(path: str) -> list[Observation]:
    """The rows of a report that `h2dlint watch --output-format json` wrote. Raises OSError and ValueError."""
    return read_json(Path(path).read_text(encoding="utf-8"))


def join(sites: Iterable[Site], observed: Sequence[Observation]) -> list[Joined]:
    """One row for each site in order, then one for each place that only the runtime saw.

    A copy belongs to the site of its operation whose call ends where it ends (the start of a method call is told
    differently by different Pythons); where columns are not known, to the first one that holds its row.
    """
    copies = [each for each in observed if each.operation != SYNC]
    left = dict.fromkeys(range(len(copies)))
    rows = []
    for site in sites:
        mine = [number for number in left if _is_at(site, copies[number])]
        for number in mine:
            del left[number]
        seen = tuple(copies[number] for number in mine)
        rows.append(
            Joined(site.filename, site.row, site.column, site.operation, site, seen, _find_contradiction(site, seen))
        )
    alone: dict[tuple[str, int, int, str], list[Observation]] = {}
    for number in left:
        each = copies[number]
        alone.setdefault((each.filename, each.row, each.column, each.operation), []).append(each)
    rows += [Joined(*place, None, tuple(group)) for place, group in alone.items()]
    return rows


def render(rows: Sequence[Joined]) -> str:
    """One line a row, contradictions marked with `!!`; ends with a newline."""
    lines = []
    for row in rows:
        static = "not listed" if row.site is None else row.site.verdict.kind
        seen = "/".join(sorted({each.verdict for each in row.observed})) or "not run"
        count = sum(each.count for each in row.observed)
        host = sum(each.host_ns for each in row.observed) / 1e6
        line = f"{row.filename}:{row.row}:{row.column}: {row.operation} static {static}, observed {seen}"
        line += f" ({count} times, {host:.2f} ms)" if count else ""
        lines.append(f"!! {line}: {row.contradiction}" if row.contradiction else f"   {line}")
    wrong = sum(bool(row.contradiction) for row in rows)
    return "\n".join([*lines, f"{len(rows)} places, {wrong} contradictions"]) + "\n"


def _is_at(site: Site, copy: Observation) -> bool:
    if not _is_same_file(site.filename, copy.filename):
        return False
    if copy.operation != site.operation:
        return False
    if copy.column and copy.operation == "setitem":  # a site is the whole assignment, a copy its target
        return (copy.row, copy.column) == (site.row, site.column)
    if copy.end_column:
        return (copy.end_row, copy.end_column) == (site.end_row, site.end_column)
    return site.row <= copy.row <= site.end_row


def _is_same_file(one: str, other: str) -> bool:
    return one == other or os.path.realpath(one) == os.path.realpath(other)


def _find_contradiction(site: Site, seen: Sequence[Observation]) -> str:
    """A proven verdict that a copy with data in it belies. Copies of zero bytes prove nothing."""
    kinds = {each.verdict for each in seen if each.bytes}
    match site.verdict.kind:
        case "blocks" if "async" in kinds:
            return "the linter proves that this copy holds the host, and some did not"
        case "async" if "blocks" in kinds:
            return "the linter proves that this copy does not hold the host, and some did"
        case _:
            return ""
