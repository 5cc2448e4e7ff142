# SPDX-License-Identifier: Apache-2.0
"""Worker for device cpu: vLLM's own, with the mode's overrides in place before the model exists.

With the mode off it is vLLM's worker but for the permission to use AMX tiles, so it also serves to
run stock vLLM as a control on machines where stock alone dies (see `init_device`).
"""

from typing import Any

import torch
from vllm.v1.worker.cpu_worker import CPUWorker

from vllm_ascend.batch_invariant import kv_memory, overrides
from vllm_ascend.batch_invariant.guard import require_our_platform
from vllm_ascend.batch_invariant.switch import enabled


class AscendCpuWorker(CPUWorker):
    """vLLM's CPU worker; with VLLM_BATCH_INVARIANT=1 it runs the model batch-invariantly."""

    def __init__(self, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        self._kv_bytes_given = vllm_config.cache_config.kv_cache_memory_bytes is not None
        if enabled() and not self._kv_bytes_given:
            kv_memory.lower_start_up_demand(vllm_config.cache_config)
        super().__init__(vllm_config, *args, **kwargs)

    def init_device(self) -> None:
        """Asks for AMX tiles, installs the overrides, then does what vLLM's worker does.

        vLLM multiplies small bfloat16 weights by a kernel that uses AMX tiles without asking the
        kernel for them; on a machine that has AMX the process would die of SIGILL.
        """
        torch.cpu._init_amx()
        if enabled():
            require_our_platform()
            overrides.install()
        super().init_device()

    def determine_available_memory(self) -> int:
        """Bytes for the KV cache: as given, or a size that this machine can spare."""
        if not enabled() or self._kv_bytes_given:
            return int(super().determine_available_memory())
        return kv_memory.affordable_bytes(
            self.get_kv_cache_spec(),
            max_model_len=self.model_config.max_model_len,
            max_num_seqs=self.scheduler_config.max_num_seqs,
        )
