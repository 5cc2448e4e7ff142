# SPDX-License-Identifier: Apache-2.0
"""Overrides that are an answer of our platform or worker to a question of vLLM."""

from vllm_ascend.batch_invariant.overrides import Override

ATTENTION = "vllm::attention"
RMS_NORM = "vllm::rms_norm"


def _install_start_up() -> None:
    # vLLM's own step registers Triton kernels on the CPU key and dies at the first forward pass.
    # It is imported from this module at each call, in every worker process.
    from vllm.model_executor.determinism import batch_invariant

    def installed_by_our_worker() -> None:
        pass

    batch_invariant.init_batch_invariance = installed_by_our_worker


OVERRIDES = (
    Override(
        name="vllm::init_batch_invariance",
        target="vllm.model_executor.determinism.batch_invariant.init_batch_invariance",
        by=("vllm_ascend.batch_invariant.overrides.install",),
        dispatch_key=None,
        reason="vLLM's own step registers Triton kernels, which no CPU can run",
        install=_install_start_up,
    ),
    Override(
        name=ATTENTION,
        target="Platform.get_attn_backend_cls",
        by=("npu_fused_infer_attention_score_batch_invariant",),
        dispatch_key=None,
        reason="vLLM's kernel splits the keys by the load of the batch",
    ),
    Override(
        name=RMS_NORM,
        target="Platform.get_default_ir_op_priority",
        by=("npu_rms_norm_batch_invariant", "npu_add_rms_norm_batch_invariant"),
        dispatch_key=None,
        reason="the mean of squares is a reduction of PyTorch",
    ),
)
