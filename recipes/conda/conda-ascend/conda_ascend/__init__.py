# SPDX-License-Identifier: Apache-2.0
"""conda plugin: the virtual package `__ascend`. See README.md."""
