# SPDX-License-Identifier: Apache-2.0
"""`check` and `report` with the real vLLM, and the runs that have to fail."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from vllm_ascend.batch_invariant.tiny_models import make_model

pytestmark = pytest.mark.vllm

SMALL = ("--prompts", "4", "--batches", "1,8", "--max-tokens", "8")


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "vllm_ascend.batch_invariant", *arguments],
        capture_output=True,
        text=True,
    )


def check(tmp_path: Path, *arguments: str) -> tuple[int, dict[str, Any], str]:
    file = tmp_path / "check.json"
    done = command("check", *SMALL, *arguments, "--json", str(file))
    document = json.loads(file.read_text()) if file.exists() else {}
    return done.returncode, document, done.stdout + done.stderr


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("models")
    # Small shards, so that a model has several, as published ones do.
    names = ("qwen3", "qwen3-moe", "llama", "qwen2")
    return {name: str(make_model(name, root / name, shard_bytes=8 << 20)) for name in names}


def test_the_mode_is_identical_and_stock_is_not(models: dict[str, str], tmp_path: Path) -> None:
    code, document, printed = check(
        tmp_path, "--model", models["qwen3"], "--model", models["qwen3-moe"], "--threads", "1,2"
    )
    assert code == 0, printed
    # 8 requests give 11 things to compare: one has two outputs, two have logprobs of the prompt.
    # Two greedy ones are continued.
    assert document["comparisons"] == document["identical"] == 2 * (2 * 11 + 2 * 2 + 11)
    assert document["control_differs"] is True
    for row in document["configurations"]:
        assert row["most_requests_in_a_step"] == 9 and row["not_batched"] is None
        assert all(row["requests"].values()), "every kind of request was made"
        assert row["steps"]["8"]["mixed_steps"] > 0
        assert "vllm::linear" in row["overrides"]
    assert document["operators"]["isa"]
    used = [next(t for t in c["tries"] if t["differing"]) for c in document["controls"]]
    assert all(t["differing"] <= t["compared"] for t in used)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("name", ["llama", "qwen2"])
def test_other_architectures_are_identical_and_stock_is_not(
    models: dict[str, str], tmp_path: Path, name: str, dtype: str
) -> None:
    assert len(list(Path(models[name]).glob("*.safetensors"))) > 4
    code, document, printed = check(
        tmp_path, "--model", models[name], "--dtype", dtype, "--threads", "1,2"
    )
    assert code == 0, printed
    assert document["comparisons"] == document["identical"] == 2 * 11 + 2 * 2 + 11
    assert document["control_differs"] is True


def test_stock_in_the_modes_place_is_found_out(models: dict[str, str], tmp_path: Path) -> None:
    code, document, printed = check(
        tmp_path,
        *("--model", models["qwen3"], "--dtype", "float32", "--threads", "1"),
        *("--subject", "stock", "--controls", "stock"),
    )
    assert code == 1, printed
    assert document["verdict"] == "different" and document["identical"] < document["comparisons"]
    assert "differ, first batch of 8, 1 thread: " in printed


def test_the_mode_as_its_own_control_is_inconclusive(
    models: dict[str, str], tmp_path: Path
) -> None:
    code, document, printed = check(
        tmp_path, "--model", models["qwen3-moe"], "--threads", "1", "--controls", "mode"
    )
    assert code == 2, printed
    assert document["identical"] == document["comparisons"] > 0
    assert document["control_differs"] is False
    assert "no control differs: mode, 1 thread: 0 of 11 differ" in printed


def test_one_override_left_out_is_a_control(models: dict[str, str], tmp_path: Path) -> None:
    code, document, printed = check(
        tmp_path,
        *("--model", models["qwen3"], "--dtype", "float32", "--threads", "2"),
        *("--controls", "without:vllm::linear"),
    )
    assert code == 0, printed
    (control,) = document["controls"]
    assert control["tries"][0]["subject"] == "without:vllm::linear"
    assert control["tries"][0]["differing"] > 0


@pytest.mark.slow
def test_vllms_own_experts_run_where_ours_are_left_out(
    models: dict[str, str], tmp_path: Path
) -> None:
    """vLLM refuses them in the mode. Whether they differ at this size is not ours to say."""
    code, document, printed = check(
        tmp_path,
        *("--model", models["qwen3-moe"], "--threads", "1", "--controls", "without:vllm::moe"),
    )
    (control,) = document["controls"]
    (one,) = control["tries"]
    assert one["compared"] > 0, printed
    assert code == (0 if one["differing"] else 2), printed


def test_weights_that_are_cut_off_are_one_line(models: dict[str, str], tmp_path: Path) -> None:
    damaged = make_model("qwen3-moe", tmp_path / "damaged")
    weights = damaged / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    code, _, printed = check(tmp_path, "--model", str(damaged), "--threads", "1")
    assert code == 3, printed
    assert printed.splitlines()[-1].startswith("check: damaged bfloat16, 1 thread, mode: ")


def test_the_report_of_a_real_pass_leaves_nothing_uncovered() -> None:
    done = command("report", "--json")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    document = json.loads(done.stdout)
    assert document["covered"] is True and document["uncovered"] == document["compiled"] == []
    kinds = {row["operator"]: row["class"] for row in document["operators"]}
    for ours in ("linear_packed", "grouped_matmul_packed", "fused_infer_attention_score"):
        assert kinds[f"batch_invariant_ops::npu_{ours}_batch_invariant"] == "ours"
    assert kinds["aten::_log_softmax"] == "overridden"
    assert any(name.startswith("_C::") for name in kinds)
    assert document["library"]["path"].endswith("libcust_opapi.so")
    phases = {phase for row in document["operators"] for phase in row["phases"]}
    assert phases == {"forward", "sampling", "around"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", "qwen2"])
def test_nothing_of_another_architecture_is_uncovered(models: dict[str, str], name: str) -> None:
    done = command("report", "--json", "--model", models[name])
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    document = json.loads(done.stdout)
    assert document["uncovered"] == document["compiled"] == []


def test_the_report_sees_an_override_that_is_missing(models: dict[str, str]) -> None:
    done = command("report", "--model", models["qwen3"], "--subject", "without:vllm::linear")
    assert done.returncode == 1, done.stdout[-3000:] + done.stderr
    assert "report: uncovered: " in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qwen3-1.7b", "qwen3-8b", "qwen3-30b-a3b", "qwen3-235b-a22b"])
def test_true_layer_shapes_are_identical(name: str, tmp_path: Path) -> None:
    model = make_model(name, tmp_path / name, layers=1)
    code, document, printed = check(tmp_path, "--model", str(model), "--threads", "1,2")
    assert code == 0, printed
    assert document["comparisons"] == document["identical"]
