#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

# By name, not by path: a path would be recorded in direct_url.json.
export SOURCE_DATE_EPOCH=315532800 PYTHONDONTWRITEBYTECODE=1 PIP_ROOT_USER_ACTION=ignore
"$PYTHON" -m pip --disable-pip-version-check --no-input install --no-deps --no-index --no-compile \
  --find-links . torch_npu

# The package's licence is the wheel's own.
"$PYTHON" - <<'END'
import pathlib, zipfile

[wheel] = pathlib.Path().glob("torch_npu-*.whl")
with zipfile.ZipFile(wheel) as archive:
    [name] = [n for n in archive.namelist() if n.endswith(".dist-info/licenses/LICENSE")]
    pathlib.Path("LICENSE").write_bytes(archive.read(name))
END
