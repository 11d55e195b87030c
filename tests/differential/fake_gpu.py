"""A GPU played by the CPU, for code that is run before and after a fix.

Its tensors live on "cpu:0", to which PyTorch copies as it does to any other device. Memory made with `pin_memory=` or
`.pin_memory()` is remembered as pinned. An asynchronous copy out of packed pinned memory notes what it read, and what
stands there when the host next waits has to be the same: otherwise the copy was overtaken (`races`). One into pinned
memory arrives only when the host waits, unless `eager`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode

DEVICE = "cpu:0"
_DEVICE_OF = torch.Tensor.device.__get__  # type: ignore[attr-defined]
_COPIES = (torch.Tensor.to, torch.Tensor.cuda, torch.Tensor.cpu)


class FakeGpu(TorchFunctionMode):
    """Active inside `with`; `races` counts the copies whose source was written before the host waited for them."""

    def __init__(self, eager: bool = False) -> None:
        super().__init__()
        self.races = 0
        self._eager = eager
        self._pinned: dict[int, Any] = {}
        self._gpu: dict[int, Any] = {}
        self._reads: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._writes: list[tuple[torch.Tensor, torch.Tensor]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        pinned = bool(kwargs.pop("pin_memory", False))
        if _on_gpu(kwargs.get("device")):
            kwargs["device"] = DEVICE
        if func in _COPIES:
            return self._move(func, *args, **kwargs)
        if func is torch.Tensor.copy_:
            return self._copy(*args, **kwargs)
        if func is torch.Tensor.pin_memory:
            return self._pin(args[0])
        if func is torch.Tensor.is_pinned:
            return _key(args[0]) in self._pinned
        if func is _DEVICE_OF:
            return torch.device(DEVICE if self.is_gpu(args[0]) else "cpu")
        result = func(*args, **kwargs)
        if pinned:
            self._remember(self._pinned, result)
        if _on_gpu(kwargs.get("device")) or any(self.is_gpu(arg) for arg in _tensors((args, tuple(kwargs.values())))):
            for tensor in _tensors(result):
                self._remember(self._gpu, tensor)
        return result

    def is_gpu(self, value: object) -> bool:
        return isinstance(value, torch.Tensor) and _key(value) in self._gpu

    def wait(self, *_: object, **__: object) -> None:
        """The host waits for all copies."""
        with torch._C.DisableTorchFunction(), torch.no_grad():
            self.races += sum(not torch.equal(now, then) for now, then in self._reads)
            for target, value in self._writes:
                target.copy_(value)
        self._reads.clear()
        self._writes.clear()

    def _move(self, func: Any, source: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        asynchronous = bool(kwargs.pop("non_blocking", False))
        if func is torch.Tensor.cuda:
            args = (DEVICE,)
        if func is torch.Tensor.cpu:
            args = ("cpu",)
        args = tuple(DEVICE if _on_gpu(arg) else arg for arg in args)
        target = kwargs.get("device", args[0] if args else None)
        up = _on_gpu(target)
        down = not up and isinstance(target, (str, torch.device))
        if up and self.is_gpu(source):
            kwargs.pop("device", None)
            rest = args[1:] if args and args[0] == DEVICE else args
            result = source.to(*rest, **kwargs) if rest or kwargs else source
        elif up:
            result = source.to(*args, **kwargs)
            self._read(source, asynchronous)
        elif down and self.is_gpu(source):
            result = source.to(*args, **{**kwargs, "copy": True})
            if asynchronous:
                self._remember(self._pinned, result)
                self._write(result)
        else:
            result = source.to(*args, **kwargs)
        if up:
            self._remember(self._gpu, result)
        return result

    def _copy(
        self, target: torch.Tensor, src: torch.Tensor | None = None, non_blocking: bool = False, **other: Any
    ) -> torch.Tensor:
        source = other.get("other", src) if src is None else src
        assert source is not None
        result = target.copy_(source)
        if self.is_gpu(target) and not self.is_gpu(source):
            self._read(source, non_blocking, target)
        if not self.is_gpu(target) and self.is_gpu(source) and non_blocking:
            self._write(target)
        return result

    def _read(self, source: torch.Tensor, asynchronous: bool, target: torch.Tensor | None = None) -> None:
        """An upload; one that is not asynchronous after all waits."""
        packed = source.is_contiguous() or (target is None and _is_dense(source))
        packed = packed or (target is not None and source.stride() == target.stride() and _is_dense(source))
        if not asynchronous or not packed or _key(source) not in self._pinned:
            self.wait()
        elif source.numel():
            self._reads.append((source.detach(), source.detach().clone()))

    def _write(self, target: torch.Tensor) -> None:
        """A download that has just been made: it is taken back until the host waits."""
        if self._eager or not target.is_contiguous() or _key(target) not in self._pinned or not target.numel():
            self.wait()
            return
        with torch._C.DisableTorchFunction(), torch.no_grad():
            self._writes.append((target.detach(), target.detach().clone()))
            target.zero_()

    def _pin(self, source: torch.Tensor) -> torch.Tensor:
        if _key(source) in self._pinned:
            return source
        result = torch.empty_strided(source.size(), source.stride(), dtype=source.dtype).copy_(source)
        self._remember(self._pinned, result)
        return result

    def _remember(self, where: dict[int, Any], tensor: torch.Tensor) -> None:
        if isinstance(tensor, torch.Tensor) and _key(tensor):
            where[_key(tensor)] = tensor.untyped_storage()


@contextmanager
def fake_gpu(eager: bool = False) -> Iterator[FakeGpu]:
    """`torch.cuda` looks as if a GPU were there; leaving it waits for all copies."""
    gpu = FakeGpu(eager)
    waiting = SimpleNamespace(synchronize=gpu.wait, record=lambda *_: None)
    with (
        mock.patch.object(torch.cuda, "is_available", lambda: True),
        mock.patch.object(torch.cuda, "synchronize", gpu.wait),
        mock.patch.object(torch.cuda, "current_stream", lambda *_: waiting),
        mock.patch.object(torch.cuda, "Event", lambda *_, **__: waiting),
        gpu,
    ):
        yield gpu
        gpu.wait()


def _on_gpu(device: object) -> bool:
    return isinstance(device, (str, torch.device)) and (str(device) == DEVICE or str(device).startswith("cuda"))


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether the elements fill one stretch of memory, in whatever order."""
    expected = 1
    for stride, size in sorted((s, n) for s, n in zip(tensor.stride(), tensor.shape) if n != 1):
        if stride != expected:
            return False
        expected *= size
    return True


def _key(tensor: torch.Tensor) -> int:
    with torch._C.DisableTorchFunction():
        return tensor.untyped_storage().data_ptr()


def _tensors(value: object) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
