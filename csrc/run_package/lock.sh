# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
#
# One installer at a time in a vendors directory. build.py puts these functions into the package's
# header and into uninstall.sh. They expect die and say.

# shellcheck disable=SC2034 # the first two are read by the installer
locked=        # the directory that is locked
existing=      # the deepest directory of its path that was there before
lock_dir=      # a directory that is the lock; empty while flock does the work
lock_limit=600 # seconds to wait for another installation

# Locks the directory $1, an absolute path, creating it. flock is preferred: the kernel releases it
# when the holder and its children are gone, killed or not. Where there is no flock, or the file
# system cannot (some network file systems), a directory is the lock, with the holder's host and
# process in it.
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
    status=127
    if command -v flock >/dev/null 2>&1 && command exec 9<"$1"; then
      status=0
      flock -n 9 2>/dev/null || status=$?
    fi
    case $status in
      0)
        # shellcheck disable=SC3013 # dash, bash and busybox have -ef
        if [ -e /dev/fd/9 ] && [ ! "$1" -ef /dev/fd/9 ]; then continue; fi
        locked=$1
        return 0
        ;;
      1) ;; # held by another process
      *)
        if lock_by_directory "$1/.batch_invariant.lock"; then
          locked=$1
          return 0
        fi
        ;;
    esac
    [ "$waited" -ne 0 ] || say "waiting for another installation in $1"
    waited=$((waited + 1))
    [ "$waited" -le "$lock_limit" ] ||
      die "another installation has held $1 for $lock_limit seconds: try again when it is done"
    sleep 1
  done
}

lock_by_directory() {
  host=$(uname -n)
  if mkdir "$1" 2>/dev/null; then
    lock_dir=$1
    printf '%s %s\n' "$host" "$$" >"$1/holder"
    return 0
  fi
  holder=$(cat "$1/holder" 2>/dev/null) || return 1
  [ "${holder% *}" = "$host" ] || return 1
  if kill -0 "${holder##* }" 2>/dev/null || [ -d "/proc/${holder##* }" ]; then return 1; fi
  # The holder was killed. Moved aside, and put back should it have changed hands meanwhile.
  mv "$1" "$1.$$" 2>/dev/null || return 1
  if [ "$(cat "$1.$$/holder" 2>/dev/null)" = "$holder" ]; then
    rm -rf -- "$1.$$"
  else
    mv "$1.$$" "$1"
  fi
  return 1
}

unlock_vendors() {
  [ -z "$lock_dir" ] || rm -rf -- "$lock_dir"
  lock_dir=
  locked=
}
