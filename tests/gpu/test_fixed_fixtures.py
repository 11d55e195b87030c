"""The mended fixtures on a GPU: the host side of each asynchronous copy is pinned and packed, and the result right."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore:An output with one or more elements was resized"),
]

AFTER = Path(__file__).parents[2] / "fixtures" / "fixes" / "after"
# The packed layout is asked of the host side as the copy sees it; turned ends agree on their strides instead.
TURNED = ("transposed",)


def functions() -> Iterator[tuple[str, str]]:
    for path in sorted(AFTER.glob("*.py")):
        for line in path.read_text("utf-8").split("\n"):
            if line.startswith("def ") and not line.startswith("def _"):
                yield path.name, line[4 : line.index("(")]


@contextmanager
def watched_copies(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[bool, bool]]]:
    """(pinned, packed) of the host side of each asynchronous upload."""
    seen: list[tuple[bool, bool]] = []
    to, copy = torch.Tensor.to, torch.Tensor.copy_

    def note(host: Any, far: Any) -> None:
        if host.device.type == "cpu" and host.numel() and far:
            seen.append((host.is_pinned(), host.is_contiguous()))

    def watched_to(self: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("non_blocking"):
            note(self, "cuda" in map(str, args))
        return to(self, *args, **kwargs)

    def watched_copy(self: Any, src: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("non_blocking"):
            note(src, self.is_cuda)
        return copy(self, src, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "to", watched_to)
        patch.setattr(torch.Tensor, "copy_", watched_copy)
        yield seen


def on_host(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().tolist()
    return [on_host(one) for one in value] if isinstance(value, (list, tuple)) else value


def outcome(function: Any, n: int, device: str) -> Any:
    try:
        return on_host(function(n, device))
    except Exception as error:
        return type(error)


@pytest.mark.parametrize(("name", "function"), list(functions()))
def test_mended_copies_are_pinned_packed_and_right(name: str, function: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scope: dict[str, Any] = {}
    exec(compile((AFTER / name).read_text("utf-8"), name, "exec"), scope)
    for n in (0, 1, 5, 9):
        with watched_copies(monkeypatch) as copies:
            result = outcome(scope[function], n, "cuda")
        torch.cuda.synchronize()
        # The loop that refills its buffer without a guard is the one whose fix is called unsafe: a race, so no values.
        if function != "refilled":
            assert result == outcome(scope[function], n, "cpu")
        assert all(pinned for pinned, _ in copies)
        assert function in TURNED or all(packed for _, packed in copies)
