# SPDX-License-Identifier: Apache-2.0
"""The distribution vllm has the package's version, and names the device where it must.

Arguments: VERSION DEVICE.
"""

import importlib.metadata
import sys

version, device = sys.argv[1:]
found = importlib.metadata.version("vllm")
expected = f"{version}+{device}"
assert found == expected, f"expected vllm {expected}, found {found}"
[script] = importlib.metadata.entry_points(group="console_scripts", name="vllm")
assert callable(script.load())
print(f"vllm {found}: ok")
