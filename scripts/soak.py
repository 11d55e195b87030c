"""Runs random programs before and after their fixes, and kills fixing runs at random moments; writes a JSON record.

    python -m scripts.soak [--programs N] [--kills K] [--jobs J] [--minutes M] [--seed S] [--output FILE]

The programs are those of `tests/differential`: each is run on the CPU and against a GPU played by the CPU. A killed run
mends 200 files with one finding each; after it every file has to be old or new, and what it left has to be gone after
the next run that ends. The exit status is 1 if a program differs, a kill does harm, or not all were done in time.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial, wraps
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# One task of the pool: long enough to hide its start, short enough to end soon after the time is over.
PROGRAMS_A_TASK = 250
KILLS_A_TASK = 10
FILES = 200
BEFORE = b"""import torch


def upload(lengths, device):
    ends = torch.tensor(lengths, dtype=torch.int32)
    return ends.to(device, non_blocking=True)
"""


@dataclass
class Record:
    """What was done; `harm` tells of kills, `disagreements` of programs. `pieces` counts the kinds of copies drawn."""

    programs: int = 0
    changed: int = 0
    disagreements: list[str] = field(default_factory=list)
    pieces: Counter[str] = field(default_factory=Counter)
    kills: int = 0
    upon_writing: int = 0
    upon_temporary: int = 0
    harm: list[str] = field(default_factory=list)

    def add(self, other: Record) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    @property
    def failed(self) -> bool:
        return bool(self.disagreements or self.harm)

    def __str__(self) -> str:
        return (
            f"{self.programs} programs, {self.changed} of them fixed, {len(self.disagreements)} disagreements; "
            f"{self.kills} kills, {self.upon_writing} while writing, {len(self.harm)} did harm"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=1_000)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--minutes", type=float, default=7.5, help="start nothing new after this")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--output", type=Path, help="write the record to this file")
    options = parser.parse_args()
    start = time.monotonic()
    record = soak(options.programs, options.kills, options.jobs, start + 60 * options.minutes, options.seed)
    seconds = time.monotonic() - start
    print(f"{seconds:.0f} s: {record}")
    for what in [*record.disagreements[:3], *record.harm[:3]]:
        print(what)
    if options.output:
        about = describe(options.seed, options.jobs, options.programs, options.kills, seconds)
        options.output.write_text(json.dumps({**about, **vars(record)}, indent=2) + "\n", "utf-8")
    return 1 if record.failed or record.programs < options.programs or record.kills < options.kills else 0


def describe(seed: int, jobs: int, programs: int, kills: int, seconds: float) -> dict[str, object]:
    import torch

    return {
        "asked": {"programs": programs, "kills": kills},
        "seed": seed,
        "seconds": round(seconds, 1),
        "jobs": jobs,
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def soak(programs: int, kills: int, jobs: int, deadline: float, seed: int) -> Record:
    """All that was done before the deadline (on `time.monotonic`). Prints a line a minute."""
    record, start = Record(), time.monotonic()
    tasks = [partial(kill_runs, seed + n, count) for n, count in enumerate(split(kills, KILLS_A_TASK))]
    tasks += [partial(run_programs, seed + n, count) for n, count in enumerate(split(programs, PROGRAMS_A_TASK))]
    # Long tasks of both kinds side by side, so that the kills also come upon a busy machine.
    random.Random(seed).shuffle(tasks)
    waiting: set[Future[Record]] = set()
    said = 0
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        while tasks or waiting:
            if time.monotonic() >= deadline:
                tasks.clear()
            while tasks and len(waiting) < jobs:
                waiting.add(pool.submit(tasks.pop()))
            done, waiting = wait(waiting, timeout=5, return_when=FIRST_COMPLETED)
            for future in done:
                record.add(future.result())
            if (minute := int((time.monotonic() - start) // 60)) > said:
                said = minute
                print(f"minute {minute}: {record}", flush=True)
    return record


def split(total: int, size: int) -> list[int]:
    return [min(size, total - begun) for begun in range(0, total, size)]


# --- programs ----------------------------------------------------------------------------------------------------


def run_programs(seed: int, programs: int) -> Record:
    """Tries so many programs, drawn from the seed; one that raises in the fixer is a disagreement too."""
    sys.path[:0] = [str(ROOT / "tests" / "differential")]
    try:
        import fix_programs
        from exploring import explore
    finally:
        del sys.path[0]

    pieces: Counter[str] = Counter()
    kinds = fix_programs.KINDS
    fix_programs.KINDS = tuple(count_calls(kind, pieces) for kind in kinds)
    try:
        tally = explore(seed, programs)
    except Exception as error:
        return Record(programs, disagreements=[f"seed {seed}: {type(error).__name__}: {error}"], pieces=pieces)
    finally:
        fix_programs.KINDS = kinds
    return Record(tally.programs, tally.changed, [f"seed {seed}: {what}" for what in tally.failures], pieces)


def count_calls(function: Any, counter: Counter[str]) -> Any:
    @wraps(function)
    def counted(*args: Any) -> Any:
        counter[function.__name__] += 1
        return function(*args)

    return counted


# --- kills -------------------------------------------------------------------------------------------------------


def kill_runs(seed: int, kills: int) -> Record:
    """Kills so many fixing runs over one folder; each begins with the files as the last one left them."""
    chance, record = random.Random(seed), Record()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "package")
        folder.mkdir()
        renew(folder)
        start = time.monotonic()
        finish(folder)
        length = time.monotonic() - start
        after = (folder / "m000.py").read_bytes()
        if after == BEFORE:
            record.harm.append("a run that nobody killed fixed nothing")
        renew(folder)
        # A run that was over before its kill does not count.
        for _ in range(4 * kills):
            if record.kills == kills:
                break
            record.kills += kill_one(folder, after, length, chance, record)
            if contents(folder) == {after}:
                renew(folder)
        finish(folder)
        if contents(folder) != {after}:
            record.harm.append(f"seed {seed}: a run after the kills left a file unfixed")
        if left := [path.name for path in folder.iterdir() if path.suffix != ".py"]:
            record.harm.append(f"seed {seed}: a run after the kills left {left}")
    return record


def kill_one(folder: Path, after: bytes, length: float, chance: random.Random, record: Record) -> int:
    """One kill; every second one waits for the first write, as most of a run is start and reading."""
    written = folder.stat().st_mtime_ns
    late = chance.random() < 0.5
    with start_run(folder) as process:
        while late and process.poll() is None and folder.stat().st_mtime_ns == written:
            time.sleep(0.001)
        time.sleep(chance.uniform(0, length * (0.5 if late else 1)))
        running = process.poll() is None
        process.send_signal(signal.SIGKILL)
    record.upon_writing += running and folder.stat().st_mtime_ns != written
    record.upon_temporary += any(path.suffix != ".py" for path in folder.iterdir())
    if wrong := contents(folder) - {BEFORE, after}:
        record.harm.append(f"a kill left a file that is neither old nor new: {next(iter(wrong))!r}")
    if (count := len(list(folder.glob("*.py")))) != FILES:
        record.harm.append(f"a kill left {count} files of {FILES}")
    return int(running)


def renew(folder: Path) -> None:
    for number in range(FILES):
        (folder / f"m{number:03}.py").write_bytes(BEFORE)


def contents(folder: Path) -> set[bytes]:
    return {path.read_bytes() for path in folder.glob("*.py")}


def start_run(folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "h2dlint", "--fix", "--isolated", "--quiet", "--jobs", "1", str(folder)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=ROOT)


def finish(folder: Path) -> None:
    with start_run(folder) as process:
        process.wait()


if __name__ == "__main__":
    sys.exit(main())
