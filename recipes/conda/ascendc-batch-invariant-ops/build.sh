#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the library and packs it as a run package, or takes Huawei's, and installs that package into
# the prefix: what is tested here is what a site installs without conda.
set -euo pipefail
umask 022 # others read what is installed, and it is the same whoever built it
# No build ID: the linker makes it of LD_RUN_PATH too, which becomes relative only afterwards.
export LDFLAGS="${LDFLAGS:-} -Wl,--build-id=none"

# The same sources give the same bytes wherever they lie. Quoted: the path may have a blank.
export SOURCE_DATE_EPOCH=315532800 ZERO_AR_DATE=1 PYTHONDONTWRITEBYTECODE=1
export CXXFLAGS="${CXXFLAGS:-} '-ffile-prefix-map=$SRC_DIR=.'"
unset ASCEND_CUSTOM_OPP_PATH ASCEND_OPP_PATH

if [[ $PROVIDER == official ]]; then
  run=$(python official_artifact.py run-package --soc "$SOC" --downloads "$BI_DOWNLOADS")
  # Huawei's installer reads the directory from the environment where the option is not heeded.
  sh "$run" --quiet --install-path="$SRC_DIR/opp"
elif [[ $SOC == cpu ]]; then
  cmake -G Ninja -S csrc -B build -DBI_SOC="$SOC" -DCMAKE_BUILD_TYPE=Release
  cmake --build build --parallel "${CPU_COUNT:-2}"
  cmake --install build --prefix "$SRC_DIR/stage"

  mkdir dist
  touch vllm_ascend/__init__.py
  run=$(python -m csrc.run_package.build --tree stage --soc "$SOC" --output dist)
  "./$run" --quiet --install-path="$SRC_DIR/opp"
else
  echo "error: provider=source: the operators of $SOC are not in this tree yet; build provider=official" >&2
  exit 1
fi

# conda replaces packages as a whole: no need for the link that lets the installer do so, nor for
# the uninstaller, which would remove files that conda owns.
vendors=$PREFIX/share/ascend/opp/vendors
mkdir -p "$vendors"
cp -RL "$SRC_DIR/opp/vendors/batch_invariant" "$vendors/batch_invariant"
# Huawei's installer lets nobody but the owner's group read; a prefix may be another user's.
chmod -R u+w,a+rX "$vendors/batch_invariant"
rm -rf "$vendors/batch_invariant/scripts"
