"""The runtime checker: sees the copies that a running program makes, and says which of them held the host.

    with h2dlint.runtime.watch() as report:
        step()
    print(report.found)

Importing this package imports no torch; opening a watch does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from h2dlint.runtime.script import watch_cli as watch_cli
    from h2dlint.runtime.watching import BlockingCopyError as BlockingCopyError
    from h2dlint.runtime.watching import BlockingCopyWarning as BlockingCopyWarning
    from h2dlint.runtime.watching import Watch as Watch
    from h2dlint.runtime.watching import Watch as watch
    from h2dlint.runtime.watching import allow as allow

_HOMES = {
    "watch": ("watching", "Watch"),
    "Watch": ("watching", "Watch"),
    "allow": ("watching", "allow"),
    "BlockingCopyError": ("watching", "BlockingCopyError"),
    "BlockingCopyWarning": ("watching", "BlockingCopyWarning"),
    "watch_cli": ("script", "watch_cli"),
}

__all__ = ["BlockingCopyError", "BlockingCopyWarning", "Watch", "allow", "watch", "watch_cli"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    home, attribute = _HOMES[name]
    return getattr(import_module(f"{__name__}.{home}"), attribute)
