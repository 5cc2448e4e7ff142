# SPDX-License-Identifier: Apache-2.0
"""From locked wheels and recipes to an installed prefix.

Everything that brings packages onto a machine lies here: reading and making the lock files, the
stand-in conda channel, building the recipes, solving and installing a prefix. The name says that,
and keeps the package apart from what it installs: nothing in it is imported at run time by the
operators or the plugin. The files in ``scripts/`` only parse a command line and call it.

``quickstart``, ``channel``, ``vllm_metadata`` and what they import run before any package is
installed: the standard library alone. The others may use what ``locks/channel-tools.txt`` pins.
"""
