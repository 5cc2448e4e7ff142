#!/bin/sh
{ # to the last line: a script that is cut off anywhere is a syntax error, not a shorter script
# SPDX-License-Identifier: Apache-2.0
#
# A self-extracting operator package: this script, a tar.gz and, last, the sha256 (64 hexadecimal
# digits, no line end) of everything before it. Needs a POSIX shell, coreutils, tar and gzip.
#
# The package is compared with its sha256 twice, in two places that share no statement. The script
# itself may be what is damaged: one wrong byte can take one of the two away, not both.
[ -z "${ZSH_VERSION:-}" ] || emulate sh
set -eu
# Wherever the script ends, success is what reached the end of main, and nothing else is.
finished=no
trap 'code=$?; [ "$finished" = yes ] || [ "$code" -ne 0 ] || exit 1' EXIT
umask 022 # a shared prefix is readable by others, whatever the caller's umask is
unset CDPATH TAR_OPTIONS GZIP POSIXLY_CORRECT
LC_ALL=C
export LC_ALL
# A damaged script may come to start itself (`|` for `<`), and that one itself, without end.
[ -z "${batch_invariant_installer:-}" ] || {
  printf '%s: the package is damaged; fetch it again\n' "${0##*/}" >&2
  exit 1
}
export batch_invariant_installer=running
exec </dev/null # nothing is asked; a damaged script that reads from here does not wait

# Filled in by build.py.
package='@package@'
version='@version@'
soc='@soc@'
arch='@arch@'
header_bytes='@header_bytes@'
payload_bytes='@payload_bytes@'
unpacked_kib='@unpacked_kib@'
list_sha256='@list_sha256@'

quiet=no
mode=   # install, upgrade, uninstall, check, list or version; once the options are read
force=no
for_all=no
prefix= # the directory that is given or found, without a slash at the end: empty for /
vendors=
proof=      # the package's sha256, once verify_again has compared it
unfinished= # a directory to remove, should we stop before it is used
case $0 in
  /*) self=$0 ;;
  *) self=./$0 ;;
esac

# What it says is not its result: one that cannot be written changes nothing.
say() { [ "$quiet" = yes ] || printf '%s\n' "$1" 2>/dev/null || :; }

die() {
  printf '%s: %s\n' "${0##*/}" "$1" >&2
  false
  exit 1
}

usage_error() {
  printf '%s: %s; see --help\n' "${0##*/}" "$1" >&2
  exit 2
}

