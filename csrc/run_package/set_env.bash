# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# Source this to let CANN and batch_invariant_ops find the operators it lies beside. It works from
# wherever the package lies, and sourcing it again changes nothing.

_batch_invariant_set_env() {
  local here rest entry kept=
  here=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." >/dev/null && pwd) || return 1
  # The name that stays the same when the package is replaced.
  if [[ $here == */.batch_invariant.[0-9] ]]; then
    here=${here%/*}/batch_invariant
  fi
  if [[ $here == *:* ]]; then
    printf 'set_env.bash: %s: a list of paths cannot hold a path with a colon\n' "$here" >&2
    return 1
  fi
  rest=${ASCEND_CUSTOM_OPP_PATH:-}:
  while [[ -n $rest ]]; do
    entry=${rest%%:*}
    rest=${rest#*:}
    if [[ -n $entry && $entry != "$here" ]]; then
      kept+=:$entry
    fi
  done
  export ASCEND_CUSTOM_OPP_PATH=$here$kept
}

_batch_invariant_set_env || {
  unset -f _batch_invariant_set_env
  return 1
}
unset -f _batch_invariant_set_env
