# SPDX-License-Identifier: Apache-2.0
"""The batch-invariant mode: the bits of a request's result depend on that request alone.

switch      is the mode on, and which overrides are left out for a control
overrides   what is overridden by what; installs it in a process that runs a model
aten        operators of PyTorch, at dispatcher level
linear      linear layers and logits, on weights that are packed once
norms       rms_norm with and without the residual
moe         experts: grouped matmul, combined in the order of the router's slots
sampling    top-k, top-p and the choice of logprobs
guard       refuses a configuration that the mode cannot honour
scheduler   admits a request only when it can finish: none is ever preempted
kv_memory   the size of the KV cache where none was given
operators   the operator package of stages 1 and 2, or an error that names it
"""

from vllm_ascend.batch_invariant.switch import enabled

__all__ = ["enabled"]
