#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds and installs the batch-invariant operators for a SoC: stage 1, the operator run package,
# then stage 2, the wheel batch_invariant_ops, for the Python in $PYTHON (python3 by default).
#
#   bash csrc/build_batch_invariant_ops.sh cpu
#
# --help lists the options. What it does is in csrc/stages.py.
set -euo pipefail

die() {
  printf 'build_batch_invariant_ops: %s\n' "$1" >&2
  exit 1
}

root=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source-path=SCRIPTDIR source=../tools/python-3.11.sh
source "$root/tools/python-3.11.sh"
python=${PYTHON:-python3}
command -v "$python" >/dev/null 2>&1 ||
  die "there is no '$python': install Python 3.11 or newer, or set PYTHON to one"
is_python_311_or_newer "$python" ||
  {
    found=$("$python" --version 2>&1) || :
    found=${found%%$'\n'*} # other programs say more
    die "$python is ${found:-not a Python}: set PYTHON to a Python 3.11 or newer"
  }

# The root and tools go into this process's path only: what it starts sees the caller's environment.
exec "$python" -P -B -c '
import runpy, sys
root = sys.argv.pop(1)
sys.path[:0] = [root, f"{root}/tools"]
runpy.run_module("csrc.stages", run_name="__main__", alter_sys=True)
' "$root" "$@"
