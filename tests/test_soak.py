"""The soak notices what it is there for: a program that its fix changes, and a file that a kill leaves half."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from h2dlint import engine
from scripts import soak


def test_a_changed_program_is_a_disagreement(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = engine.Engine.fix

    def spoil(self: engine.Engine, source: engine.Source, unsafe: bool, config: object = None) -> engine.Outcome:
        outcome = honest(self, source, unsafe, config)  # type: ignore[arg-type]
        if outcome.mended:
            text = outcome.source.raw.replace("return ", "return None and ")
            outcome.source = engine.wrap_text(source.filename, text)
        return outcome

    before = soak.run_programs(5, 75)
    monkeypatch.setattr(engine.Engine, "fix", spoil)
    record = soak.run_programs(5, 75)
    assert len(record.disagreements) > len(before.disagreements) + 10
    assert record.failed


def test_a_half_file_is_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "FILES", 3)
    soak.renew(tmp_path)
    (tmp_path / "m001.py").write_bytes(soak.BEFORE[:40])
    record = soak.Record()
    soak.kill_one(tmp_path, b"after", 0.1, random.Random(1), record)
    assert any("neither old nor new" in what for what in record.harm)
    assert record.failed
