"""Sees every host<->device copy that Python code asks PyTorch for: patched entry points of `torch`.

Why patches. A TorchFunctionMode costs every torch call about a microsecond, a TorchDispatchMode some ten, and both
change what torch.compile does. A patched `Tensor.to` costs calls of `to` alone, and only a call whose result lies on
the other side of the bus costs more than two clock readings. What C++ does on its own (autograd, a compiled graph, a
CUDA graph's replay) does not pass here.

What keeps the patches harmless:
- a wrapper first does the original call, and then only reads; the sink alone may raise, to stop the program;
- under a TorchFunctionMode PyTorch calls the patched name again from inside the mode; only the innermost call counts;
- tensor subclasses and fake tensors (torch.compile while it traces) pass through unseen;
- caches that hold functions by identity (`with torch.device(...)`, TorchScript's builtins, torch.compile's rules) are
  filled with the originals first, told of the wrappers, or emptied at the end.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch

_clock = time.perf_counter_ns
_ABSENT = object()
_PLAIN_INDEX = frozenset((int, slice, type(None), type(...), bool))


class Sink(Protocol):
    """Receives a copy just made.

    `source` is no tensor where an index or the data of a new tensor is none. `upload` says that the copy went to the
    GPU; `ns` is the time that the call took.
    """

    def __call__(
        self, operation: str, source: object, destination: torch.Tensor, upload: bool, non_blocking: bool, ns: int, /
    ) -> None: ...


_lock = threading.RLock()
_installed: list[tuple[Any, str, Any, Any]] = []
_users = 0


def install(sink: Sink) -> None:
    """Patch torch so that `sink` hears of every copy; nested calls count, and the first sink stays."""
    global _users
    with _lock:
        _users += 1
        if _users == 1:
            _patch_all(sink)


def uninstall() -> None:
    """Undo one `install`; the last one puts torch back, but for names that somebody else has patched since."""
    global _users
    with _lock:
        _users -= 1
        if _users:
            return
        for owner, name, wrapper, previous in reversed(_installed):
            if vars(owner).get(name) is not wrapper:
                continue
            if previous is None:
                delattr(owner, name)
            else:
                setattr(owner, name, previous)
        _installed.clear()
        _clear_dynamo_rules()


def _patch_all(sink: Sink) -> None:
    import torch

    plain = frozenset((torch.Tensor, torch.nn.Parameter))
    depth: Callable[[], int] = getattr(torch._C, "_len_torch_function_stack", lambda: 0)
    _fill_constructor_cache()
    wrap = _Wrappers(sink, plain, depth, torch.compiler.is_compiling)
    tensor = torch.Tensor
    _replace(tensor, "to", wrap.move("to", tensor.to))
    _replace(tensor, "cuda", wrap.move("cuda", tensor.cuda))
    _replace(tensor, "cpu", wrap.move("cpu", tensor.cpu))
    _replace(tensor, "copy_", wrap.copy(tensor.copy_))
    _replace(tensor, "__getitem__", wrap.getitem(tensor.__getitem__))
    _replace(tensor, "__setitem__", wrap.setitem(tensor.__setitem__))
    _replace(tensor, "new_tensor", wrap.build(tensor.new_tensor, 1))
    for name in ("tensor", "as_tensor", "asarray"):
        _replace(torch, name, wrap.build(getattr(torch, name), 0))
    _replace(torch, "_foreach_copy_", wrap.foreach_copy(torch._foreach_copy_))


def _replace(owner: Any, name: str, wrapper: Any) -> None:
    import torch

    previous = vars(owner).get(name)
    original = getattr(owner, name)
    _register_builtin(original, wrapper)
    if owner is not torch:
        wrapper._torchdynamo_inline = original  # where torch.compile meets the method unbound, it traces the original
    setattr(owner, name, wrapper)
    _installed.append((owner, name, wrapper, previous))


def _fill_constructor_cache() -> None:
    """`with torch.device(...)` looks for `torch.tensor` in a cached set: let it hold the original, which it gets."""
    with contextlib.suppress(ImportError, AttributeError):
        from torch.utils._device import _device_constructors

        _device_constructors()


def _clear_dynamo_rules() -> None:
    """What torch.compile learnt of the wrappers, when it was loaded under them, would hide the originals from it."""
    with contextlib.suppress(AttributeError):
        rules: Any = sys.modules.get("torch._dynamo.trace_rules")
        if rules is not None:
            rules.clear_lru_cache()


def _register_builtin(original: Any, wrapper: Any) -> None:
    """TorchScript knows its builtins by identity."""
    with contextlib.suppress(ImportError, AttributeError):
        from torch.jit._builtins import _find_builtin, _register_builtin

        operator = _find_builtin(original)
        if operator is not None:
            _register_builtin(wrapper, operator)


class _Wrappers:
    """Makes the wrappers. They are closures, not methods: a call costs one frame, and its locals are fast."""

    def __init__(
        self, sink: Sink, plain: frozenset[type], depth: Callable[[], int], compiling: Callable[[], bool]
    ) -> None:
        self.sink, self.plain, self.depth, self.compiling = sink, plain, depth, compiling

    def move(self, operation: str, original: Any) -> Any:
        """`to`, `cuda`, `cpu`: whether the tensor crossed is seen from the result, which spares parsing arguments."""
        sink, plain, depth, clock = self.sink, self.plain, self.depth, _clock

        @functools.wraps(original)
        def move(self: Any, *args: Any, non_blocking: Any = _ABSENT, **kwargs: Any) -> Any:
            start = clock()
            if non_blocking is _ABSENT:
                result = original(self, *args, **kwargs)
            elif kwargs or len(args) != 1:
                result = original(self, *args, non_blocking=non_blocking, **kwargs)
            else:  # the usual call, which Python makes much faster without stars
                result = original(self, args[0], non_blocking=non_blocking)
            if result is self or (upload := result.is_cuda) == self.is_cuda:
                return result
            ns = clock() - start
            if type(self) in plain and type(result) in plain and not depth():
                flag = _find_flag(args) if non_blocking is _ABSENT else non_blocking
                sink(operation, self, result, upload, flag, ns)
            return result

        return move

    def copy(self, original: Any) -> Any:
        sink, plain, depth, clock = self.sink, self.plain, self.depth, _clock

        @functools.wraps(original)
        def copy_(self: Any, other: Any, non_blocking: bool = False) -> Any:
            start = clock()
            result = original(self, other, non_blocking)
            if (upload := self.is_cuda) == other.is_cuda:
                return result
            ns = clock() - start
            if type(self) in plain and type(other) in plain and not depth():
                sink("copy_", other, self, upload, non_blocking, ns)
            return result

        return copy_

    def foreach_copy(self, original: Any) -> Any:
        sink, plain, depth, clock = self.sink, self.plain, self.depth, _clock

        @functools.wraps(original)
        def foreach_copy(self: Any, src: Any, non_blocking: bool = False) -> Any:
            start = clock()
            result = original(self, src, non_blocking)
            crossing = [(one, other) for one, other in zip(self, src) if one.is_cuda != other.is_cuda]
            if not crossing or depth():
                return result
            share = (clock() - start) // len(crossing)
            for one, other in crossing:
                if type(one) in plain and type(other) in plain:
                    sink("copy_", other, one, one.is_cuda, non_blocking, share)
            return result

        return foreach_copy

    def build(self, original: Any, position: int) -> Any:
        """`torch.tensor(data, device=...)` and its kin; `position` is where the data stands in the arguments."""
        sink, plain, depth, clock, compiling = self.sink, self.plain, self.depth, _clock, self.compiling

        @functools.wraps(original)
        def build(*args: Any, **kwargs: Any) -> Any:
            if compiling():
                return original(*args, **kwargs)
            start = clock()
            result = original(*args, **kwargs)
            if not result.is_cuda:
                return result
            ns = clock() - start
            data = args[position] if len(args) > position else next(iter(kwargs.values()), None)
            if type(result) in plain and not getattr(data, "is_cuda", False) and not depth():
                sink("new_on_device", data, result, True, False, ns)
            return result

        return build

    def getitem(self, original: Any) -> Any:
        sink, plain, depth, clock = self.sink, self.plain, self.depth, _clock

        @functools.wraps(original)
        def getitem(self: Any, index: Any) -> Any:
            kind = type(index)
            if kind in _PLAIN_INDEX or not self.is_cuda or (kind in plain and index.is_cuda):
                return original(self, index)
            host = _find_host_index(index)
            if host is None:
                return original(self, index)
            start = clock()
            result = original(self, index)
            ns = clock() - start
            if type(self) in plain and not depth():
                sink("index", host, self, True, False, ns)
            return result

        return getitem

    def setitem(self, original: Any) -> Any:
        sink, plain, depth, clock = self.sink, self.plain, self.depth, _clock

        @functools.wraps(original)
        def setitem(self: Any, index: Any, value: Any) -> Any:
            if not self.is_cuda:
                return original(self, index, value)
            copied = hasattr(value, "is_cuda") and not value.is_cuda
            host = None if type(index) in _PLAIN_INDEX else _find_host_index(index)
            if host is None and not copied:
                return original(self, index, value)
            start = clock()
            original(self, index, value)
            ns = clock() - start
            if type(self) in plain and not depth():
                if copied:
                    sink("setitem", value, self, True, False, ns)
                else:
                    sink("index", host, self, True, False, ns)
            return None

        return setitem


def _find_flag(args: tuple[Any, ...]) -> bool:
    """The value of a positional non_blocking: the first bool, since no argument before it is one."""
    return next((each for each in args if each is True or each is False), False)


def _find_host_index(index: Any) -> Any:
    """The first part of an index that is host data: a list, an array, or a tensor in host memory."""
    for part in index if type(index) is tuple else (index,):
        if type(part) in _PLAIN_INDEX:
            continue
        if not getattr(part, "is_cuda", False) and (hasattr(part, "dtype") or isinstance(part, list)):
            return part
    return None
