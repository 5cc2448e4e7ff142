#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Removes the operator package that this script is part of: the files it installed and no others.
# shellcheck disable=SC2317 # the last line is never reached
set -eu
unset CDPATH
LC_ALL=C
export LC_ALL

vendor=batch_invariant

say() { printf '%s\n' "$1"; }

die() {
  printf 'uninstall.sh: %s\n' "$1" >&2
  exit 1
}

# shellcheck source-path=SCRIPTDIR source=lock.sh
. ./lock.sh

main() {
  [ $# -eq 0 ] || die "takes no arguments; it removes the package that it lies in"
  # Of the real path: the script's own directory may be reached through any link.
  slot=$(cd -- "$(dirname -- "$0")/.." && pwd -P)
  vendors=$(dirname -- "$slot")
  place=$vendors/$vendor
  lock_vendors "$vendors"
  trap unlock_vendors EXIT
  if [ ! -f "$slot/scripts/files.sha256" ] || [ "$(readlink -- "$place")" != "${slot##*/}" ]; then
    die "$place is not the installation that this script belongs to"
  fi
  # The link first: from here on nothing is installed, whatever happens below.
  rm -f -- "$place" || die "cannot remove $place: is it read-only?"
  cd -- "$slot"
  while read -r _ name; do set -- "$@" "$name"; done <scripts/files.sha256
  rm -f -- "$@" scripts/files.sha256
  for name in "$@" scripts/files.sha256; do
    while [ "$name" != . ]; do
      name=$(dirname -- "$name")
      rmdir -- "$name" 2>/dev/null || break
    done
  done
  cd -- "$vendors"
  if ! rmdir -- "$slot" 2>/dev/null; then
    kept=$vendors/$vendor.kept.$$
    mv -- "$slot" "$kept"
    say "kept, as the package did not install them: the files in $kept"
  fi
  unlock_vendors
  cd /
  rmdir -- "$vendors" 2>/dev/null || :
  say "removed $place"
  exit 0
}

main "$@"
exit 1
