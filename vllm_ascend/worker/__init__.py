# SPDX-License-Identifier: Apache-2.0
"""Workers: the process that runs a model, per device."""
