# SPDX-License-Identifier: Apache-2.0
"""Which lines of the product its tests run: Python's by coverage.py, C++'s by gcov and gcovr."""
