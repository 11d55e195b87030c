"""Runs every function of a module before and after its fixes and tells where they differ.

On a host without a GPU both run as they are; a second time both run against the GPU of `fake_gpu`.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from fake_gpu import DEVICE, fake_gpu

import h2dlint
from h2dlint.config import Config, Selection

ALL_RULES = Config(selections=(Selection(select=("HTD1", "HTD3")),), include_cold=True, include_small=True)
ARGUMENTS = ((0, True), (2, True), (3, False))


@dataclass(frozen=True)
class Difference:
    """A function that does something else after its fix."""

    name: str
    before: str
    after: str
    what: str

    def __str__(self) -> str:
        return f"{self.what}\n--- before\n{self.before}\n--- after\n{self.after}"


def fix(text: str, unsafe: bool, filename: str) -> h2dlint.engine.FixResult:
    return h2dlint.fix_source(text, filename=filename, unsafe=unsafe, config=ALL_RULES)


def differences(before: str, after: str, unsafe: bool) -> tuple[int, list[Difference]]:
    """How many of the functions f0, f1, ... have another text, and where those do something else."""
    old, new = split_functions(before), split_functions(after)
    changed = [name for name in old if old[name] != new[name]]
    found: dict[str, str] = {}
    for has_gpu in (False, True):
        was, now = _load(before, has_gpu), _load(after, has_gpu)
        for name in changed:
            # Without a GPU "cuda" raises either way, though perhaps in other words.
            if name in found or (not has_gpu and _asks_for_cuda(old[name])):
                continue
            if what := _compare(was, now, name, has_gpu, unsafe):
                found[name] = what
    return len(changed), [Difference(name, old[name], new[name], what) for name, what in found.items()]


def _compare(before: dict[str, Any], after: dict[str, Any], name: str, has_gpu: bool, unsafe: bool) -> str:
    for arguments in ARGUMENTS:
        was, now = (_run(module, name, arguments, has_gpu, eager=unsafe) for module in (before, after))
        place = f"{name}{arguments} {'on the fake GPU' if has_gpu else 'without a GPU'}"
        if what := differs(was.result, now.result):
            return f"{place}: {what}"
        if was.seen != now.seen:
            return f"{place}: side effects {was.seen} became {now.seen}"
        if now.resized and not was.resized:
            return f"{place}: an `out=` has another shape than what is written to it"
        if now.races and not was.races and not unsafe:
            return f"{place}: the fix brought a race"
    return ""


@dataclass(frozen=True)
class Run:
    result: object
    seen: list[str]
    races: int = 0
    resized: bool = False


@dataclass(frozen=True)
class Failure:
    """An exception that came out of a function."""

    kind: type[BaseException]


def _load(text: str, has_gpu: bool) -> dict[str, Any]:
    scope: dict[str, Any] = {"__name__": "case"}
    code = compile(text, "case.py", "exec")
    if has_gpu:
        with fake_gpu():
            exec(code, scope)
    else:
        exec(code, scope)
    return scope


def _run(scope: dict[str, Any], name: str, arguments: tuple[int, bool], has_gpu: bool, eager: bool) -> Run:
    scope["SEEN"].clear()
    number, flag = arguments
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        if has_gpu:
            with fake_gpu(eager) as gpu:
                result = _call(scope[name], number, DEVICE, flag)
            races = gpu.races
        else:
            result, races = _call(scope[name], number, DEVICE, flag), 0
    resized = any("was resized" in str(one.message) for one in warned)
    return Run(_with_gradients(result), list(scope["SEEN"]), races, resized)


def _call(function: Any, *arguments: object) -> object:
    try:
        return function(*arguments)
    except Exception as error:
        return Failure(type(error))


def _with_gradients(result: object) -> object:
    """The result, and what flows back to the leaves of each part of it that asks for a gradient."""
    leaves: list[Any] = []
    for tensor in _tensors(result):
        if tensor.grad_fn is None or not tensor.is_floating_point():
            continue
        found = sorted(_leaves(tensor.grad_fn, set()), key=lambda leaf: (leaf.shape, leaf.sum().item()))
        weights = torch.arange(1, 1 + tensor.numel(), dtype=tensor.dtype).reshape(tensor.shape)
        try:
            leaves.append(list(torch.autograd.grad(tensor, found, weights, retain_graph=True, allow_unused=True)))
        except RuntimeError as error:
            leaves.append(Failure(type(error)))
    return [result, leaves]


def _leaves(node: Any, visited: set[int]) -> Iterator[torch.Tensor]:
    if node is None or id(node) in visited:
        return
    visited.add(id(node))
    if hasattr(node, "variable"):
        yield node.variable
    for following, _ in node.next_functions:
        yield from _leaves(following, visited)


def _tensors(value: object) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def differs(one: object, two: object) -> str:
    """How two results differ; empty where they are alike in type, values, shape, dtype, strides and need of grad."""
    if type(one) is not type(two):
        return f"{one!r} became {two!r}"
    if isinstance(one, torch.Tensor) and isinstance(two, torch.Tensor):
        for aspect in ("shape", "dtype", "requires_grad", "is_leaf"):
            if getattr(one, aspect) != getattr(two, aspect):
                return f"{aspect} {getattr(one, aspect)} became {getattr(two, aspect)}"
        if _strides(one) != _strides(two):
            return f"strides {one.stride()} became {two.stride()}"
        return "" if torch.equal(one, two) else f"{one} became {two}"
    if isinstance(one, (list, tuple)) and isinstance(two, (list, tuple)):
        if len(one) != len(two):
            return f"{one} became {two}"
        return next((what for pair in zip(one, two) if (what := differs(*pair))), "")
    return "" if one == two else f"{one!r} became {two!r}"


def _strides(tensor: torch.Tensor) -> list[int]:
    """The strides that can be told apart: those of dimensions with more than one element, of tensors with any."""
    return [s for s, n in zip(tensor.stride(), tensor.shape) if n > 1] if tensor.numel() else []


def split_functions(text: str) -> dict[str, str]:
    """The texts of the functions f0, f1, ... of a module."""
    lines = text.split("\n")
    nodes = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and node.name[1:].isdigit()]
    return {node.name: "\n".join(lines[node.lineno - 1 : node.end_lineno]) for node in nodes}


def _asks_for_cuda(function: str) -> bool:
    return "'cuda'" in function or ".cuda(" in function
