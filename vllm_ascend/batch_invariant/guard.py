# SPDX-License-Identifier: Apache-2.0
"""Refuses, at start-up, a configuration that the mode cannot honour.

Each refusal is one line that names the flag to change, for the command line and for `LLM(...)`.
"""

from collections.abc import Iterator
from typing import Any

from vllm_ascend.batch_invariant import kv_memory, norms, operators, overrides
from vllm_ascend.batch_invariant.hooks import RMS_NORM
from vllm_ascend.batch_invariant.switch import ModeRefused

# Size in tokens of a KV block: the guide's, and what the attention operator is made for.
BLOCK_SIZE = 128


def require_our_platform() -> None:
    """Raises ModeRefused where vLLM runs on a platform that would ignore the mode."""
    from vllm.platforms import current_platform

    if not type(current_platform).__module__.startswith("vllm_ascend."):
        raise ModeRefused(
            "VLLM_BATCH_INVARIANT=1 needs the platform of vllm-ascend, and vLLM chose "
            f"{type(current_platform).__name__}: unset VLLM_TARGET_DEVICE, and unset VLLM_PLUGINS "
            "or add `ascend` to it"
        )


def check(vllm_config: Any) -> None:
    """Raises ModeRefused with one line for each setting of the run that the mode cannot honour."""
    if problems := list(refusals(vllm_config)):
        raise ModeRefused("\n".join(f"VLLM_BATCH_INVARIANT=1: {problem}" for problem in problems))


def refusals(vllm_config: Any) -> Iterator[str]:
    """What the mode cannot honour in this configuration; nothing for one without a model."""
    if vllm_config.model_config is None:
        return
    yield from _scheduling(vllm_config)
    yield from _model(vllm_config.model_config, vllm_config.cache_config)
    yield from _parallelism(vllm_config.parallel_config)
    yield from _features(vllm_config)
    yield from _execution(vllm_config)
    yield from _memory(vllm_config)


def _change(problem: str, flag: str, offline: str) -> str:
    return f"{problem}; use {flag} (offline: {offline})"


def _scheduling(vllm_config: Any) -> Iterator[str]:
    scheduler, cache = vllm_config.scheduler_config, vllm_config.cache_config
    if scheduler.enable_chunked_prefill:
        yield _change(
            "chunked prefill is on",
            "--no-enable-chunked-prefill",
            "enable_chunked_prefill=False",
        )
    if scheduler.long_prefill_token_threshold > 0:
        yield _change(
            f"prompts longer than {scheduler.long_prefill_token_threshold} tokens would be chunked",
            "--long-prefill-token-threshold 0",
            "long_prefill_token_threshold=0",
        )
    if cache.enable_prefix_caching:
        yield _change(
            "prefix caching is on",
            "--no-enable-prefix-caching",
            "enable_prefix_caching=False",
        )
    if cache.block_size != BLOCK_SIZE:
        yield _change(
            f"the KV cache has blocks of {cache.block_size} tokens",
            f"--block-size {BLOCK_SIZE}",
            f"block_size={BLOCK_SIZE}",
        )
    limit, longest = scheduler.max_num_scheduled_tokens, vllm_config.model_config.max_model_len
    if limit is not None and limit < longest:
        yield _change(
            f"a prompt of {longest} tokens would never be scheduled with "
            f"--max-num-scheduled-tokens {limit}",
            f"--max-num-scheduled-tokens {longest}",
            f"max_num_scheduled_tokens={longest}",
        )
    if scheduler.scheduler_cls not in (None, SCHEDULER):
        yield _change(
            f"the scheduler is {scheduler.scheduler_cls}, which may preempt",
            "no --scheduler-cls",
            "no scheduler_cls",
        )


def _model(model: Any, cache: Any) -> Iterator[str]:
    if model.dtype not in operators.FLOAT_DTYPES:
        yield _change(
            f"the model runs in {str(model.dtype).removeprefix('torch.')}",
            "--dtype bfloat16, float16 or float32",
            'dtype="bfloat16"',
        )
    if cache.cache_dtype not in ("auto", str(model.dtype).removeprefix("torch.")):
        yield _change(
            f"the KV cache is kept in {cache.cache_dtype}",
            "--kv-cache-dtype auto",
            'kv_cache_dtype="auto"',
        )
    if model.quantization is not None:
        yield _change(
            f"the model is quantised ({model.quantization})",
            "an unquantised --model",
            "an unquantised model",
        )
    if model.runner_type != "generate":
        yield _change(
            f"the model is run for {model.runner_type}", "--runner generate", 'runner="generate"'
        )
    unsupported = {
        "latent attention (MLA)": model.use_mla,
        "an encoder and a decoder": model.is_encoder_decoder,
        "recurrent state": model.has_inner_state,
        "images or sound": model.is_multimodal_model,
    }
    for name, present in unsupported.items():
        if present:
            yield f"{model.model} has {name}; use a decoder-only text model with plain attention"
    # 0 stands for "none" in some checkpoints.
    if window := model.get_sliding_window():
        yield _change(
            f"{model.model} has a sliding window of {window} tokens",
            "--disable-sliding-window, which limits --max-model-len to it",
            "disable_sliding_window=True",
        )


