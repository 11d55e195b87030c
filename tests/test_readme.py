"""What the README promises: its commands, options, tables, settings and examples, each held to the tool."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from front_helpers import run, write

import h2dlint
from h2dlint import cli, config, runtime
from h2dlint.report import FORMATS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
# Options in the README that are not h2dlint's own.
OTHERS = {"--epochs", "--h2dlint-watch"}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def block(language: str, word: str) -> str:
    """The one block of that language that holds the word."""
    found = [text for text in blocks(language) if word in text]
    assert len(found) == 1, f"{len(found)} blocks of {language} hold {word!r}"
    return found[0]


# --- set-up ------------------------------------------------------------------------------------------------------


def test_two_commands_do_all_the_set_up() -> None:
    commands = [text.strip() for text in blocks("sh") if "venv" in text]
    assert len(commands) == 2
    for command in commands:
        assert "\n" not in command
        assert command.startswith("python3 -m venv .venv && .venv/bin/pip install -q ")
    assert commands[0].endswith("h2dlint --diff --exit-zero fixtures/seed")
    assert commands[1].endswith("'.[test]' && .venv/bin/python -m pytest")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert "torch==2.13.0" in extras["test"]


def test_the_first_command_shows_both_faults_rewritten() -> None:
    done = run("--diff", "--exit-zero", "fixtures/seed", cwd=ROOT)
    assert done.returncode == 0
    assert b"for row in range(self.positions.gpu.shape[0]):" in done.stdout
    assert b"torch.cat(pos_ids, dim=0, out=pinned)" in done.stdout
    assert b"3 would be fixed, 0 left" in done.stderr


def test_ci_runs_the_commands_of_the_readme() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "grep '^python3 -m venv ' README.md" in script
    assert len(re.findall("^python3 -m venv ", README, re.MULTILINE)) == 2


# --- the command line --------------------------------------------------------------------------------------------


def read_help(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    with pytest.raises(SystemExit):
        cli.main([*command, "--help"])
    return capsys.readouterr().out


def test_every_option_named_exists(capsys: pytest.CaptureFixture[str]) -> None:
    known = "".join(read_help(capsys, *command) for command in ((), ("sites",), ("rule",), ("watch",), ("trace",)))
    named = set(re.findall(r"`[^`\n]*`", README)) | set(blocks("sh")) | set(blocks("text"))
    options = {option for text in named if "pip install" not in text for option in re.findall(r"--[a-z][\w-]+", text)}
    assert len(options) > 15
    assert options - OTHERS <= set(re.findall(r"--[a-z][\w-]+", known))


def test_every_command_and_format_is_named() -> None:
    for command in cli.COMMANDS:
        assert re.search(rf"^\| .*`h2dlint {command}`", README, re.MULTILINE), command
    formats = re.search(r"`--output-format` is (.*?)\. ", README, re.DOTALL)
    assert formats is not None
    assert re.findall(r"`(\w+)`", formats[1]) == list(FORMATS)


def test_the_keys_of_a_json_finding_are_named() -> None:
    done = run("--output-format", "json", "fixtures/seed/before/vision.py", cwd=ROOT)
    (finding,) = json.loads(done.stdout)
    paragraph = README[README.index("The JSON is") : README.index("`sites` is the audit")]
    words = set(re.findall(r"`(\w+)`", paragraph))
    nested = set(finding["location"]) | set(finding["fix"]) | set(finding["evidence"][0])
    assert words == set(finding) | nested


def test_the_python_names_exist() -> None:
    for name in re.findall(r"`h2dlint\.(\w+)\(", README):
        assert callable(getattr(h2dlint, name))
    names = re.search(r"from h2dlint\.runtime import (.*)", block("python", "h2dlint.runtime"))
    assert names is not None
    assert set(names[1].split(", ")) <= set(runtime.__all__)


# --- configuration -----------------------------------------------------------------------------------------------


def read_keys() -> dict[str, list[str]]:
    """The cells of each row of the table of options, by key."""
    table = README[README.index("## Configuration") : README.index("### Teach it")]
    rows = [re.split(r" *\| *", line.strip("| ")) for line in table.splitlines() if line.startswith("| `")]
    return {row[0].strip("`"): row[1:] for row in rows}


def test_every_key_is_explained() -> None:
    assert set(read_keys()) == set(config._KINDS)
    assert all(len(cells) == 3 and all(cells) for cells in read_keys().values())


def test_defaults_are_the_real_ones() -> None:
    default = config.Config()
    for key, (_, text, _) in read_keys().items():
        match key, text:
            case "select", _:
                assert tuple(json.loads(text.strip("`"))) == config.DEFAULT_SELECT
            case ("extend-select" | "ignore", _):
                assert text == "`[]`"
            case _, "none":
                assert getattr(default, key.replace("-", "_")) is None
            case "exclude", _:
                assert default.exclude is None
            case _:
                value = getattr(default, key.replace("-", "_"))
                assert json.loads(text.strip("`")) == (list(value) if isinstance(value, tuple) else value) or not value


TAUGHT = """\
import fastload
import torch


