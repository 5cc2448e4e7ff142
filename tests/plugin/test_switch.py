# SPDX-License-Identifier: Apache-2.0
"""Importing patches nothing; the variable alone decides."""

from __future__ import annotations

import pytest

from vllm_ascend.batch_invariant import overrides, switch
from vllm_ascend.batch_invariant.switch import ModeRefused

from .conftest import RunPython

IMPORT_EVERYTHING = """
    import importlib, pkgutil, torch, vllm_ascend
    import vllm.model_executor.layers.utils as layers
    from vllm.model_executor.layers.fused_moe.oracle import unquantized
    from vllm.v1.sample.ops import topk_topp_sampler
    from vllm.v1.sample.sampler import Sampler

    def state():
        hooks = (layers.dispatch_cpu_unquantized_gemm, unquantized.backend_to_kernel_cls,
                 topk_topp_sampler.apply_top_k_top_p, Sampler.gather_logprobs)
        kernels = tuple(
            torch._C._dispatch_dump(name)
            for name in ("aten::mm", "aten::sum.dim_IntList", "aten::_softmax", "aten::silu"))
        return hooks, kernels

    before = state()
    for module in pkgutil.walk_packages(vllm_ascend.__path__, "vllm_ascend."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
"""


def test_importing_every_module_patches_nothing(run_python: RunPython) -> None:
    run_python(IMPORT_EVERYTHING + "    assert state() == before\n", VLLM_BATCH_INVARIANT="1")


def test_installing_does_patch_what_the_test_above_looks_at(run_python: RunPython) -> None:
    run_python(
        IMPORT_EVERYTHING
        + """
    from vllm_ascend.batch_invariant import overrides
    overrides.install()
    after = state()
    assert all(a is not b for a, b in zip(before[0], after[0]))
    assert all(a != b for a, b in zip(before[1], after[1]))
""",
        VLLM_BATCH_INVARIANT="1",
    )


def test_with_the_variable_unset_the_platform_answers_as_vllms_own(run_python: RunPython) -> None:
    run_python("""
    from types import SimpleNamespace
    from vllm.platforms import current_platform
    from vllm.platforms.cpu import CpuPlatform
    from vllm_ascend.platform import AscendCpuPlatform
    from vllm.config import VllmConfig

    assert type(current_platform) is AscendCpuPlatform and current_platform.is_cpu()
    selector = SimpleNamespace(use_sparse=False, use_mla=False)
    assert current_platform.get_attn_backend_cls(None, selector) == (
        CpuPlatform.get_attn_backend_cls(None, selector))
    config = VllmConfig()
    assert config.parallel_config.worker_cls == "vllm.v1.worker.cpu_worker.CPUWorker"
    assert config.scheduler_config.scheduler_cls is None
    assert config.kernel_config.ir_op_priority.rms_norm == ["native"]
    """)


@pytest.mark.parametrize(
    ("value", "on"), [(None, False), ("", False), ("0", False), ("1", True), ("2", True)]
)
def test_the_mode_is_on_for_an_integer_other_than_zero(
    monkeypatch: pytest.MonkeyPatch, value: str | None, on: bool
) -> None:
    monkeypatch.delenv(switch.MODE_VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(switch.MODE_VARIABLE, value)
    assert switch.enabled() is on


def test_a_value_that_is_no_integer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(switch.MODE_VARIABLE, "yes")
    with pytest.raises(ModeRefused, match="VLLM_BATCH_INVARIANT='yes': expected 0 or 1"):
        switch.enabled()


def test_a_control_leaves_out_what_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(switch.LEFT_OUT_VARIABLE, "aten::mm, vllm::linear")
    names = {override.name for override in overrides.active()}
    everything = {override.name for override in overrides.declared()}
    assert everything - names == {"aten::mm", "vllm::linear"}
    assert not overrides.is_active("aten::mm")


def test_a_control_that_names_nothing_real_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(switch.LEFT_OUT_VARIABLE, "aten::nm")
    with pytest.raises(ModeRefused, match="no override is called aten::nm; choose from aten::_log"):
        overrides.active()


def test_overrides_are_declared_once_each_and_say_why() -> None:
    names = [override.name for override in overrides.declared()]
    assert len(names) == len(set(names))
    assert all(override.by and override.reason for override in overrides.declared())
