"""Replaces files so that each is old or new at any moment, and sweeps up what a killed run left."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from h2dlint.discover import TEMPORARY


class WriteError(OSError):
    """The file keeps its old bytes; the message says why, without the file's name."""


def replace_file(path: str, old: bytes, new: bytes) -> None:
    """Give the file `new` in place of `old`: mode and (where allowed) owner stay, a symlink is followed.

    Raises WriteError; also where the file no longer holds `old` or is read-only.
    """
    target = os.path.realpath(path)
    temporary = os.path.join(os.path.dirname(target), f".h2dlint-{os.getpid()}-{os.urandom(4).hex()}.tmp")
    try:
        before = os.stat(target)
        if not before.st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH) or not os.access(target, os.W_OK):
            raise WriteError("is read-only")
        try:
            _write(temporary, new, before)
            if Path(target).read_bytes() != old:
                raise WriteError("has changed since it was read")
            os.replace(temporary, target)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
    except WriteError:
        raise
    except OSError as error:
        raise WriteError(f"cannot be written: {(error.strerror or str(error)).lower()}") from None


def sweep(strays: Iterable[str]) -> None:
    """Remove temporaries whose process is gone."""
    for path in strays:
        match = TEMPORARY.fullmatch(os.path.basename(path))
        if match and not _is_running(int(match[1])):
            with contextlib.suppress(OSError):
                os.unlink(path)


def find_strays(folders: Iterable[str]) -> list[str]:
    """The temporaries of any run in the folders."""
    strays = []
    for folder in folders:
        with contextlib.suppress(OSError):
            strays += [os.path.join(folder, name) for name in os.listdir(folder) if TEMPORARY.fullmatch(name)]
    return strays


def _write(temporary: str, data: bytes, before: os.stat_result) -> None:
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
    with open(descriptor, "wb") as stream:
        stream.write(data)
        stream.flush()
        if hasattr(os, "fchown"):
            # Only root may give a file away; others keep their own name on it.
            with contextlib.suppress(PermissionError):
                os.fchown(stream.fileno(), before.st_uid, before.st_gid)
        os.chmod(temporary, stat.S_IMODE(before.st_mode))
        os.fsync(stream.fileno())


def _is_running(process: int) -> bool:
    if process == os.getpid():
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
