"""Time every case and write what was seen: `python -m benchmarks.gpu.copy_model OUT.json`.

tests/test_measurements.py judges the recorded facts again on any machine, so a change of the copy model that
contradicts the hardware fails without one.
"""

from __future__ import annotations

import json
import pathlib
import sys

from benchmarks.gpu.cases import list_all
from benchmarks.gpu.records import pack_fact
from benchmarks.gpu.steady import describe_machine, hold
from h2dlint.copies import judge


def measure_all() -> dict[str, object]:
    """The data file: machine, and a row for each case with facts, verdict and the share of a step that it held."""
    rows = []
    for case in list_all():
        seen = hold(case.step)
        verdict = judge(case.operation, case.source, case.destination, case.non_blocking)
        rows.append(
            {
                "name": case.name,
                "operation": case.operation,
                "non_blocking": case.non_blocking,
                "source": pack_fact(case.source),
                "destination": pack_fact(case.destination),
                "predicted": verdict.kind,
                "waits": seen.waits,
                "share": round(seen.share, 4),
            }
        )
    return {"machine": describe_machine(), "cases": rows}


def main(argv: list[str]) -> int:
    data = measure_all()
    rows = data["cases"]
    assert isinstance(rows, list)
    text = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    pathlib.Path(argv[0]).write_text(f'{{"machine": {json.dumps(data["machine"])}, "cases": [\n{text}\n]}}\n')
    wrong = [row for row in rows if (row["predicted"] == "blocks") != row["waits"] or row["predicted"] == "unknown"]
    for row in wrong:
        print(f"{row['name']}: predicted {row['predicted']}, held {row['share']:.3f} of a step")
    print(f"{len(rows)} cases, {len(wrong)} against the model")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
