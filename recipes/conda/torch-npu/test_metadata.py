# SPDX-License-Identifier: Apache-2.0
"""The distribution has the package's version and registers itself with torch. Argument: VERSION.

It is not imported: that takes the NPU's driver beside CANN's libraries.
"""

import importlib.metadata
import importlib.util
import sys

[version] = sys.argv[1:]
found = importlib.metadata.version("torch_npu")
assert found == version, f"expected torch_npu {version}, found {found}"
assert importlib.metadata.entry_points(group="torch.backends", name="torch_npu")
assert importlib.util.find_spec("torch_npu") is not None
print(f"torch_npu {found}: ok")