def upload(path, device):
    rows = fastload.{name}(path)
    return rows.to(device, non_blocking=True)


def warm_up_cache(device):
    return torch.zeros(1_000_000).to(device, non_blocking=True)


def sample(device):
    with gpu_sync_allowed():
        return torch.ones(1_000_000).to(device, non_blocking=True)
"""


@pytest.mark.parametrize(("name", "rows"), [("read_rows", [7]), ("to_pinned", []), ("to_gpu", []), ("other", [])])
def test_the_example_teaches_what_it_says(tmp_path: Path, name: str, rows: list[int]) -> None:
    write(tmp_path, {"pyproject.toml": block("toml", "tool.h2dlint.functions"), "a.py": TAUGHT.format(name=name)})
    report = h2dlint.lint_paths([tmp_path])
    assert not report.problems
    assert [one.row for one in report.findings] == rows
    if rows:
        fixed = h2dlint.fix_source(TAUGHT.format(name=name), filename=str(tmp_path / "a.py")).source
        assert "from engine.platform import PIN_MEMORY" in fixed
        assert "if PIN_MEMORY else rows" in fixed
    write(tmp_path, {"pyproject.toml": ""})
    untaught = h2dlint.lint_paths([tmp_path])
    assert [one.row for one in untaught.findings] == [11, 16]


# --- other tools -------------------------------------------------------------------------------------------------

FAULT = "import torch\n\n\ndef upload(device):\n    return torch.zeros(1_000_000).to(device, non_blocking=True){}\n"


def test_flake8_finds_with_the_settings_shown(tmp_path: Path) -> None:
    pytest.importorskip("flake8")
    write(tmp_path, {".flake8": block("ini", "flake8"), "a.py": FAULT.format("")})
    command = [sys.executable, "-m", "flake8", "a.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert "a.py:5:12: HTD103" in done.stdout


def test_ruff_keeps_our_comment_with_the_setting_shown(tmp_path: Path) -> None:
    pytest.importorskip("ruff")
    setting = block("toml", "external").replace("[tool.ruff.lint]", "[lint]")
    for rest, kept in ((setting, True), ("", False)):
        write(tmp_path, {"ruff.toml": rest, "a.py": FAULT.format("  # noqa: HTD103, F401")})
        command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--config", "ruff.toml", "--extend-select"]
        subprocess.run(
            [*command, "RUF100", "--fix", "a.py"], cwd=tmp_path, capture_output=True, timeout=120, check=True
        )
        assert ("# noqa: HTD103\n" in (tmp_path / "a.py").read_text(encoding="utf-8")) is kept


def test_the_hooks_shown_exist() -> None:
    text = (ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")
    shown = block("yaml", "hooks:")
    assert f"rev: v{h2dlint.__version__}" in shown
    hooks = re.findall(r"^- id: (\S+)$", text, re.MULTILINE)
    assert set(re.findall(r"h2dlint(?:-fix)?\b", shown[shown.index("- id:") :])) == set(hooks)


def test_the_version_is_one() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == h2dlint.__version__
    assert f"## {project['version']}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert project["requires-python"] == ">=3.10" and "Python (3.10 or later)" in README
