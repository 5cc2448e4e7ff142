# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Source this to find the Python 3.11 that the locks are for, or any that is new enough.

# python_version PYTHON [MODULE]: prints, like "3 11", the version of a Python that has the module. A
# program that is no Python may well succeed, and print what it is given.
python_version() {
  "$1" -c "import sys${2:+, $2}; print(*sys.version_info[:2])" 2>/dev/null || :
}

# is_python_311 PYTHON [MODULE]: whether it is one, and has the module.
is_python_311() {
  [[ $(python_version "$@") == "3 11" ]]
}

# is_python_311_or_newer PYTHON
is_python_311_or_newer() {
  [[ $(python_version "$1") =~ ^3\ ([0-9]+)$ ]] && ((BASH_REMATCH[1] >= 11))
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
