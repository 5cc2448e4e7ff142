# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
#
# What lies in a vendors directory: the link `batch_invariant`, the slot it leads to
# (`.batch_invariant.<digit>`), and what killed installers left. build.py puts these functions into
# the package's header and into uninstall.sh; the caller holds the lock. They expect die and say.

vendor=batch_invariant
list=scripts/files.sha256 # of every installed file but itself, as sha256sum prints it

# Whether the directory $1 has no entry but $2.
holds_only() {
  for entry in "$1"/* "$1"/.[!.]* "$1"/..?*; do
    [ "$entry" = "$1/$2" ] || { [ ! -e "$entry" ] && [ ! -L "$entry" ]; } || return 1
  done
}

# Removes from the slot $1 what the package installed. What others put there is kept, under a name
# that is said. The list goes last: a removal that was killed can be taken up again.
remove_slot() (
  cd -- "$1" || exit 1
  if [ -f "$list" ]; then
    shift "$#"
    while read -r _ name; do
      # Whoever may have changed the list: nothing outside.
      case /$name/ in
        //* | */../*) ;;
        *) set -- "$@" "$name" ;;
      esac
    done <"$list"
    rm -f -- "$@" || exit 1
    for name in "$@"; do
      while [ "$name" != "${name%/*}" ]; do
        name=${name%/*}
        # Gone already, perhaps, and what it lay in is not.
        rmdir -- "$name" || [ ! -e "$name" ] || break
      done
    done
  fi
  slot=$(pwd -P)
  cd ..
  if holds_only "$slot" scripts && holds_only "$slot/scripts" "${list##*/}"; then
    kept=$slot
  else
    number=1
    while
      kept=${slot%/*}/$vendor.kept.$number
      [ -e "$kept" ] || [ -L "$kept" ]
    do number=$((number + 1)); done
    mv -fT -- "$slot" "$kept" || exit 1
    say "kept, as the package did not install them: the files in $kept"
  fi
  rm -f -- "$kept/$list"
  rmdir -- "$kept/scripts" 2>/dev/null || :
  [ "$kept" != "$slot" ] || rmdir -- "$slot"
) 2>/dev/null

# Removes what killed installers and uninstallers left in the directory $1, where the slot $2 (its
# name, or nothing) is in use. What cannot be removed is left alone: there are ten slots.
sweep() {
  drop_dead_holders "$1"
  if [ -L "$1/.$vendor.link" ]; then rm -f -- "$1/.$vendor.link"; fi
  rm -rf -- "$1/.$vendor".[0-9].partial 2>/dev/null || :
  for slot in "$1/.$vendor".[0-9]; do
    if [ "$slot" != "$1/$2" ] && [ -d "$slot" ] && [ ! -L "$slot" ]; then remove_slot "$slot" || :; fi
  done
}

# Removes the installation in the directory $1, which is in the slot $2.
remove_installation() {
  # The link first: from here on nothing is installed, whatever happens below.
  rm -f -- "$1/$vendor" 2>/dev/null || die "cannot remove $1/$vendor: is it read-only?"
  sweep "$1" ''
  say "removed $1/$vendor"
}
