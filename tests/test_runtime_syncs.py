"""The merge of PyTorch's sync debug mode, with a CUDA that is only pretended."""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch")

from h2dlint.runtime import watch  # noqa: E402
from h2dlint.runtime.observation import SYNC  # noqa: E402


@pytest.fixture
def fake_cuda(monkeypatch):
    """A CUDA that is initialised, keeps the mode it is given, and sees meta tensors as its own."""
    state = {"mode": 0}

    def set_mode(mode):
        state["mode"] = {"default": 0, "warn": 1}.get(mode, mode)
        warnings.warn("Synchronization debug mode is a prototype feature", UserWarning, stacklevel=2)

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: state["mode"])
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", set_mode)
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda t: t.device.type == "meta"), raising=False)
    return state


def wait():
    warnings.warn("called a synchronizing CUDA operation (Triggered internally)", UserWarning, stacklevel=1)


def copy():
    return torch.zeros(4).to("meta")


def syncs(report):
    return [(row.count, row.verdict, row.codes) for row in report.rows() if row.operation == SYNC]


def test_they_are_listed_from_the_first_copy_on_and_are_no_faults(fake_cuda):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with watch() as report:
            assert fake_cuda["mode"] == 0
            copy()
            assert fake_cuda["mode"] == 1
            for _ in range(3):
                wait()
            warnings.warn("something else", stacklevel=1)
        assert fake_cuda["mode"] == 0
        wait()
    assert syncs(report) == [(3, "blocks", ())]
    assert [str(each.message) for each in caught] == [
        "something else",
        "called a synchronizing CUDA operation (Triggered internally)",
    ]
    assert not any(row.operation == SYNC for row in report.found)


def test_nested_watches_both_hear(fake_cuda):
    with watch() as outer:
        copy()
        with watch() as inner:
            copy()
            wait()
        assert fake_cuda["mode"] == 1
        wait()
    assert fake_cuda["mode"] == 0
    assert [syncs(outer), syncs(inner)] == [[(2, "blocks", ())], [(1, "blocks", ())]]


def test_a_mode_that_the_user_set_is_left_alone(fake_cuda):
    fake_cuda["mode"] = 2
    with watch() as report:
        copy()
    assert fake_cuda["mode"] == 2
    assert syncs(report) == []


def test_without_syncs_the_mode_is_not_touched(fake_cuda):
    with watch(syncs=False):
        copy()
        assert fake_cuda["mode"] == 0


def test_filters_and_handler_are_put_back(fake_cuda):
    before = (list(warnings.filters), warnings.showwarning)
    with watch():
        copy()
    assert (list(warnings.filters), warnings.showwarning) == before
