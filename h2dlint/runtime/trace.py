"""`h2dlint trace FILE`: the copies of a profiler's trace that held the host, ranked by time lost."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from h2dlint.runtime.kineto import read_kineto
from h2dlint.runtime.nsys import read_nsys
from h2dlint.runtime.places import Places
from h2dlint.runtime.report import format_bytes, format_time
from h2dlint.runtime.stalls import Row, Stall, rank_stalls

_SQLITE = b"SQLite format 3\x00"


def main(argv: Sequence[str]) -> int:
    """Run the command line; returns 0 where no copy held the host, 1 where one did, 2 where the file is no trace."""
    options = _parse(argv)
    try:
        stalls = read_stalls(Path(options.file), round(options.min_stall * 1000))
    except (OSError, ValueError, EOFError) as error:
        print(f"h2dlint trace: {error}", file=sys.stderr)
        return 2
    places = Places([Path(root) for root in options.source], stalls)
    rows = rank_stalls((stall, places.find(stall)) for stall in stalls)
    text = render_json(rows) if options.output_format == "json" else render_text(rows)
    if options.output_file:
        Path(options.output_file).write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    return 1 if rows and not options.exit_zero else 0


def read_stalls(path: Path, min_ns: int) -> list[Stall]:
    """The copies of a trace of either kind that held the host for at least `min_ns`.

    Raises OSError where the file cannot be read and ValueError where it is no trace.
    """
    with path.open("rb") as file:
        sqlite = file.read(len(_SQLITE)) == _SQLITE
    return read_nsys(path, min_ns) if sqlite else read_kineto(path, min_ns)


def render_text(rows: Sequence[Row]) -> str:
    """One line a row and the findings at its place; ends with a newline."""
    lines = []
    for row in rows:
        codes = "/".join(row.codes)
        lines.append(
            f"{_name_place(row)}: {codes}{' ' * bool(codes)}{format_time(row.total_ns)} in {row.count} stalls, worst "
            f"{format_time(row.worst_ns)}, {format_bytes(row.bytes)}: {row.kind}{f' in {row.label}' * bool(row.label)}"
        )
        lines += [f"    {message}" for message in row.messages]
    count, total = sum(row.count for row in rows), sum(row.total_ns for row in rows)
    lines.append(f"h2dlint trace: {count} copies at {len(rows)} places held the host, {format_time(total)} in all")
    return "\n".join(lines) + "\n"


def render_json(rows: Sequence[Row]) -> str:
    """The rows as a JSON array."""
    return json.dumps([asdict(row) for row in rows], indent=1) + "\n"


def _name_place(row: Row) -> str:
    if not row.filename:
        return "no Python stack recorded"
    lines = str(row.line) if row.line else "|".join(map(str, row.lines)) or "?"
    return f"{row.filename}:{lines} ({row.function})"


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="h2dlint trace",
        description="List the copies of a PyTorch profiler trace (.json, .json.gz) or an Nsight Systems SQLite export "
        "that held the host, ranked by the time lost. Lines need a trace with with_stack=True.",
    )
    parser.add_argument("file", metavar="FILE")
    parser.add_argument(
        "--source", action="append", metavar="DIR", help="a source tree that the trace is of (default: .)"
    )
    parser.add_argument(
        "--min-stall", type=float, default=100.0, metavar="US", help="microseconds that make a stall (default: 100)"
    )
    parser.add_argument("--output-format", choices=("text", "json"), default="text")
    parser.add_argument("--output-file", metavar="FILE")
    parser.add_argument("--exit-zero", action="store_true", help="exit 0 also when copies held the host")
    options = parser.parse_args(argv)
    options.source = options.source or ["."]
    return options
