"""Copies that a CUDA graph captures: their host memory is made before the capture and lives as long as the graph."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest

import h2dlint
from h2dlint.config import Config, Selection

torch = pytest.importorskip("torch")

EVERYTHING = Config(selections=(Selection(select=("HTD",)),), include_cold=True, include_small=True)
HEAD = "import torch\n\ndef f(n, dev):\n    g = torch.cuda.CUDAGraph()\n"


def fix(text: str) -> str:
    result = h2dlint.fix_source(text, "/no-such-folder/example.py", unsafe=True, config=EVERYTHING)
    return str(result.source)


def found(text: str) -> list[Any]:
    return h2dlint.lint_source(text, filename="/no-such-folder/example.py", config=EVERYTHING)


MOVED = {
    "statement": (
        "    with torch.cuda.graph(g):\n        src = torch.zeros(n)\n"
        "        out = src.to('cuda', non_blocking=True)\n",
        "    src = torch.zeros(n, pin_memory=True)\n    g.src = src\n    with torch.cuda.graph(g):\n"
        "        out = src.to('cuda', non_blocking=True)\n",
    ),
    "join": (
        "    with torch.cuda.graph(cuda_graph=g):\n"
        "        out = torch.cat([torch.ones(n), torch.ones(2)]).to('cuda', non_blocking=True)\n",
        "    pinned = torch.cat([torch.ones(n), torch.ones(2)]).pin_memory()\n    g.pinned = pinned\n"
        "    with torch.cuda.graph(cuda_graph=g):\n        out = pinned.to('cuda', non_blocking=True)\n",
    ),
    "computed": (
        "    host = torch.zeros(n)\n    with torch.cuda.graph(g):\n"
        "        out = (host + 1).to('cuda', non_blocking=True)\n",
        "    host = torch.zeros(n)\n    pinned = (host + 1).pin_memory()\n    g.pinned = pinned\n"
        "    with torch.cuda.graph(g):\n        out = pinned.to('cuda', non_blocking=True)\n",
    ),
    "made before": (
        "    src = torch.zeros(n)\n    with torch.cuda.graph(g):\n        out = src.to('cuda', non_blocking=True)\n",
        "    src = torch.zeros(n, pin_memory=True)\n    g.src = src\n    with torch.cuda.graph(g):\n"
        "        out = src.to('cuda', non_blocking=True)\n",
    ),
}


@pytest.mark.parametrize("kind", MOVED)
def test_moved_before_the_capture(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = (f"{HEAD}{body}    return g, out\n" for body in MOVED[kind])
    (finding,) = found(before)
    assert "it raises" in finding.message and finding.fix is not None and finding.fix.safety == "unsafe"
    assert fix(before) == after
    assert found(after) == []
    # Executed in host memory: nothing is made while the stand-in of a capture is open, and the graph holds the source.
    inside: list[bool] = [False]

    @contextlib.contextmanager
    def capture(*args: object, **kwargs: object) -> Any:
        inside[0] = True
        yield
        inside[0] = False

    def pin_memory(tensor: Any) -> Any:
        assert not inside[0]
        return tensor

    monkeypatch.setattr(torch.cuda, "CUDAGraph", SimpleNamespace)
    monkeypatch.setattr(torch.cuda, "graph", capture)
    monkeypatch.setattr(torch.Tensor, "pin_memory", pin_memory)
    scope: dict[str, Any] = {}
    exec(after.replace("'cuda'", "'cpu'").replace(", pin_memory=True", ""), scope)
    graph, out = scope["f"](3, "cpu")
    (held,) = vars(graph).values()
    assert torch.equal(held, out) and held.numel() >= 3


@pytest.mark.parametrize(
    "body",
    [
        # Made of what the capture makes, bound twice, of another graph expression, or together with another context.
        "    with torch.cuda.graph(g):\n        n = n + 1\n"
        "        out = torch.zeros(n).to('cuda', non_blocking=True)\n",
        "    with torch.cuda.graph(g):\n        s = torch.zeros(n)\n        s = torch.ones(n)\n"
        "        out = s.to('cuda', non_blocking=True)\n",
        "    with torch.cuda.graph(dev.graphs[n]):\n        out = torch.zeros(n).to('cuda', non_blocking=True)\n",
        "    with torch.no_grad(), torch.cuda.graph(g):\n        out = torch.zeros(n).to('cuda', non_blocking=True)\n",
    ],
)
def test_declined_with_the_reason(body: str) -> None:
    text = f"{HEAD}{body}    return g, out\n"
    (finding,) = found(text)
    assert finding.fix is None and "before the capture" in finding.declined
    assert fix(text) == text


GRAPHED = """\
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        return x + torch.zeros(1 << 20).to("cuda", non_blocking=True)

def step(x):
    return x + torch.zeros(1 << 20).to("cuda", non_blocking=True)

def other(x):
    return x + torch.zeros(1 << 20).to("cuda", non_blocking=True)

x = torch.zeros(1 << 20, device="cuda")
net, fast = torch.cuda.make_graphed_callables((Net(), step), ((x,), (x,)))
"""


def test_graphed_callables_are_captured() -> None:
    raises = {one.row: ("it raises" in one.message, one.fix is None) for one in found(GRAPHED)}
    assert raises == {5: (True, True), 8: (True, True), 11: (False, False)}
