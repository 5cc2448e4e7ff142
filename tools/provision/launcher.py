# SPDX-License-Identifier: Apache-2.0
"""Console scripts that run the interpreter beside them, wherever the prefix lies.

A `#!` line holds an absolute path without blanks; sh reads the second line of these as a string's
end and looks for the interpreter itself. Standard library only: a recipe runs it as

    python launcher.py <site-packages> <script>

on a script that pip wrote, whose first lines name the prefix that it was installed into.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import re
import sys
from pathlib import Path

HEAD = """#!/bin/sh
'''exec' "$(dirname -- "$(readlink -f -- "$0")")/python" "$0" "$@"
' '''
"""
# A wheel's `#!python`, the path that pip makes of it, or what pip writes where that is too long.
_INTERPRETER = re.compile(
    rb"#!(?:[^\n]*/)?python[^\n/]*\n|#!/bin/sh\n'''exec' [^\n]*python[^\n]*\n' '''\n"
)


def relocated(script: bytes) -> bytes:
    """A Python script whose interpreter is the one beside it; anything else as it is."""
    match = _INTERPRETER.match(script)
    return HEAD.encode() + script[match.end() :] if match else script


def relocate(site_packages: Path, script: Path) -> None:
    """Rewrites an installed script, and its line in the RECORD of the distribution that owns it.

    Raises:
        ValueError: it is no Python script, or no distribution in `site_packages` owns it.
    """
    content = script.read_bytes()
    changed = relocated(content)
    if changed == content:
        raise ValueError(f"{script}: expected a script that names its Python")
    name = Path(os.path.relpath(script, site_packages)).as_posix()
    for record in site_packages.glob("*.dist-info/RECORD"):
        rows = list(csv.reader(io.StringIO(record.read_text())))
        if not any(row[:1] == [name] for row in rows):
            continue
        digest = base64.urlsafe_b64encode(hashlib.sha256(changed).digest()).rstrip(b"=").decode()
        new = [name, f"sha256={digest}", str(len(changed))]
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(
            new if row[:1] == [name] else row for row in rows
        )
        script.write_bytes(changed)
        record.write_text(text.getvalue())
        return
    raise ValueError(f"{script}: no distribution in {site_packages} records {name}")


if __name__ == "__main__":
    relocate(Path(sys.argv[1]), Path(sys.argv[2]))
