#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
umask 022 # others read what is installed, and it is the same whoever built it
# No search path in the library, which needs none: it would name the build's prefix until conda makes
# it relative, and RECORD keeps the digest from before.
unset LD_RUN_PATH
LDFLAGS=" ${LDFLAGS:-} "
export LDFLAGS=${LDFLAGS//" -Wl,-rpath,$PREFIX/lib "/ }

# The same sources give the same bytes wherever they lie: no path of the build in the binary, no
# time in the wheel. Installing by name, not by path, keeps direct_url.json out.
export SOURCE_DATE_EPOCH=315532800 PYTHONDONTWRITEBYTECODE=1 PIP_ROOT_USER_ACTION=ignore
# Quoted: a path may have a blank.
maps="'-ffile-prefix-map=$SRC_DIR=.' '-ffile-prefix-map=$PREFIX=prefix'"
export CFLAGS="${CFLAGS:-} $maps" CXXFLAGS="${CXXFLAGS:-} $maps"
export MAX_JOBS=${CPU_COUNT:-2}
pip=("$PYTHON" -m pip --disable-pip-version-check --no-input)

if [[ $PROVIDER == official ]]; then
  sources=$("$PYTHON" official_artifact.py extension --downloads "$BI_DOWNLOADS" --unpack official)
elif [[ $SOC == cpu ]]; then
  sources=./csrc/torch_ops_extension
else
  echo "error: provider=source: the operators of $SOC are not in this tree yet; build provider=official" >&2
  exit 1
fi
"${pip[@]}" wheel --verbose --no-deps --no-index --no-build-isolation --wheel-dir dist "$sources"
"${pip[@]}" install --no-deps --no-index --no-compile --find-links dist batch_invariant_ops
