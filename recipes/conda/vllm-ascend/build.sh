#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
umask 022 # others read what is installed, and it is the same whoever built it

# By name, not by path: a path would be recorded in direct_url.json.
export SOURCE_DATE_EPOCH=315532800 PYTHONDONTWRITEBYTECODE=1 PIP_ROOT_USER_ACTION=ignore
# The operators are packages of their own.
unset VLLM_BATCH_INVARIANT COMPILE_CUSTOM_KERNELS
pip=("$PYTHON" -m pip --disable-pip-version-check --no-input)
"${pip[@]}" wheel --no-deps --no-index --no-build-isolation --wheel-dir dist .
"${pip[@]}" install --no-deps --no-index --no-compile --find-links dist vllm-ascend
