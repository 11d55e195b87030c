"""Seconds and peak memory to read a large profiler trace: `python -m benchmarks.trace_memory [MEGABYTES]`.

The trace is made in a temporary folder: the recorded loop of fixtures/traces, once as it is and then among as many
operators and Python calls as the size asks for, spread over the time of the loop and after it.
"""

from __future__ import annotations

import gzip
import json
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import Any

RECORDED = pathlib.Path(__file__).parents[1] / "fixtures" / "traces" / "serving.json.gz"
_READ = """
import pathlib, sys, time
from h2dlint.runtime.kineto import read_kineto
began = time.perf_counter()
stalls = read_kineto(pathlib.Path(sys.argv[1]), 100_000)
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(len(stalls), time.perf_counter() - began, peak.split()[1])
"""


def write_trace(path: pathlib.Path, size: int) -> None:
    """A Chrome trace of at least `size` bytes with the stalls of the recorded one."""
    events: list[dict[str, Any]] = json.loads(gzip.decompress(RECORDED.read_bytes()))["traceEvents"]
    noise = [event for event in events if event.get("cat") in ("cpu_op", "python_function")]
    last = max(event["ts"] + event.get("dur", 0) for event in events)
    with path.open("w", encoding="utf-8") as file:
        file.write('{"schemaVersion": 1, "traceEvents": [')
        file.write(json.dumps(events, indent=1)[1:-1])
        turn = 0
        while file.tell() < size:
            turn += 1
            # Other threads in the same time, which spans cover nothing, and the loop's own thread afterwards.
            later = [{**event, "ts": event["ts"] + turn * last} for event in noise]
            beside = [{**event, "tid": 1_000_000 + turn} for event in noise]
            file.write("," + json.dumps(later + beside, indent=1)[1:-1])
        file.write("]}")


def measure(path: pathlib.Path) -> tuple[int, float, int]:
    """Stalls found, seconds, and peak resident KiB of a process that reads the trace."""
    ran = subprocess.run([sys.executable, "-c", _READ, str(path)], capture_output=True, text=True, check=True)
    stalls, seconds, peak = ran.stdout.split()
    return int(stalls), float(seconds), int(peak)


def main(argv: list[str]) -> int:
    megabytes = int(argv[0]) if argv else 300
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "trace.json")
        began = time.perf_counter()
        write_trace(path, megabytes * 1_000_000)
        print(f"{path.stat().st_size / 1e6:.0f} MB written in {time.perf_counter() - began:.1f} s")
        stalls, seconds, peak = measure(path)
        print(f"{stalls} stalls read in {seconds:.1f} s, {peak / 1024:.0f} MiB at most")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
