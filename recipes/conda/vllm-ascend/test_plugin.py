# SPDX-License-Identifier: Apache-2.0
"""The plugin has the package's version and registers itself with vLLM. Argument: VERSION."""

import importlib.metadata
import sys

[version] = sys.argv[1:]
assert importlib.metadata.version("vllm-ascend") == version
[plugin] = importlib.metadata.entry_points(group="vllm.platform_plugins", name="ascend")
register = plugin.load()
print(f"{plugin.value} -> {register()}")
