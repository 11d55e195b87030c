"""Runs a fact fixture on a CPU and notes what each marked line was worth. Needs torch and numpy.

The GPU is played by the meta device; page-locked memory by a list of the addresses that were pinned, so that a
view, a numpy array or an `out=` of pinned memory is seen as pinned, and everything newly allocated is not.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import torch
from fact_helpers import Claim, marked_values, read_facts
from torch.overrides import TorchFunctionMode

Seen = dict[tuple[Path, int], list[Claim]]
ACCELERATORS = ("cuda", "meta")


class PretendGpu(TorchFunctionMode):
    """Sends what asks for a GPU to the meta device, and remembers which memory was asked to be pinned."""

    def __init__(self) -> None:
        super().__init__()
        self.ranges: list[range] = []
        self.alive: list[torch.UntypedStorage] = []  # so that no address is given out twice

    def is_pinned(self, address: int) -> bool:
        return any(address in one for one in self.ranges)

    def pin(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        self.alive.append(storage)
        self.register(storage.data_ptr(), storage.nbytes(), 0)
        return tensor

    def register(self, address: int, size: int, flags: int) -> int:
        """cudaHostRegister."""
        self.ranges.append(range(address, address + max(size, 1)))
        return 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        owner = getattr(getattr(func, "__self__", None), "__name__", "")
        if name == "__get__" and owner == "is_cuda":
            return args[0].is_meta
        if name == "__get__" and owner == "device":
            found = func(*args, **kwargs)
            return torch.device("cuda", 0) if found.type == "meta" else found
        if name == "is_pinned":
            return self.is_pinned(args[0].data_ptr())
        if name == "pin_memory":
            if self.is_pinned(args[0].data_ptr()):
                return args[0]
            return self.pin(torch.empty_strided(args[0].shape, args[0].stride(), dtype=args[0].dtype).copy_(args[0]))
        if name == "cuda":
            return self.move(args[0], "meta", False)
        if name == "cpu":
            return self.move(args[0], "cpu", False)
        if name == "to":
            return self.to(func, args, kwargs)
        if name == "copy_" and args[1].is_meta != args[0].is_meta:
            return args[0]
        pinned = kwargs.pop("pin_memory", False)
        if "device" in kwargs and kwargs["device"] is not None:
            kwargs["device"] = pretend(kwargs["device"])
        result = func(*args, **kwargs)
        return self.pin(result) if pinned else result

    def to(self, func: Any, args: Any, kwargs: Any) -> Any:
        asked = [kwargs["device"]] if "device" in kwargs else [one for one in args[1:2] if is_device(one)]
        asked += [one.device for one in (*args[1:2], *kwargs.values()) if isinstance(one, torch.Tensor)]
        dtypes = [one for one in (*args[1:], *kwargs.values()) if isinstance(one, torch.dtype)]
        if not asked or pretend(asked[0]).type == raw_device(args[0]):
            kinds = {"dtype": dtypes[0]} if dtypes else {}
            return func(args[0], **kinds, **{key: kwargs[key] for key in ("copy", "memory_format") if key in kwargs})
        blocking = not kwargs.get("non_blocking", any(one is True for one in args[2:3]))
        moved = self.move(args[0], pretend(asked[0]).type, not blocking)
        return moved.to(dtypes[0]) if dtypes else moved

    def move(self, tensor: torch.Tensor, kind: str, non_blocking: bool) -> torch.Tensor:
        """A copy on the other side; one to the host is pinned when non_blocking (native/TensorConversions.cpp)."""
        if raw_device(tensor) == kind:
            return tensor
        dense = torch.empty_like(tensor, device=kind)
        return self.pin(dense) if kind == "cpu" and non_blocking else dense


def raw_device(tensor: torch.Tensor) -> str:
    return "meta" if tensor.is_meta else "cpu"


def is_device(value: object) -> bool:
    return isinstance(value, (str, torch.device, int)) and not isinstance(value, bool)


def pretend(device: Any) -> torch.device:
    found = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    return torch.device("meta") if found.type == "cuda" else found


def observe(mode: PretendGpu, value: Any) -> Claim | None:
    """What a value is, in the words of the fixtures; None for what is no tensor."""
    if value is None:
        return Claim(frozenset({"none"}))
    if isinstance(value, numpy.ndarray):
        tensor, extra = torch.from_numpy(value), ["array"]
    elif isinstance(value, torch.Tensor):
        tensor, extra = value, []
    else:
        return None
    words = [layout_of(tensor), f"rank={tensor.dim()}", f"dtype={tensor.dtype}".replace("torch.", ""), *extra]
    words.append(f"size<={tensor.numel() * tensor.element_size()}")
    if tensor.is_meta:
        return Claim(frozenset([*words, "gpu"]))
    memory = "pinned" if mode.is_pinned(tensor.data_ptr()) else "pageable"
    return Claim(frozenset([*words, "cpu", memory]))


def layout_of(tensor: torch.Tensor) -> str:
    long = [(size, stride) for size, stride in zip(tensor.shape, tensor.stride()) if size != 1]
    if tensor.numel() == 0:
        return "contiguous"
    if any(stride == 0 for _, stride in long):
        return "broadcast"
    expected = 1
    for size, stride in sorted(long, key=lambda pair: pair[1]):
        if stride != expected:
            return "gapped"
        expected *= size
    return "contiguous" if tensor.is_contiguous() else "permuted"


class Recorder(ast.NodeTransformer):
    """Wraps the marked expressions, so that running the file notes their values."""

    def __init__(self, tree: ast.Module, rows: set[int], path: Path) -> None:
        self.path = str(path)
        self.rows = {id(node): row for row, node in marked_values(tree).items() if row in rows}

    def visit(self, node: ast.AST) -> Any:
        row = self.rows.get(id(node))
        self.generic_visit(node)
        if row is None:
            return node
        noted = ast.Call(ast.Name("_note", ast.Load()), [ast.Constant(self.path), ast.Constant(row), node], [])  # type: ignore[list-item]
        return ast.copy_location(noted, node)


class Finder:
    """Imports the fixtures below one folder through `Recorder`."""

    def __init__(self, folders: list[Path], note: Callable[[str, int, Any], Any]) -> None:
        self.folders = folders
        self.note = note

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        from importlib.machinery import PathFinder

        spec = PathFinder.find_spec(name, [str(one) for one in self.folders] if path is None else path)
        if spec is not None and spec.origin and any(Path(spec.origin).is_relative_to(one) for one in self.folders):
            spec.loader = Loader(Path(spec.origin), self.note)  # type: ignore[assignment]
            return spec
        return None if spec is None or spec.origin is not None or spec.submodule_search_locations is None else spec


class Loader:
    def __init__(self, path: Path, note: Callable[[str, int, Any], Any]) -> None:
        self.path = path
        self.note = note

    def create_module(self, spec: Any) -> None:
        return None

    def exec_module(self, module: Any) -> None:
        text = self.path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        rows = {mark.row for mark in read_facts(text)}
        tree = ast.fix_missing_locations(Recorder(tree, rows, self.path).visit(tree))
        module.__dict__["_note"] = self.note
        exec(compile(tree, str(self.path), "exec"), module.__dict__)


@contextmanager
def recorder(folders: list[Path]) -> Iterator[Seen]:
    """Inside, imports find the fixtures of `folders`, and what their marked lines were worth gathers in the result."""
    seen: Seen = {}
    mode = PretendGpu()

    def note(path: str, row: int, value: Any) -> Any:
        claim = observe(mode, value)
        if claim is not None:
            seen.setdefault((Path(path), row), []).append(claim)
        return value

    finder = Finder(folders, note)
    before = set(sys.modules)
    sys.meta_path.insert(0, finder)
    pretended = {
        (torch.cuda, "is_available"): lambda: True,
        (torch.cuda, "cudart"): lambda: SimpleNamespace(cudaHostRegister=mode.register),
        (torch.accelerator, "is_available"): lambda: True,
        (torch.accelerator, "current_accelerator"): lambda: torch.device("cuda"),
    }
    real = {(module, name): getattr(module, name) for module, name in pretended}
    for (module, name), value in pretended.items():
        setattr(module, name, value)
    try:
        with mode:
            yield seen
    finally:
        for (module, name), value in real.items():
            setattr(module, name, value)
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name not in before and comes_from(sys.modules[name], folders)]:
            del sys.modules[name]


def comes_from(module: Any, folders: list[Path]) -> bool:
    """Whether a module was imported from one of the folders."""
    origin = getattr(module, "__file__", None)
    paths = [*([origin] if origin else []), *getattr(module, "__path__", [])]
    return any(Path(one).is_relative_to(folder) for one in paths for folder in folders)
