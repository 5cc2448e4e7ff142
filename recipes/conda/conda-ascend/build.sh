#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

# By name, not by path: a path would be recorded in direct_url.json.
export SOURCE_DATE_EPOCH=315532800 PYTHONDONTWRITEBYTECODE=1 PIP_ROOT_USER_ACTION=ignore
# Not its command, which names itself after the package it is part of.
rm conda_ascend/soc/command.py conda_ascend/soc/__main__.py
pip=("$PYTHON" -m pip --disable-pip-version-check --no-input)
"${pip[@]}" wheel --no-deps --no-index --no-build-isolation --wheel-dir dist .
"${pip[@]}" install --no-deps --no-index --no-compile --find-links dist conda-ascend
