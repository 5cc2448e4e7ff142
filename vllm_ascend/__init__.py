# SPDX-License-Identifier: Apache-2.0
"""vLLM platform plugin for Ascend NPUs and, on a machine without one, for the CPU reference.

Importing this package patches nothing. vLLM finds the two functions below by entry points.
"""


def register() -> str | None:
    """Entry point `vllm.platform_plugins`: the dotted name of the platform class for this machine.

    None, which leaves the choice to vLLM's own platforms, unless the vLLM that is installed was
    built for a CPU.
    """
    from vllm.platforms import cpu_platform_plugin

    if cpu_platform_plugin() is None:
        return None
    return "vllm_ascend.platform.AscendCpuPlatform"


def verify_platform() -> None:
    """Entry point `vllm.general_plugins`: called by vLLM in each of its processes.

    Raises RuntimeError where the batch-invariant mode is asked for and vLLM runs on another
    platform than ours, which would ignore the request.
    """
    from vllm_ascend.batch_invariant.switch import enabled

    if not enabled():
        return
    from vllm_ascend.batch_invariant.guard import require_our_platform

    require_our_platform()
