"""The flag that a project pins with is taken over by a module that has none of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from h2dlint import fix_source

UTILS = "import torch\n\n\ndef can_pin():\n    return torch.cuda.is_available()\n\n\ndef other():\n    return 1\n"
USER = "import torch\nfrom app.utils import can_pin\n\nbuffer = torch.zeros(9, pin_memory=can_pin())\n"
CASE = """import torch
{head}

def upload(values, device):
    rows = torch.tensor(values)
    return rows.to(device, non_blocking=True)
"""


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """A package in which two modules pin with `can_pin()`."""
    (tmp_path / "pyproject.toml").write_text("")
    folder = tmp_path / "app"
    folder.mkdir()
    for name, text in (("__init__", ""), ("utils", UTILS), ("one", USER), ("two", USER)):
        (folder / f"{name}.py").write_text(text)
    return folder


def fixed(folder: Path, head: str) -> str:
    text = CASE.format(head=head)
    (folder / "case.py").write_text(text)
    result = fix_source(text, filename=str(folder / "case.py"))
    assert isinstance(result.source, str) and result.fixed == 1
    compile(result.source, "case.py", "exec")
    return result.source


def test_a_flag_that_is_imported_already_is_used(app: Path) -> None:
    after = fixed(app, "from app.utils import can_pin\n")
    assert "torch.tensor(values, pin_memory=can_pin())" in after
    assert after.count("import") == 2


def test_a_flag_is_imported_from_a_module_that_is_imported_already(app: Path) -> None:
    after = fixed(app, "from app.utils import other\n")
    assert "from app.utils import other\nfrom app.utils import can_pin\n" in after
    assert "pin_memory=can_pin())" in after


@pytest.mark.parametrize("head", ["", "from app.one import buffer\n", "from app.utils import other\ncan_pin = None\n"])
def test_a_flag_that_cannot_be_reached_is_left(app: Path, head: str) -> None:
    after = fixed(app, head)
    assert "pin_memory=torch.cuda.is_available()" in after


def test_one_file_alone_does_not_speak_for_the_project(app: Path) -> None:
    (app / "two.py").write_text("")
    assert "pin_memory=torch.cuda.is_available()" in fixed(app, "from app.utils import other\n")
