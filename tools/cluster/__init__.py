# SPDX-License-Identifier: Apache-2.0
"""What a cluster's staff run beside their package manager."""
