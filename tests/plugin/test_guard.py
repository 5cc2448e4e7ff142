# SPDX-License-Identifier: Apache-2.0
"""The guard refuses what the mode cannot honour, in one line that names the flag to change."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from vllm_ascend.batch_invariant import guard
from vllm_ascend.batch_invariant.switch import ModeRefused

from .conftest import RunPython, engine_environment


def configuration(**changes: Any) -> SimpleNamespace:
    """What the guard reads of a VllmConfig that it accepts; a change is "section.name"=value."""
    from vllm.config import CompilationMode

    config = SimpleNamespace(
        model_config=SimpleNamespace(
            model="m",
            dtype=torch.bfloat16,
            quantization=None,
            runner_type="generate",
            use_mla=False,
            is_encoder_decoder=False,
            has_inner_state=False,
            is_multimodal_model=False,
            max_model_len=4096,
            original_max_model_len=None,
            get_sliding_window=lambda: None,
            get_num_layers=lambda parallel: 2,
            get_num_kv_heads=lambda parallel: 4,
            get_head_size=lambda: 128,
        ),
        cache_config=SimpleNamespace(
            enable_prefix_caching=False,
            block_size=128,
            cache_dtype="auto",
            kv_cache_memory_bytes=None,
        ),
        scheduler_config=SimpleNamespace(
            enable_chunked_prefill=False,
            long_prefill_token_threshold=0,
            max_num_scheduled_tokens=None,
            scheduler_cls=guard.SCHEDULER,
        ),
        parallel_config=SimpleNamespace(
            tensor_parallel_size=1,
            pipeline_parallel_size=1,
            data_parallel_size=1,
            prefill_context_parallel_size=1,
            decode_context_parallel_size=1,
            enable_expert_parallel=False,
            enable_eplb=False,
            worker_cls=guard.WORKER,
        ),
        lora_config=None,
        speculative_config=None,
        kv_transfer_config=None,
        compilation_config=SimpleNamespace(mode=CompilationMode.NONE),
        attention_config=SimpleNamespace(backend=None),
        kernel_config=SimpleNamespace(
            moe_backend="auto",
            ir_op_priority=SimpleNamespace(
                rms_norm=["batch_invariant", "native"],
                fused_add_rms_norm=["batch_invariant", "native"],
            ),
        ),
    )
    for name, value in changes.items():
        section, _, attribute = name.partition(".")
        if attribute:
            setattr(getattr(config, section), attribute, value)
        else:
            setattr(config, section, value)
    return config


def test_the_guides_configuration_is_accepted() -> None:
    guard.check(configuration())


def test_a_configuration_without_a_model_is_not_looked_at() -> None:
    guard.check(configuration(model_config=None))


@pytest.mark.parametrize(
    ("changes", "flag"),
    [
        ({"scheduler_config.enable_chunked_prefill": True}, "--no-enable-chunked-prefill"),
        ({"scheduler_config.enable_chunked_prefill": True}, "enable_chunked_prefill=False"),
        ({"scheduler_config.long_prefill_token_threshold": 64}, "long_prefill_token_threshold=0"),
        ({"cache_config.enable_prefix_caching": True}, "--no-enable-prefix-caching"),
        ({"cache_config.enable_prefix_caching": True}, "enable_prefix_caching=False"),
        ({"cache_config.block_size": 64}, "--block-size 128 (offline: block_size=128)"),
        ({"cache_config.cache_dtype": "fp8"}, "--kv-cache-dtype auto"),
        (
            {"scheduler_config.max_num_scheduled_tokens": 100},
            "--max-num-scheduled-tokens 4096",
        ),
        ({"scheduler_config.scheduler_cls": "mine.Scheduler"}, "no --scheduler-cls"),
        ({"model_config.dtype": torch.float64}, "--dtype bfloat16"),
        ({"model_config.quantization": "awq"}, "quantised (awq)"),
        ({"model_config.runner_type": "pooling"}, "--runner generate"),
        ({"model_config.use_mla": True}, "latent attention (MLA)"),
        ({"model_config.is_encoder_decoder": True}, "an encoder and a decoder"),
        ({"model_config.has_inner_state": True}, "recurrent state"),
        ({"model_config.is_multimodal_model": True}, "images or sound"),
        ({"model_config.get_sliding_window": lambda: 4096}, "--disable-sliding-window"),
        (
            # A block is 2 layers of 4 heads of 128 in bfloat16, keys and values: 512 KiB.
            {"cache_config.kv_cache_memory_bytes": 10 * (512 << 10)},
            "--kv-cache-memory-bytes gives 5.0 MiB: give --max-model-len 1152 or less, or "
            "--kv-cache-memory-bytes 17301504",
        ),
        ({"cache_config.kv_cache_memory_bytes": 1}, "give --kv-cache-memory-bytes 17301504"),
        ({"parallel_config.tensor_parallel_size": 2}, "--tensor-parallel-size 1"),
        ({"parallel_config.pipeline_parallel_size": 2}, "--pipeline-parallel-size 1"),
        ({"parallel_config.data_parallel_size": 2}, "--data-parallel-size 1"),
        ({"parallel_config.enable_expert_parallel": True}, "no --enable-expert-parallel"),
        ({"parallel_config.worker_cls": "mine.Worker"}, "--worker-cls auto"),
        ({"lora_config": object()}, "no --enable-lora"),
        ({"speculative_config": object()}, "no --speculative-config"),
        ({"kv_transfer_config": object()}, "no --kv-transfer-config"),
        ({"compilation_config.mode": 3}, "--enforce-eager (offline: enforce_eager=True)"),
        ({"attention_config.backend": SimpleNamespace(name="CPU_ATTN")}, "CPU_ATTN"),
        ({"kernel_config.moe_backend": "triton"}, "--moe-backend auto"),
        (
            {
                "kernel_config.ir_op_priority": SimpleNamespace(
                    rms_norm=["native"], fused_add_rms_norm=["batch_invariant"]
                )
            },
            "rms_norm is computed by native",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_the_mode_cannot_honour_is_one_line_that_names_the_flag(
    changes: dict[str, Any], flag: str
) -> None:
    with pytest.raises(ModeRefused) as error:
        guard.check(configuration(**changes))
    message = str(error.value)
    assert message.startswith("VLLM_BATCH_INVARIANT=1: ") and flag in message
    assert "\n" not in message


def test_a_cache_for_one_longest_request_is_enough() -> None:
    guard.check(configuration(**{"cache_config.kv_cache_memory_bytes": 17301504}))
    guard.check(
        configuration(
            **{
                "cache_config.kv_cache_memory_bytes": 2 * (512 << 10),
                "model_config.original_max_model_len": -1,  # vLLM fits the length to the cache
            }
        )
    )


def test_everything_that_is_wrong_is_said_at_once() -> None:
    config = configuration(
        **{
            "scheduler_config.enable_chunked_prefill": True,
            "cache_config.enable_prefix_caching": True,
        }
    )
    with pytest.raises(ModeRefused) as error:
        guard.check(config)
    assert len(str(error.value).splitlines()) == 2


@pytest.mark.parametrize("bypass", ["VLLM_TARGET_DEVICE", "VLLM_PLUGINS"])
def test_a_platform_that_would_ignore_the_mode_is_refused(
    run_python: RunPython, bypass: str
) -> None:
    script = """
    from vllm_ascend import verify_platform
    verify_platform()
    """
    done = run_python(
        script,
        check=False,
        VLLM_BATCH_INVARIANT="1",
        **{bypass: "cpu" if bypass == "VLLM_TARGET_DEVICE" else "another"},
    )
    assert done.returncode == 1
    assert (
        "VLLM_BATCH_INVARIANT=1 needs the platform of vllm-ascend, and vLLM chose CpuPlatform"
        in (done.stderr.splitlines()[-1])
    )


def test_our_platform_passes(run_python: RunPython) -> None:
    run_python("import vllm_ascend; vllm_ascend.verify_platform()", VLLM_BATCH_INVARIANT="1")


def test_a_missing_operator_package_is_an_error_that_names_it(run_python: RunPython) -> None:
    done = run_python(
        """
        import sys
        sys.modules["batch_invariant_ops"] = None  # as if it were not installed
        from vllm_ascend.batch_invariant import operators
        operators.require()
        """,
        check=False,
        VLLM_BATCH_INVARIANT="1",
    )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "needs the package batch_invariant_ops" in last
    assert "bash csrc/build_batch_invariant_ops.sh cpu" in last


@pytest.mark.vllm
def test_vllm_serve_ends_in_the_lines_that_name_the_flags(dense_model: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(dense_model)],
        env=engine_environment(VLLM_BATCH_INVARIANT="1"),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-2:] == [
        "vllm_ascend.batch_invariant.switch.ModeRefused: VLLM_BATCH_INVARIANT=1: chunked prefill "
        "is on; use --no-enable-chunked-prefill (offline: enable_chunked_prefill=False)",
        "VLLM_BATCH_INVARIANT=1: prefix caching is on; use --no-enable-prefix-caching "
        "(offline: enable_prefix_caching=False)",
    ]
