"""A GPU played by meta tensors, for what runs under `watch`: nothing is computed there, but copies have two sides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

MAKERS = ("zeros", "ones", "empty", "full", "tensor", "arange")


@pytest.fixture
def meta_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Meta tensors are on the GPU; what is asked to be pinned is remembered as such."""
    pinned: dict[int, Any] = {}

    def remember(tensor: Any) -> Any:
        pinned[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    def pinning(make: Callable[..., Any]) -> Callable[..., Any]:
        def made(*args: Any, pin_memory: bool = False, **kwargs: Any) -> Any:
            tensor = make(*args, **kwargs)
            return remember(tensor) if pin_memory else tensor

        return made

    def is_pinned(tensor: Any) -> bool:
        return tensor.device.type == "cpu" and tensor.numel() > 0 and tensor.untyped_storage().data_ptr() in pinned

    for name in MAKERS:
        monkeypatch.setattr(torch, name, pinning(getattr(torch, name)))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda tensor: tensor.device.type == "meta"), raising=False)
    monkeypatch.setattr(torch.Tensor, "is_pinned", is_pinned)
    copy = torch.Tensor.copy_

    def copy_(target: Any, source: Any, non_blocking: bool = False) -> Any:
        return target if source.device.type == "meta" != target.device.type else copy(target, source, non_blocking)

    monkeypatch.setattr(torch.Tensor, "copy_", copy_)
    monkeypatch.setattr(
        torch.Tensor,
        "pin_memory",
        lambda tensor: (
            tensor
            if is_pinned(tensor)
            else remember(torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).copy_(tensor))
        ),
    )