help() {
  cat <<END
Installs the batch-invariant operators $version for soc=$soc ($arch).

Usage: ${0##*/} [--upgrade] [--install-path=DIR] [--install-for-all] [--force] [--quiet]
       ${0##*/} --uninstall [--install-path=DIR] [--force] [--quiet]
       ${0##*/} --check | --list | --version

  --install-path=DIR  install into DIR/vendors/$vendor. Without it: beside the first entry of
                      ASCEND_CUSTOM_OPP_PATH, else in ASCEND_OPP_PATH.
  --install-for-all   refuse a place that other users cannot reach. What is installed, they can
                      always read.
  --upgrade           replace an older version, and do nothing else. Without it: any version.
  --force             also replace or remove what is installed for another SoC
  --uninstall         remove what is installed there, of any version, and no file of others
  --check             compare the package and every file in it with their sha256, install nothing
  --list              print the files that it installs
  --version           print its version and what it is for
  --quiet             say nothing unless something is wrong
  --help              this text

An installation is replaced in one step. Example:

  ./${0##*/} --install-path="\$HOME/opp"
  source "\$HOME/opp/vendors/$vendor/bin/set_env.bash"
END
}

# shellcheck source-path=SCRIPTDIR source=lock.sh
. ./lock.sh
# shellcheck source-path=SCRIPTDIR source=slots.sh
. ./slots.sh

# shellcheck disable=SC2317,SC2329 # called by a trap
clean_up() {
  [ -z "$unfinished" ] || rm -rf -- "$unfinished"
  [ -n "$locked" ] || return 0 # nothing in the vendors directory is ours
  if [ -L "$locked/.$vendor.link" ]; then rm -f -- "$locked/.$vendor.link"; fi
  made=$locked
  unlock_vendors
  while [ -n "$existing" ] && [ "$made" != "$existing" ] && rmdir -- "$made" 2>/dev/null; do
    made=$(dirname -- "$made")
  done
}

verify() {
  for tool in cat df dirname head ln ls mkdir mktemp mv readlink rm rmdir sha256sum sleep tail uname wc \
    tar gzip; do
    command -v "$tool" >/dev/null 2>&1 || die "needs the command '$tool': install it or add it to PATH"
  done
  if [ ! -f "$self" ] || [ ! -r "$self" ]; then
    die "cannot read the package '$self': run it as a file, not through a pipe"
  fi
  bytes=$(wc -c <"$self")
  stated=$((header_bytes + payload_bytes + 64))
  [ "$bytes" -eq "$stated" ] ||
    die "the package is damaged: expected $stated bytes, found $((bytes)); fetch it again"
  found=$(head -c "$((header_bytes + payload_bytes))" <"$self" | sha256sum)
  [ "${found%% *}" = "$(tail -c 64 <"$self")" ] ||
    die "the package is damaged: its sha256 is not the one it states; fetch it again"
}

# The same question, asked differently: see the top of the file. Without it nothing is written and
# nothing succeeds, even where a longer damage has taken `set -e` and die away.
verify_again() {
  stated=$(tail -c 64 "$self")
  case "$(head -c "$((header_bytes + payload_bytes))" "$self" | sha256sum)" in
    "$stated  -")
      proof=$stated
      return 0
      ;;
    ?*) die "the package is damaged; fetch it again" ;;
    *) die "cannot compute the package's sha256" ;;
  esac
  # shellcheck disable=SC2317 # reached where die is gone
  exit 1
}

packed() { tail -c "+$((header_bytes + 1))" <"$self" | head -c "$payload_bytes" | gzip -dc; }

# Unpacks into the empty directory $1 and compares every file with the list.
unpack() {
  if ! error=$({
    packed | tar -xof - -C "$1"
  } 2>&1); then
    die "cannot unpack into $1 (${unpacked_kib} KiB needed): $(printf '%s' "$error" | head -n 1)"
  fi
  found=$(sha256sum <"$1/$list") || die "cannot unpack into $1: $list is missing"
  [ "${found%% *}" = "$list_sha256" ] || die "$list in $1 is not the package's own: is the disk full?"
  report=$(cd -- "$1" && sha256sum -c "$list" 2>&1) ||
    die "what was written to $1 is not what the package holds: is the disk full?"
}

# The value of key $2 in the version.info $1.
stated_in() {
  while IFS='=' read -r key value; do
    if [ "$key" = "$2" ]; then
      printf '%s\n' "$value"
      return 0
    fi
  done <"$1"
}

# Puts the absolute path of $1 into $prefix, without a slash at its end.
put_prefix() {
  prefix=$1
  case $prefix in
    /*) ;;
    *)
      prefix=$(pwd 2>/dev/null && echo .) || prefix= # a name may end in a newline
      case $prefix in
        /*) prefix=${prefix%?.} ;;
        *) die "the current directory is gone: give an absolute path" ;;
      esac
      prefix=${prefix%/}/$1
      ;;
  esac
  while [ "$prefix" != "${prefix%/}" ]; do prefix=${prefix%/}; done
}

choose_prefix() {
  if [ -n "$prefix" ]; then
    put_prefix "$prefix"
  else
    rest=${ASCEND_CUSTOM_OPP_PATH:-}:
    while [ -n "$rest" ] && [ -z "$prefix" ]; do
      prefix=${rest%%:*}
      rest=${rest#*:}
    done
    if [ -n "$prefix" ]; then
      put_prefix "$prefix"
      # An entry names a vendor's directory; the place is the one that holds `vendors`.
      case ${prefix%/*} in
        */vendors) put_prefix "${prefix%/vendors/*}/" ;;
      esac
    else
      [ -n "${ASCEND_OPP_PATH:-}" ] || die "no place to install to: give --install-path=DIR"
      put_prefix "$ASCEND_OPP_PATH"
    fi
  fi
  vendors=$prefix/vendors
  place=$vendors/$vendor
}

