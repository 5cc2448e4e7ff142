# SPDX-License-Identifier: Apache-2.0
"""The platform of device cpu: vLLM's own CPU platform, and the mode's choices when it is on.

With VLLM_BATCH_INVARIANT unset each method is the parent's.
"""

import os
from typing import Any

from vllm.logger import init_logger
from vllm.platforms.cpu import CpuPlatform

from vllm_ascend.batch_invariant import guard, hooks, main_module, norms, operators, overrides
from vllm_ascend.batch_invariant.switch import ModeRefused, enabled

logger = init_logger("vllm.ascend.platform")

_ATTENTION_BACKEND = "vllm_ascend.attention.backend.BatchInvariantAttentionBackend"
_MODEL_RUNNER_VARIABLE = "VLLM_USE_V2_MODEL_RUNNER"
_MULTIPROCESSING_VARIABLE = "VLLM_ENABLE_V1_MULTIPROCESSING"


class AscendCpuPlatform(CpuPlatform):
    """vLLM's CPU platform; it stays `is_cpu()`, which about 70 places of vLLM ask for."""

    @classmethod
    def apply_config_platform_defaults(cls, vllm_config: Any) -> None:
        """Before vLLM decides on compilation: eager execution, and the V1 model runner."""
        super().apply_config_platform_defaults(vllm_config)
        if not enabled():
            return
        # The V2 runner has a sampler and an attention path of its own.
        if os.environ.setdefault(_MODEL_RUNNER_VARIABLE, "0") != "0":
            raise ModeRefused(
                f"VLLM_BATCH_INVARIANT=1: {_MODEL_RUNNER_VARIABLE}="
                f"{os.environ[_MODEL_RUNNER_VARIABLE]} is not supported; unset it"
            )
        guard.choose_eager(vllm_config, logger)

    @classmethod
    def check_and_update_config(cls, vllm_config: Any) -> None:
        """vLLM's settings for a CPU; with the mode on, the guard and our worker and scheduler."""
        if not enabled():
            logger.info("Batch-invariant mode is off: VLLM_BATCH_INVARIANT is not 1.")
            super().check_and_update_config(vllm_config)
            return
        guard.require_our_platform()
        if vllm_config.model_config is not None:
            cls._keep_unguarded_scripts_working()
        parallel, scheduler = vllm_config.parallel_config, vllm_config.scheduler_config
        if parallel.worker_cls == "auto":
            parallel.worker_cls = guard.WORKER
        super().check_and_update_config(vllm_config)
        if scheduler.scheduler_cls is None:
            scheduler.scheduler_cls = guard.SCHEDULER
        guard.check(vllm_config)
        if vllm_config.model_config is not None:
            operators.require()

    @classmethod
    def _keep_unguarded_scripts_working(cls) -> None:
        # The guide's offline script has no `if __name__ == "__main__":`. An engine that serves
        # HTTP is a process of its own in any case, and its main module has the condition.
        if _MULTIPROCESSING_VARIABLE in os.environ or main_module.can_be_imported_again():
            return
        os.environ[_MULTIPROCESSING_VARIABLE] = "0"
        logger.info(
            "Batch-invariant mode: the engine runs in this process, because the script has no "
            '`if __name__ == "__main__":` (%s=1 chooses otherwise).',
            _MULTIPROCESSING_VARIABLE,
        )

    @classmethod
    def get_attn_backend_cls(
        cls, selected_backend: Any, attn_selector_config: Any, num_heads: int | None = None
    ) -> str:
        """The dotted name of the attention backend: ours with the mode on."""
        if enabled() and overrides.is_active(hooks.ATTENTION):
            return _ATTENTION_BACKEND
        name: str = super().get_attn_backend_cls(selected_backend, attn_selector_config, num_heads)
        return name

    @classmethod
    def import_ir_kernels(cls) -> None:
        """vLLM's IR operators, and with the mode on our providers of them."""
        super().import_ir_kernels()
        if enabled():
            norms.register()

    @classmethod
    def get_default_ir_op_priority(cls, vllm_config: Any) -> Any:
        """Which provider computes rms_norm: ours with the mode on."""
        priority = super().get_default_ir_op_priority(vllm_config)
        if enabled() and overrides.is_active(hooks.RMS_NORM):
            priority.rms_norm = [norms.PROVIDER, *priority.rms_norm]
            priority.fused_add_rms_norm = [norms.PROVIDER, *priority.fused_add_rms_norm]
        return priority
