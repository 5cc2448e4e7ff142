# SPDX-License-Identifier: Apache-2.0
"""The definitions of container images, made from recipes/images and soc.toml."""
