# SPDX-License-Identifier: Apache-2.0
"""A script that pip wrote runs from wherever its prefix is moved to."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
from provision.launcher import relocate, relocated

PIPS = [
    b"#!/opt/a/bin/python3.11\n",
    b"#!python\n",
    b"#!pythonw\n",
    # What pip writes where the path is too long for a `#!` line, or has a blank in it.
    b"#!/bin/sh\n'''exec' \"/opt/a prefix/bin/python3.11\" \"$0\" \"$@\"\n' '''\n",
]


def install(prefix: Path, head: bytes) -> tuple[Path, Path]:
    """A prefix with one script and the RECORD that owns it, among another's."""
    site, script = prefix / "lib/python3.11/site-packages", prefix / "bin/tool"
    for folder in (site / "tool-1.dist-info", site / "other-1.dist-info", script.parent):
        folder.mkdir(parents=True)
    script.write_bytes(head + b"import sys\nprint('ran', *sys.argv[1:])\n")
    script.chmod(0o755)
    (site / "other-1.dist-info/RECORD").write_text("other.py,,\n")
    (site / "tool-1.dist-info/RECORD").write_text(
        'tool.py,sha256=x,1\n../../../bin/tool,sha256=y,2\n"a,b.py",,\n'
    )
    (prefix / "bin/python").symlink_to(sys.executable)
    return site, script


@pytest.mark.parametrize("head", PIPS)
def test_it_runs_from_a_moved_prefix_and_its_record_is_right(tmp_path: Path, head: bytes) -> None:
    site, script = install(tmp_path / "built", head)
    relocate(site, script)
    content = script.read_bytes()
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    assert (site / "tool-1.dist-info/RECORD").read_text() == (
        f'tool.py,sha256=x,1\n../../../bin/tool,sha256={digest},{len(content)}\n"a,b.py",,\n'
    )
    assert (site / "other-1.dist-info/RECORD").read_text() == "other.py,,\n"
    moved = (tmp_path / "built").rename(tmp_path / "moved, 别处")
    done = subprocess.run([moved / "bin/tool", "a b"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "ran a b\n"), done.stderr


def test_the_prefix_of_the_build_is_nowhere_in_it() -> None:
    scripts = {relocated(head + b"pass\n") for head in PIPS}
    assert len(scripts) == 1


def test_a_script_that_is_not_pythons_is_left_alone(tmp_path: Path) -> None:
    assert relocated(b"#!/bin/sh\necho\n") == b"#!/bin/sh\necho\n"
    site, script = install(tmp_path, b"#!/bin/sh\n")
    with pytest.raises(ValueError, match="expected a script that names its Python"):
        relocate(site, script)


def test_a_script_that_nobody_owns_is_refused(tmp_path: Path) -> None:
    site, script = install(tmp_path, PIPS[0])
    stray = script.with_name("stray")
    stray.write_bytes(PIPS[0])
    with pytest.raises(ValueError, match=r"no distribution .* records"):
        relocate(site, stray)
    assert stray.read_bytes() == PIPS[0]