# Finds what is installed ($current, the directory that $place links to) and refuses what is not ours.
look_at_place() {
  current=
  if [ -L "$place" ]; then
    current=$(readlink -- "$place")
    case $current in
      ."$vendor".[0-9]) ;;
      *) die "$place is a link to $current, which this package did not make: remove it or choose another place" ;;
    esac
    [ -e "$place" ] || return 0 # its directory is gone: nothing is installed
    there=
    [ ! -f "$place/version.info" ] || there=$(stated_in "$place/version.info" package)
    [ "$there" = "$package" ] ||
      die "$place holds a foreign package (${there:-no version.info}): remove it or choose another place"
    there=$(stated_in "$place/version.info" soc)
    [ "$there" = "$soc" ] || [ "$force" = yes ] ||
      die "$place holds the operators for soc=$there, these are for soc=$soc: choose another place, or add --force"
  elif [ -e "$place" ]; then
    die "$place exists and was not made by this package: remove it or choose another place"
  fi
}

# Whether version $1 comes after version $2: numbers with points, a candidate (rcN) before its release.
comes_after() {
  for numbers in "${1%rc*}" "${1##*rc}" "${2%rc*}" "${2##*rc}"; do
    case $numbers in
      '' | *[!0-9.]*) die "cannot compare the versions $1 and $2: leave out --upgrade" ;;
    esac
  done
  left=${1%rc*}
  right=${2%rc*}
  while [ -n "$left$right" ]; do
    one=${left%%.*}
    other=${right%%.*}
    [ "${one:-0}" -eq "${other:-0}" ] || break
    left=${left#"$one"}
    left=${left#.}
    right=${right#"$other"}
    right=${right#.}
  done
  if [ -z "$left$right" ]; then
    case $1 in *rc*) one=${1##*rc} ;; *) one=999999999 ;; esac # no candidate: after all of them
    case $2 in *rc*) other=${2##*rc} ;; *) other=999999999 ;; esac
  fi
  [ "${one:-0}" -gt "${other:-0}" ]
}

# For --upgrade: whether there is anything to do.
is_older() {
  [ -e "$place" ] || die "nothing is installed in $place: leave out --upgrade"
  [ "$(stated_in "$place/version.info" soc)" = "$soc" ] || return 0 # forced: not the same package
  there=$(stated_in "$place/version.info" version)
  if [ "$there" = "$version" ]; then
    say "$package $version (soc=$soc) is in $place already"
    return 1
  fi
  comes_after "$version" "$there" ||
    die "$place holds version $there, this is $version: to go back, leave out --upgrade"
}

# Others reach $vendors: every directory above it lets them through.
reached_by_others() {
  directory=$vendors
  while :; do
    case $(ls -dlL -- "$directory") in
      d????????[xt]*) ;;
      *) die "others cannot enter $directory: run chmod o+x on it, or choose another place" ;;
    esac
    [ "$directory" != / ] || break
    directory=$(dirname -- "$directory")
  done
}

# Puts the name of a free slot into $chosen.
free_slot() {
  chosen=
  for digit in 0 1 2 3 4 5 6 7 8 9; do
    slot=.$vendor.$digit
    if [ "$slot" = "$current" ] || [ -e "$vendors/$slot" ] || [ -L "$vendors/$slot" ]; then continue; fi
    chosen=$slot
    return 0
  done
  die "cannot remove what earlier installations left in $vendors: remove $vendors/.$vendor.*"
}

install() {
  machine=$(uname -m)
  case $machine in
    arm64) machine=aarch64 ;;
    amd64) machine=x86_64 ;;
  esac
  [ "$machine" = "$arch" ] || die "the package is for $arch, this machine is $machine: take the file for linux.$machine"
  choose_prefix
  verify_again || exit 1
  lock_vendors "$vendors"
  look_at_place
  [ "$for_all" = no ] || reached_by_others
  sweep "$vendors" "$current"
  [ "$mode" = install ] || is_older || return 0
  link=$vendors/.$vendor.link # gone, if it was a link
  if [ -e "$link" ] || [ -L "$link" ]; then die "$link is in the way: remove it"; fi
  free_slot
  free_kib=$(df -Pk -- "$vendors" 2>/dev/null | {
    read -r _ && read -r _ _ _ free _ && printf '%s' "$free"
  }) || free_kib=
  case $free_kib in
    '' | *[!0-9]*) ;; # an unusual df: unpacking will tell
    *) [ "$free_kib" -ge "$unpacked_kib" ] || die "no space left in $vendors: $unpacked_kib KiB needed, $free_kib KiB free" ;;
  esac
  unfinished=$vendors/$chosen.partial
  mkdir -- "$unfinished" 2>/dev/null || die "cannot write to $vendors: is it read-only or full?"
  unpack "$unfinished"
  (
    # On the disk before the link says so: a power cut leaves the old state or the new one.
    cd -- "$unfinished"
    while read -r _ name; do set -- "$@" "$name"; done <"$list"
    sync -- "$list" "$@" . .. 2>/dev/null || :
  )
  trap '' HUP INT TERM # the few steps that remain are not to be cut in two
  mv -fT -- "$unfinished" "$vendors/$chosen" 2>/dev/null || die "cannot write to $vendors: is it full?"
  unfinished=
  if ! ln -s "$chosen" "$link" 2>/dev/null || ! mv -fT -- "$link" "$place" 2>/dev/null; then
    remove_slot "$vendors/$chosen" || :
    die "cannot put $place in its place: is the disk full?"
  fi
  existing=
  sweep "$vendors" "$chosen"
  say "installed $package $version (soc=$soc) in $place"
  case $place in
    *:*) say "to use it, install it elsewhere: a list of paths cannot hold a path with a colon" ;;
    *\'*) say "to use it: source its bin/set_env.bash" ;;
    *) say "to use it: source '$place/bin/set_env.bash'" ;;
  esac
}

