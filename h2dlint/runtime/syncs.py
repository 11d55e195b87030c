"""Merges what `torch.cuda.set_sync_debug_mode` knows: synchronising calls that are no copy with a pageable end.

PyTorch warns from C++ in the thread that makes the call, while the caller's frame is on top, so the caller can be read
off the stack. The mode belongs to the whole process; it is set here only where nobody has set it, and put back.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

_MESSAGE = "called a synchronizing CUDA operation"


class SyncListener:
    """Has the mode on while somebody wants it: `start` once CUDA is up, `stop` at the end; both may be called twice."""

    def __init__(self, hear: Callable[[], None]) -> None:
        self._hear = hear
        self._wanted: set[object] = set()
        self._lock = threading.Lock()
        self._show: Any = None
        self._filter: Any = None

    def start(self, client: object) -> bool:
        """Listen for `client` too, unless the user has set a mode; False where CUDA is not initialised yet."""
        import torch

        with self._lock:
            if not torch.cuda.is_initialized():
                return False
            if not self._wanted and torch.cuda.get_sync_debug_mode() != 0:
                return True
            self._wanted.add(client)
            if len(self._wanted) > 1:
                return True
            _set_mode("warn")
            warnings.filterwarnings("always", message=_MESSAGE)
            self._filter = warnings.filters[0]
            self._show, warnings.showwarning = warnings.showwarning, self._receive
            return True

    def stop(self, client: object) -> None:
        """After the last client, put mode, filter and handler back; a handler set by somebody else since stays."""
        with self._lock:
            if client not in self._wanted:
                return
            self._wanted.discard(client)
            if self._wanted:
                return
            _set_mode("default")
            if self._filter in warnings.filters:
                warnings.filters.remove(self._filter)  # type: ignore[attr-defined]
            if warnings.showwarning == self._receive:
                warnings.showwarning = self._show

    def _receive(self, message: Warning | str, category: type[Warning], *args: Any, **kwargs: Any) -> None:
        if str(message).startswith(_MESSAGE):
            self._hear()
        else:
            self._show(message, category, *args, **kwargs)


def _set_mode(mode: str) -> None:
    """Set the mode without the warning that PyTorch gives for doing so."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.cuda.set_sync_debug_mode(mode)