def _parallelism(parallel: Any) -> Iterator[str]:
    for name in (
        "tensor_parallel_size",
        "pipeline_parallel_size",
        "data_parallel_size",
        "prefill_context_parallel_size",
        "decode_context_parallel_size",
    ):
        if (size := getattr(parallel, name)) > 1:
            yield _change(
                f"{name.replace('_', ' ')} is {size}, which is not proven invariant",
                f"--{name.replace('_', '-')} 1",
                f"{name}=1",
            )
    if parallel.enable_expert_parallel:
        yield _change(
            "expert parallelism is on",
            "no --enable-expert-parallel",
            "enable_expert_parallel=False",
        )
    if parallel.enable_eplb:
        yield _change("expert load balancing is on", "no --enable-eplb", "enable_eplb=False")
    if parallel.worker_cls not in ("auto", WORKER):
        yield _change(
            f"the worker is {parallel.worker_cls}, which installs no overrides",
            "--worker-cls auto",
            'worker_cls="auto"',
        )


def _features(vllm_config: Any) -> Iterator[str]:
    if vllm_config.lora_config is not None:
        yield _change("LoRA is on", "no --enable-lora", "enable_lora=False")
    if vllm_config.speculative_config is not None:
        yield _change(
            "speculative decoding is on", "no --speculative-config", "speculative_config=None"
        )
    if vllm_config.kv_transfer_config is not None:
        yield _change(
            "the KV cache is transferred", "no --kv-transfer-config", "kv_transfer_config=None"
        )


def _execution(vllm_config: Any) -> Iterator[str]:
    from vllm.config import CompilationMode

    mode = vllm_config.compilation_config.mode
    if mode not in (None, CompilationMode.NONE):
        yield _change(
            f"the model would be compiled (mode {int(mode)})",
            "--enforce-eager",
            "enforce_eager=True",
        )
    backend = vllm_config.attention_config.backend
    if backend is not None and backend.name != "CUSTOM":
        yield _change(
            f"the attention backend {backend.name} was asked for",
            "--attention-backend CUSTOM or none",
            'attention_backend="CUSTOM"',
        )
    priority = vllm_config.kernel_config.ir_op_priority
    for operator in ("rms_norm", "fused_add_rms_norm"):
        first = (getattr(priority, operator) or [None])[0]
        if overrides.is_active(RMS_NORM) and first != norms.PROVIDER:
            yield (
                f"{operator} is computed by {first}; "
                "drop it from --kernel-config (offline: kernel_config)"
            )
    moe_backend = getattr(vllm_config.kernel_config, "moe_backend", "auto")
    if moe_backend != "auto":
        yield _change(
            f"the MoE backend {moe_backend} was asked for",
            "--moe-backend auto",
            'moe_backend="auto"',
        )


def _memory(vllm_config: Any) -> Iterator[str]:
    if problem := kv_memory.shortage(vllm_config):
        yield problem


def choose_eager(vllm_config: Any, logger: Any) -> None:
    """Chooses eager execution where the user said nothing of compilation, and says so."""
    from vllm.config import CompilationMode, CUDAGraphMode

    model, compilation = vllm_config.model_config, vllm_config.compilation_config
    if model is None or model.enforce_eager or compilation.mode is not None:
        return
    model.enforce_eager = True
    compilation.mode = CompilationMode.NONE
    compilation.cudagraph_mode = CUDAGraphMode.NONE
    vllm_config.kernel_config.enable_jit_warmup = False
    logger.info("Batch-invariant mode: eager execution is chosen (as --enforce-eager does).")


WORKER = "vllm_ascend.worker.cpu_worker.AscendCpuWorker"
SCHEDULER = "vllm_ascend.batch_invariant.scheduler.NoPreemptionScheduler"

__all__ = ["BLOCK_SIZE", "check", "choose_eager", "refusals", "require_our_platform"]
