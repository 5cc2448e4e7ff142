# SPDX-License-Identifier: Apache-2.0
"""The stub CANN has what CANN is recognised by."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.stub_cann.make import make_stub_cann


@pytest.mark.parametrize("layout", ["new", "old"])
def test_both_layouts_describe_themselves(tmp_path: Path, layout: str) -> None:
    home = make_stub_cann(tmp_path, "8.2.RC1", "aarch64", layout)
    (info,) = (path for path in home.rglob("*.info") if not path.is_symlink())
    lines = dict(line.split("=", 1) for line in info.read_text().splitlines())
    assert (lines["version"], lines["arch"]) == ("8.2.RC1", "aarch64")
    assert Path(lines["path"]) == info.parent
    assert (home / "lib64/libascendcl.so").stat().st_size > 0
    assert (home / "include/acl/acl.h").is_file()


def test_set_env_sets_what_the_real_one_sets(tmp_path: Path) -> None:
    home = make_stub_cann(tmp_path, libraries=False)
    script = f'. "{home}/set_env.sh" && echo "$ASCEND_HOME_PATH $ASCEND_OPP_PATH"'
    said = subprocess.run(["sh", "-euc", script], check=True, capture_output=True, text=True)
    assert said.stdout.split() == [str(home), f"{home}/opp"]


def test_an_unknown_layout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected new or old, found 'flat'"):
        make_stub_cann(tmp_path, layout="flat")
