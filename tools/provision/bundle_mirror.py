# SPDX-License-Identifier: Apache-2.0
"""Which files of a folder are the archives of a Spack source mirror. The standard library alone."""

from __future__ import annotations

from pathlib import Path

from provision.bundle_verify import BundleError

# Where Spack's source mirrors keep an archive: by its sha256, with the suffix of its URL.
ARCHIVES = "_source-cache/archive"


def archives(folder: Path) -> list[Path]:
    """Every archive of the mirror, in order.

    Raises:
        BundleError: there is none.
    """
    files = sorted(path for path in (folder / ARCHIVES).glob("*/*") if path.is_file())
    if not files:
        raise BundleError(f"--mirror {folder}: expected archives in {ARCHIVES}, found none")
    return files
