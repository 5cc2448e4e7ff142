#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Removes the operator package that this script is part of: the files it installed and no others.
# shellcheck disable=SC2317 # the last line is never reached
[ -z "${ZSH_VERSION:-}" ] || emulate sh
set -eu
unset CDPATH
LC_ALL=C
export LC_ALL

say() { printf '%s\n' "$1" 2>/dev/null || :; }

die() {
  printf 'uninstall.sh: %s\n' "$1" >&2
  exit 1
}

# shellcheck source-path=SCRIPTDIR source=lock.sh
. ./lock.sh
# shellcheck source-path=SCRIPTDIR source=slots.sh
. ./slots.sh

main() {
  [ $# -eq 0 ] || die "takes no arguments; it removes the package that it lies in"
  # Of the real path: the script's own directory may be reached through any link.
  slot=$(cd -- "$(dirname -- "$0")/.." && pwd -P)
  vendors=$(dirname -- "$slot")
  place=$vendors/$vendor
  current=$(readlink -- "$place") || current=
  if [ ! -f "$slot/$list" ] || [ "$current" != "${slot##*/}" ]; then
    die "$place is not the installation that this script belongs to"
  fi
  lock_vendors "$vendors"
  trap unlock_vendors EXIT
  # Again: another may have been at work while we waited.
  if [ "$(readlink -- "$place")" != "$current" ]; then
    die "$place is not the installation that this script belongs to"
  fi
  cd /
  remove_installation "$vendors"
  unlock_vendors
  rmdir -- "$vendors" 2>/dev/null || :
  exit 0
}

main "$@"
exit 1
