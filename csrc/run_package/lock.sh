# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
#
# One installer at a time in a vendors directory. build.py puts these functions into the package's
# header and into uninstall.sh. They expect die and say.

# shellcheck disable=SC2034 # the first two are read by the installer
locked=        # the directory that is locked
existing=      # the deepest directory of its path that was there before
lock_dir=      # a directory that is the lock; empty while flock does the work
host=          # this host's part of a holder's name
lock_limit=600 # seconds to wait for another installation

# Locks the directory $1, an absolute path, creating it. flock is preferred: the kernel releases it
# when the holder and its children are gone, killed or not. Where there is no flock, or the file
# system cannot (some network file systems), a directory is the lock.
lock_vendors() {
  waited=0
  case $1 in
    /*) ;;
    *) die "'$1' is not an absolute path" ;; # a damaged script may come here by itself
  esac
  while :; do
    # In each round: a failed installer may have removed what it had made, while we waited for it.
    existing=$1
    while [ ! -e "$existing" ]; do existing=$(dirname -- "$existing"); done
    [ -d "$existing" ] || die "$existing is not a directory: choose another place"
    mkdir -p -- "$1" 2>/dev/null || die "cannot create $1: choose a place you may write to"
    if [ ! -w "$1" ] || [ ! -x "$1" ]; then die "cannot write to $1: choose a place you may write to"; fi
    code=127
    if command -v flock >/dev/null 2>&1 && command exec 9<"$1"; then
      code=0
      flock -n 9 2>/dev/null || code=$?
    fi
    holder=
    case $code in
      0)
        # shellcheck disable=SC3013 # dash, bash and busybox have -ef
        if [ -e /dev/fd/9 ] && [ ! "$1" -ef /dev/fd/9 ]; then continue; fi
        locked=$1
        return 0
        ;;
      1) ;; # held by another process
      *)
        if lock_by_directory "$1"; then
          locked=$1
          return 0
        fi
        ;;
    esac
    [ "$waited" -ne 0 ] || say "waiting for another installation in $1"
    waited=$((waited + 1))
    [ "$waited" -le "$lock_limit" ] ||
      die "another installation has held $1 for $lock_limit seconds: try again when it is done${holder:+, or remove $holder if its process (PID.START.HOST) has ended}"
    sleep 1
  done
}

# The lock is a directory with one entry, whose name says who holds it: PID.START.HOST. It takes its
# place by rename with that entry inside, and rename puts a directory where there is none or an empty
# one: who is killed, whenever, holds the lock by name or not at all. A holder that is gone is removed
# by its name, which nobody else ever has: a lock that changed hands meanwhile stays.
lock_by_directory() {
  lock_dir=$1/.batch_invariant.lock
  if [ -L "$lock_dir" ] || { [ -e "$lock_dir" ] && [ ! -d "$lock_dir" ]; }; then
    lock_dir=
    die "$1/.batch_invariant.lock is in the way, and no installer made it: remove it"
  fi
  [ -n "$host" ] || this_host
  # shellcheck disable=SC2046 # a list of fields
  set -- "$1" $(process_state $$)
  me=$$.${3:-0}.$host
  drop_dead_holders "$1"
  mkdir -p -- "$lock_dir.$me/$me" 2>/dev/null || die "cannot write to $1: is it full?"
  ! mv -fT -- "$lock_dir.$me" "$lock_dir" 2>/dev/null || return 0
  rmdir -- "$lock_dir.$me/$me" "$lock_dir.$me" 2>/dev/null || :
  for holder in "$lock_dir"/*; do :; done # for who waits to the end
  [ -d "$holder" ] || holder=
  lock_dir=
  return 1
}

# Puts this host's part of a holder's name into $host. Containers may share a host's name: a process
# number means something in its own namespace only.
this_host() {
  host=$(readlink /proc/self/ns/pid 2>/dev/null) || host=
  host=${host#*\[}
  host=$(uname -n)${host:+-${host%\]}}
}

# Prints the state (Z is a zombie) and the time of start of process $1; fails if they aren't to be seen.
process_state() {
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
  # Its name, in parentheses, may hold anything. Counted from there, the start is the 20th field.
  # shellcheck disable=SC2086
  set -- ${stat##*) }
  printf '%s %s\n' "$1" "${20}"
}

# Whether the holder $1, PID.START.HOST, is known to be gone: of another host nothing is known.
is_gone() {
  [ -n "$host" ] || this_host
  [ "${1#*.*.}" = "$host" ] || return 1
  pid=${1%%.*}
  if found=$(process_state "$pid"); then
    started=${1#*.}
    case $found in
      [ZX]\ *) return 0 ;;
      *" ${started%%.*}") return 1 ;;
      *) return 0 ;; # another process with its number
    esac
  fi
  # /proc may hide another user's processes, or not be there.
  case $(kill -0 "$pid" 2>&1) in
    *"o such process"*) return 0 ;;
    *) return 1 ;;
  esac
}

# Removes what killed installers left of their locks in the directory $1.
drop_dead_holders() {
  for left in "$1/.batch_invariant.lock" "$1"/.batch_invariant.lock.*; do
    for entry in "$left"/*; do
      if [ -d "$entry" ] && is_gone "${entry##*/}"; then rmdir -- "$entry" 2>/dev/null || :; fi
    done
    # An empty lock is one that nobody holds, unless its name says who is about to fill it.
    name=${left##*/.batch_invariant.lock}
    if [ -d "$left" ] && { [ -z "$name" ] || is_gone "${name#.}"; }; then
      rmdir -- "$left" 2>/dev/null || :
    fi
  done
}

unlock_vendors() {
  if [ -n "$lock_dir" ]; then rmdir -- "$lock_dir/$me" "$lock_dir" 2>/dev/null || :; fi
  lock_dir=
  locked=
}
