"""The table of docs/copy-model.md: what was measured, from the data file of `benchmarks.gpu.copy_model`.

A row speaks of the recorded copies whose names its pattern matches, the first matching row of each. All of them have to
have done what the row says, and no recorded copy may be without a row.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent.parent / "benchmarks" / "gpu" / "copy_model_h200.json"

_PACKED = "(packed|leading rows|one row|part of one row|slice of one row|rows of one plane)"
_GAPPED = "(columns|every other row|one column|narrowed|planes, rows cut|planes, columns cut|windows that overlap)"
_PERMUTED = "(turned|channels last)"
_REPEATED = "(expanded|columns expanded|turned, expanded)"
_BOTH = "(turned columns|turned, expanded)"


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of copy: what it is, which recorded names are of it, and whether it holds the host."""

    kind: str
    pattern: str
    holds: bool


UPLOADS = (
    Row("from pageable memory, whatever the layout, the dtypes and the call", "upload pageable", True),
    Row(
        "from pinned memory, repeated to fill a larger destination (`dst.copy_(src)` that broadcasts)",
        "upload pinned, .*copy_ into repeated",
        True,
    ),
    Row(
        "from pinned memory in one packed stretch (`buf`, `buf[:n]`, `buf[i]`, `buf[i, :n]`, `buf[i:i+1, :n]`, "
        "3-D `buf[0, :n]`), into any layout and any dtype",
        f"upload pinned, ({_PACKED}|contiguous_format)[,:]",
        False,
    ),
    Row(
        "from a pinned view with gaps (`buf[:, :n]`, `buf[..., :k]`, `buf[::2]`, `buf[:, 0]`, `narrow` on a later "
        "dimension, 3-D `buf[:, :n]`, windows that overlap, `buf[:, :n].t()`)",
        f"upload pinned, ({_GAPPED}|turned columns), float",
        True,
    ),
    Row(
        "from a pinned, dense, permuted tensor (`x.t()`, channels last) with `.to`, `.cuda`, or into equal strides",
        f"upload pinned, ({_PERMUTED}, float32: (to|cuda|copy_ into equal strides)|channels_last: to channels_last)$",
        False,
    ),
    Row(
        "the same into another order of dimensions, or with a change of dtype",
        f"upload pinned, ({_PERMUTED}, float|channels_last: to contiguous_format)",
        True,
    ),
    Row("from a pinned tensor that `expand` repeats", f"upload pinned, {_REPEATED}, float", True),
)

DOWNLOADS = (
    Row(
        '`gpu.to("cpu")` of a permuted tensor that has gaps, is repeated, or changes its dtype',
        f"download ({_BOTH}, float|{_PERMUTED}, float16: to)",
        True,
    ),
    Row('any other `gpu.to("cpu")`: PyTorch makes a pinned result', "download (?!into).*: to$", False),
    Row("`copy_` into pageable memory, whatever the layout and the dtype", "download into pageable", True),
    Row(
        "`copy_` into pinned memory in one packed stretch, from any layout and dtype",
        f"download into pinned, {_PACKED}, from",
        False,
    ),
    Row("`copy_` into a pinned view with gaps", f"download into pinned, ({_GAPPED}|turned columns), from", True),
    Row(
        "`copy_` into a pinned, permuted tensor from equal strides and the same dtype",
        f"download into pinned, {_PERMUTED}, from float32: copy_ from equal strides",
        False,
    ),
    Row("the same from another order of dimensions or another dtype", f"download into pinned, {_PERMUTED}, from", True),
)

WITHOUT_FLAG = (
    Row(
        "`.to`, `.cuda`, `.cpu`, `copy_` without `non_blocking`, either way, from or into pinned memory too",
        "((pinned|pageable) (to|cuda|copy_ up|copy_ down)|to cpu|cpu)$",
        True,
    ),
    Row("`gpu[i] = cpu_tensor`, pinned or not", "(pinned|pageable) setitem", True),
    Row(
        "`torch.tensor(x, device=gpu)`, `as_tensor` of a number, a list or an array",
        "(tensor|as_tensor) of a (number|list|array)$",
        True,
    ),
    Row(
        "`gpu[index]` with a tensor of integers on the host (pinned too), a list, or an array (masks too)",
        "((pinned|pageable) index|index by (list|ndarray) of (int64|bool))$",
        True,
    ),
    Row(
        "`gpu[index]` with a 0-dim integer tensor or a boolean mask tensor on the host",
        "(pinned|pageable) (0-dim index|mask|mask of bytes)$",
        False,
    ),
)

EMPTY = (Row("a tensor without elements, either way, with the flag or without", "empty, non_blocking=", False),)

SECTIONS = (
    ("Host to device, `non_blocking=True`", UPLOADS),
    ("Device to host, `non_blocking=True`", DOWNLOADS),
    ("Copies that have no `non_blocking=True`", WITHOUT_FLAG),
    ("Nothing to copy", EMPTY),
)
ROWS = tuple(row for _, rows in SECTIONS for row in rows)


def render_table() -> str:
    """The measured table as Markdown. Raises ValueError when the data says otherwise than a row does."""
    data = json.loads(DATA.read_text(encoding="utf-8"))
    groups = group_cases(data["cases"])
    machine = data["machine"]
    lines = [
        f"{len(data['cases'])} copies, measured on {machine['date']} with {machine['card']}, driver "
        f"{machine['driver']}, PyTorch {machine['torch']}. The last column is the host time of the copy as a share of "
        "a step of GPU work, lowest to highest.",
    ]
    for title, rows in SECTIONS:
        lines += ["", f"### {title}", "", "| copy | holds the host? | copies | host time |", "|---|---|---:|---:|"]
        lines += [_render_row(row, groups[row]) for row in rows]
    return "\n".join(lines)


def group_cases(cases: list[dict[str, Any]]) -> dict[Row, list[float]]:
    """The share of a step that each recorded copy took, by the row that speaks of it."""
    groups: dict[Row, list[float]] = {row: [] for row in ROWS}
    for case in cases:
        row = next(_find_rows(case["name"]), None)
        if row is None:
            raise ValueError(f"no row speaks of {case['name']!r}")
        if row.holds is not case["waits"]:
            raise ValueError(f"{case['name']!r} did otherwise than {row.kind!r}")
        groups[row].append(case["share"])
    if silent := [row.kind for row, shares in groups.items() if not shares]:
        raise ValueError(f"nothing was recorded for {silent[0]!r}")
    return groups


def _find_rows(name: str) -> Iterator[Row]:
    return (row for row in ROWS if re.match(row.pattern, name))


def _render_row(row: Row, shares: list[float]) -> str:
    answer = "**yes**" if row.holds else "no"
    return f"| {row.kind} | {answer} | {len(shares)} | {min(shares):.1%} to {max(shares):.1%} |"
