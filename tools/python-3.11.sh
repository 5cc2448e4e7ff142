# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Source this to find the Python 3.11 that the locks are for.

# is_python_311 PYTHON [MODULE]: whether it is one, and has the module.
is_python_311() {
  "$1" -c "import sys${2:+, $2}; sys.exit(sys.version_info[:2] != (3, 11))" 2>/dev/null
}

# find_python_311 [MODULE]: prints $PYTHON, or where that is unset python3.11 or python3: the first
# that is one. Fails where none is.
find_python_311() {
  local candidate
  local -a candidates=(python3.11 python3)
  [[ -z ${PYTHON:-} ]] || candidates=("$PYTHON")
  for candidate in "${candidates[@]}"; do
    if is_python_311 "$candidate" "${1:-}"; then
      command -v -- "$candidate"
      return
    fi
  done
  return 1
}
