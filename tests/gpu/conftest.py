"""Tests that need a CUDA device: `python -m pytest -m gpu tests/gpu`. Elsewhere they skip and say why."""

from __future__ import annotations

import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))  # for `benchmarks`, whose loop and cases are timed here


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "gpu: needs a CUDA device")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = find_missing_device()
    for item in items:
        if HERE not in item.path.parents:
            continue
        item.add_marker(pytest.mark.gpu)
        if missing:
            item.add_marker(pytest.mark.skip(reason=missing))


def find_missing_device() -> str:
    """Why the tests here cannot run; empty when they can."""
    try:
        import torch
    except ImportError:
        return "PyTorch is not installed"
    return "" if torch.cuda.is_available() else "no CUDA device"
