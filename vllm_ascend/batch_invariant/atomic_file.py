# SPDX-License-Identifier: Apache-2.0
"""A file of results that is never half-written."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any


def check_writable(path: Path) -> None:
    """Raises OSError, before hours of work, where `write_atomically` would have to."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory; give a file")
    folder = path.absolute().parent
    if not folder.is_dir():
        raise FileNotFoundError(f"{path}: its directory does not exist")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"{path}: cannot write to its directory")


def write_json(path: Path, document: Any) -> None:
    """Writes JSON so that `path` is as before or complete, whatever happens."""
    write_atomically(path, (json.dumps(document, indent=2) + "\n").encode())


def write_atomically(path: Path, content: bytes) -> None:
    """Writes bytes so that `path` is as before or complete, whatever happens."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    scratch = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes private files; this one is a result like any other.
        umask = os.umask(0)
        os.umask(umask)
        scratch.chmod(0o666 & ~umask)
        scratch.replace(path)
    except BaseException:
        scratch.unlink()
        raise
