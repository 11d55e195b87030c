"""HTD201 and HTD202: each race of the fixtures is found at its copy and names its use, and nothing else is found."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

import h2dlint
from h2dlint.config import Config, Selection
from h2dlint.model import Finding

FIXTURES = Path(__file__).parent.parent / "fixtures" / "races"
RACES = Config(selections=(Selection(select=("HTD2",)),))
MARK = re.compile(r"# (HTD20\d|use): ([\w ]+?)(?= #|$)")
# In no project, so that nobody else calls what is written here.
ALONE = "/no-such-folder/example.py"
PREAMBLE = 'import torch\ndev = torch.zeros(4096, device="cuda")\n'


def marks(text: str) -> dict[str, dict[str, int]]:
    """The rows of each race: {"name": {"HTD201": 3, "use": 5}}."""
    found: dict[str, dict[str, int]] = {}
    for row, line in enumerate(text.split("\n"), 1):
        for word, name in MARK.findall(line):
            found.setdefault(name, {})[word] = row
    return found


def races(text: str, config: Config = RACES) -> list[Finding]:
    return h2dlint.lint_source(text, filename=ALONE, config=config)


def codes(body: str, config: Config = RACES) -> list[str]:
    return [one.code for one in races(PREAMBLE + body, config)]


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.py")), ids=lambda path: path.stem)
def test_fixture(path: Path) -> None:
    text = path.read_text("utf-8")
    wanted = {(word, row, rows["use"]) for rows in marks(text).values() for word, row in rows.items() if word != "use"}
    assert {(one.code, one.row, one.steps[-1].row) for one in races(text)} == wanted


def test_fixtures_hold_both_kinds() -> None:
    words = {
        word for path in FIXTURES.glob("*.py") for rows in marks(path.read_text("utf-8")).values() for word in rows
    }
    assert words == {"HTD201", "HTD202", "use"}


def test_message_names_the_use() -> None:
    (read,) = races(PREAMBLE + "host = dev.to('cpu', non_blocking=True)\nprint(host)\n")
    assert "line 4" in read.message and "synchronize" in read.message
    (write,) = races(
        PREAMBLE + "host = torch.ones(9, pin_memory=True)\ndev.copy_(host, non_blocking=True)\nhost[0] = 2\n"
    )
    assert "`host`" in write.message and "line 5" in write.message and write.fix is None


def test_fix_waits_behind_the_copy() -> None:
    text = PREAMBLE + "def read():\n    host = dev.to('cpu', non_blocking=True)\n    return host.tolist()\n"
    assert h2dlint.fix_source(text, ALONE, config=RACES).source == text
    result = h2dlint.fix_source(text, ALONE, unsafe=True, config=RACES)
    lines = str(result.source).split("\n")
    assert lines[4] == "    torch.cuda.current_stream().synchronize()"
    assert result.fixed == 1 and not result.findings
    ast.parse(str(result.source))


def test_fixed_code_runs_without_cuda() -> None:
    text = "import torch\ndef read(x):\n    host = x.to('cpu', non_blocking=True)\n    return host.tolist()\n"
    result = h2dlint.fix_source(text, ALONE, unsafe=True, config=RACES)
    assert result.fixed == 1 and not result.findings
    scope: dict[str, Any] = {}
    exec(str(result.source), scope)
    with mock.patch("torch.cuda.is_available", return_value=False):
        assert scope["read"](torch.arange(3)) == [0, 1, 2]


@pytest.mark.parametrize(
    "body",
    [
        "print(dev.to('cpu', non_blocking=True))\n",
        "a = 1; host = dev.to('cpu', non_blocking=True)\nprint(host)\n",
        "host = dev.to('cpu', non_blocking=True); print(host)\n",
    ],
)
def test_no_fix_where_the_wait_has_no_line(body: str) -> None:
    (found,) = races(PREAMBLE + body)
    assert found.fix is None and found.declined


def test_own_wait_by_configuration() -> None:
    body = "import mine\nhost = dev.to('cpu', non_blocking=True)\nmine.settle()\nprint(host)\n"
    taught = Config(selections=RACES.selections, functions={"mine.settle": {"effect": "sync", "waits": "device"}})
    assert codes(body) == ["HTD201"]
    assert codes(body, taught) == []


@pytest.mark.parametrize("when", ["done.synchronize()", "while not done.query(): pass", "torch.cuda.synchronize()"])
def test_guard_between_methods(when: str) -> None:
    body = """
class Reader:
    def __init__(self):
        self.host = torch.zeros(4096, pin_memory=True)

    def start(self, done):
        self.host.copy_(dev, non_blocking=True)
        {record}

    def finish(self, done):
        {wait}
        return self.host.tolist()
"""
    assert codes(body.format(record="done.record()", wait=when)) == []
    assert codes(body.format(record="pass", wait="pass")) == ["HTD201"]


def test_loops_and_recursion_end() -> None:
    body = """
def again(host, n):
    while True:
        for _ in range(n):
            try:
                again(host, n)
            except ValueError:
                continue
            finally:
                n += 1
        if n > 3:
            break
    return again(host, n)

def start():
    host = dev.to('cpu', non_blocking=True)
    return again(host, 2)
"""
    assert codes(body) == []
