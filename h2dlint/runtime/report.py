"""The report of a watch as text and as JSON, and the way back from JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from h2dlint.runtime.observation import SYNC, Observation

VERSION = 1
"""The format of the JSON report; it changes when a consumer must."""


def render_text(rows: Sequence[Observation], notes: Iterable[str] = ()) -> str:
    """The faults first, then what was let pass and why, one line each; ends with a newline."""
    found = [row for row in rows if row.found]
    lines = []
    for row in found:
        lines += [f"{_describe(row)}: {row.reason}", f"    instead: {row.advice}"]
    others = [row for row in rows if row.verdict == "blocks" and not row.found]
    lines += [f"{_describe(row)} ({_excuse(row)})" for row in others]
    lines += [f"{_describe(row)}: not decided: {row.reason}" for row in rows if row.verdict == "unknown"]
    lines += [f"note: {note}" for note in notes]
    copies = [row for row in rows if row.operation != SYNC]
    seen, lost = sum(row.count for row in copies), sum(row.host_ns for row in found)
    lines.append(
        f"h2dlint watch: {seen} copies on {len({(row.filename, row.row) for row in copies})} lines seen; "
        f"{len(found)} hold the host, {format_time(lost)} in all"
    )
    return "\n".join(lines) + "\n"


def render_json(rows: Sequence[Observation], notes: Iterable[str] = ()) -> str:
    """The report as a JSON object: version, torch, device, rows, notes."""
    import torch

    ready = torch.cuda.is_initialized()
    device = torch.cuda.get_device_name() if ready else None
    report = {
        "version": VERSION,
        "torch": torch.__version__,
        "device": device,
        "rows": [row.to_dict() for row in rows],
        "notes": list(notes),
    }
    return json.dumps(report, indent=1) + "\n"


def read_json(text: str) -> list[Observation]:
    """The rows of a report that `render_json` wrote. Raises ValueError for anything else."""
    try:
        report = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"not a watch report: {error}") from error
    if not isinstance(report, dict) or report.get("version") != VERSION or not isinstance(report.get("rows"), list):
        raise ValueError(f"not a watch report of version {VERSION}")
    return [Observation.from_dict(row) for row in report["rows"]]


def format_time(ns: int | float) -> str:
    """Nanoseconds as people read them."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= size:
            return f"{ns / size:.1f} {unit}"
    return f"{ns:.0f} ns"


def format_bytes(size: int | float) -> str:
    """Bytes as people read them, in powers of 1024."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def _describe(row: Observation) -> str:
    place = f"{row.filename}:{row.row}:{row.column}" if row.column else f"{row.filename}:{row.row}"
    if row.operation == SYNC:
        return f"{place}: {row.count} synchronising calls"
    codes = "/".join(row.codes)
    times = f"{format_time(row.host_ns)}, worst {format_time(row.worst_ns)}"
    return (
        f"{place}: {codes}{' ' * bool(codes)}{row.operation} {row.direction} {row.verdict}, {row.count} times, "
        f"{format_bytes(row.bytes)}, {times}"
    )


def _excuse(row: Observation) -> str:
    if row.allowed:
        return f"allowed: {row.allowed}"
    if row.small:
        return "small: the driver buffers it"
    if row.cold:
        return "cold: it ran too seldom to count"
    return "seen by the sync debug mode" if row.operation == SYNC else "a wait that the call asks for"