uninstall() {
  choose_prefix
  verify_again || exit 1
  [ -d "$vendors" ] || die "nothing is installed in $place"
  lock_vendors "$vendors"
  look_at_place
  if [ -z "$current" ]; then
    sweep "$vendors" ''
    die "nothing is installed in $place"
  fi
  remove_installation "$vendors"
  existing=$(dirname -- "$vendors") # above: not ours to remove
}

check() {
  verify_again || exit 1
  unfinished=$(mktemp -d 2>/dev/null) || die "cannot make a temporary directory: set TMPDIR to one you may write to"
  unpack "$unfinished"
  say "$report"
  say "sha256 $(tail -c 64 <"$self")  ${0##*/}: OK"
}

list_files() {
  verify_again || exit 1
  names=$(packed | tar -xOf - "$list") || die "the package is damaged; fetch it again"
  while read -r _ name; do printf '%s\n' "$name"; done <<END
$names
- $list
END
}

show_version() {
  verify_again || exit 1
  printf '%s\n' "$package $version (soc=$soc, $arch)"
}

set_mode() {
  [ -z "$mode" ] || [ "$mode" = "$1" ] || usage_error "--$mode and --$1 exclude each other"
  mode=$1
}

main() {
  [ "${1:-}" != -- ] || shift
  for argument in "$@"; do
    case $argument in
      --install-path=?*) prefix=${argument#*=} ;;
      --install-path | --install-path=) usage_error "--install-path needs a directory: --install-path=DIR" ;;
      --install-for-all) for_all=yes ;;
      --force) force=yes ;;
      --upgrade | --uninstall | --check | --list | --version) set_mode "${argument#--}" ;;
      --quiet) quiet=yes ;;
      --help)
        help
        finished=yes
        exit 0
        ;;
      -*) usage_error "unknown option '$argument'" ;;
      *) usage_error "unexpected argument '$argument'" ;;
    esac
  done
  mode=${mode:-install}
  case $mode in
    install | upgrade) ;;
    uninstall) [ "$for_all" = no ] || usage_error "--uninstall installs nothing: leave out --install-for-all" ;;
    *) [ "$prefix$for_all$force" = nono ] || usage_error "--$mode installs nothing: it takes only --quiet" ;;
  esac
  trap 'code=$?; clean_up; [ "$finished" = yes ] || [ "$code" -ne 0 ] || exit 1' EXIT
  trap 'exit 129' HUP
  trap 'exit 130' INT
  trap 'exit 143' TERM
  verify
  case $mode in
    check) check ;;
    list) list_files ;;
    version) show_version ;;
    install | upgrade) install ;;
    uninstall) uninstall ;;
    *) die "the package is damaged; fetch it again" ;;
  esac
  [ "${#proof}" -eq 64 ] || exit 1
  finished=yes
  exit 0
}

main "$@"
# shellcheck disable=SC2317 # reached only if the line above is damaged
exit 1
}
