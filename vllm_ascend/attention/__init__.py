# SPDX-License-Identifier: Apache-2.0
"""Attention of the batch-invariant mode."""
