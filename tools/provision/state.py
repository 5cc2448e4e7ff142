# SPDX-License-Identifier: Apache-2.0
"""The folder in which everything lies that is made on the way, and who may write to it."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

# Overrides the default, build/ in the tree; scripts/test reads it too.
VARIABLE = "BI_BUILD"


@dataclass(frozen=True)
class State:
    """The folders below the state folder."""

    root: Path

    @property
    def tools(self) -> Path:
        """The virtual environment the tools run in."""
        return self.root / "tools"

    @property
    def wheels(self) -> Path:
        """Downloaded wheels, each checked against the lock before use."""
        return self.root / "wheels"

    @property
    def standin(self) -> Path:
        """The stand-in channel."""
        return self.root / "channel" / "standin"

    @property
    def stages(self) -> Path:
        """The channel of what the recipes build."""
        return self.root / "channel" / "stages"

    def stages_for(self, soc: str) -> Path:
        """The channel of what the recipes build for a SoC; each package is there once."""
        return self.stages if soc == "cpu" else self.stages.with_name(f"stages-{soc}")

    @property
    def cache(self) -> Path:
        """The solver's cache, for building recipes and for installing."""
        return self.root / "cache"

    @property
    def packages(self) -> Path:
        """Unpacked packages; prefixes on the same file system hold hard links to them."""
        return self.cache / "pkgs"

    @property
    def lock(self) -> Path:
        """Held by the one process that writes here."""
        return self.root / ".provision.lock"

    @property
    def logs(self) -> Path:
        """What the recipes' builds print."""
        return self.root / "logs"

    @property
    def models(self) -> Path:
        """The tiny models that are checked."""
        return self.root / "models"

    @property
    def prefix(self) -> Path:
        """The default prefix."""
        return self.root / "prefix"


def state_folder(tree: Path, option: str | None, environment: dict[str, str]) -> State:
    """The state folder: the option, else $BI_BUILD, else ``build/`` in the tree."""
    return State(absolute(option or environment.get(VARIABLE) or str(tree / "build")))


def absolute(text: str) -> Path:
    """A path as typed, made absolute. Raises ValueError in one line where it cannot be one."""
    try:
        path = Path(text).expanduser().absolute()
        path.exists()  # a name that is too long, a loop of links
    except (OSError, RuntimeError, ValueError) as error:
        raise ValueError(f"{text!r} cannot be a path here: {error}") from None
    return path


@contextlib.contextmanager
def exclusive(lock: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock file ``lock`` alone; ``waiting`` is called once if another process holds it.

    The kernel drops the lock with the process, however that ends.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def file_sha256(path: Path) -> str:
    """The sha256 of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_json(path: Path, value: object) -> None:
    """Write a JSON file in one step."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    partial.replace(path)
