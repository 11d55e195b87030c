"""A run that is killed at any moment leaves each file old or new, and the next run sweeps up its temporaries.

`H2DLINT_KILLS=1000` kills as often as that; the ordinary run is content with a few.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from h2dlint import atomic, fix_source

KILLS = int(os.environ.get("H2DLINT_KILLS", "0"))
FILES = 200
BEFORE = b"""import torch


def upload(lengths, device):
    ends = torch.tensor(lengths, dtype=torch.int32)
    return ends.to(device, non_blocking=True)
"""
# Rewrites the files over and over, so that nearly every kill comes upon a write.
WRITER = """
import sys
from pathlib import Path
from h2dlint import atomic

one, two = (Path(name).read_bytes() for name in sys.argv[2:4])
files = sorted(Path(sys.argv[1]).glob("*.py"))
atomic.sweep(atomic.find_strays([sys.argv[1]]))
print("ready", flush=True)
while True:
    for file in files:
        data = file.read_bytes()
        atomic.replace_file(str(file), data, two if data == one else one)
"""

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL here")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of 200 files, each with one finding."""
    place = tmp_path / "package"
    place.mkdir()
    for number in range(FILES):
        (place / f"m{number:03}.py").write_bytes(BEFORE)
    return place


@pytest.fixture
def after(folder: Path) -> bytes:
    result = fix_source(BEFORE, str(folder / "m000.py"))
    assert isinstance(result.source, bytes) and result.fixed == 1
    return result.source


def contents(folder: Path) -> set[bytes]:
    return {path.read_bytes() for path in folder.glob("*.py")}


def kill(process: subprocess.Popen[bytes], delay: float) -> None:
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def test_kills_upon_writes(folder: Path, tmp_path: Path, after: bytes) -> None:
    chance = random.Random(5)
    texts = [tmp_path / "one", tmp_path / "two"]
    for path, text in zip(texts, (BEFORE, after)):
        path.write_bytes(text)
    command = [sys.executable, "-c", WRITER, str(folder), *map(str, texts)]
    caught = 0
    for _ in range(KILLS or 40):
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            # The sweep is over: what the last kill left is gone.
            assert not [stray for stray in atomic.find_strays([str(folder)]) if f"-{process.pid}-" not in stray]
            kill(process, chance.uniform(0, 0.02))
        caught += bool(atomic.find_strays([str(folder)]))
        assert contents(folder) <= {BEFORE, after}
        assert len(list(folder.glob("*.py"))) == FILES
    assert caught, "no kill came upon a write: the test shows nothing"
    atomic.sweep(atomic.find_strays([str(folder)]))
    assert sorted(path.suffix for path in folder.iterdir()) == [".py"] * FILES


def test_kills_of_the_command(folder: Path, after: bytes) -> None:
    chance = random.Random(6)
    command = [sys.executable, "-m", "h2dlint", "--fix", "--isolated", "--quiet", "--jobs", "1", str(folder)]
    killed = 0
    for _ in range(KILLS or 3):
        written = folder.stat().st_mtime_ns
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            # Most of a run is reading; the kill waits for the first file that is written.
            while process.poll() is None and folder.stat().st_mtime_ns == written:
                time.sleep(0.001)
            killed += process.poll() is None
            kill(process, chance.uniform(0, 0.2))
        assert contents(folder) <= {BEFORE, after}
        if contents(folder) == {after}:
            for path in folder.glob("*.py"):
                path.write_bytes(BEFORE)
    assert killed
    assert subprocess.run(command, check=False).returncode == 0
    assert contents(folder) == {after}
    assert sorted(path.suffix for path in folder.iterdir()) == [".py"] * FILES
