#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
umask 022 # others read what is installed, and it is the same whoever built it

# The same sources give the same bytes wherever they lie: no path of the build in the binary, no
# time in the wheel. Installing by name, not by path, keeps direct_url.json out.
export SOURCE_DATE_EPOCH=315532800 PYTHONDONTWRITEBYTECODE=1 PIP_ROOT_USER_ACTION=ignore
# Quoted: a path may have a blank.
maps="'-ffile-prefix-map=$SRC_DIR=.' '-ffile-prefix-map=$PREFIX=prefix'"
export CFLAGS="${CFLAGS:-} $maps" CXXFLAGS="${CXXFLAGS:-} $maps"
export MAX_JOBS=${CPU_COUNT:-2}
pip=("$PYTHON" -m pip --disable-pip-version-check --no-input)

"${pip[@]}" wheel --verbose --no-deps --no-index --no-build-isolation --wheel-dir dist \
  ./csrc/torch_ops_extension
"${pip[@]}" install --no-deps --no-index --no-compile --find-links dist batch_invariant_ops
