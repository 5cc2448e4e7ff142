# SPDX-License-Identifier: Apache-2.0
"""The random models are models: complete, seeded, with text for every token."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vllm_ascend.batch_invariant.__main__ import main
from vllm_ascend.batch_invariant.tiny_models import SHAPES, make_model, model_config

TINY = ("qwen3", "qwen3-moe", "llama", "qwen2")

# The published config.json files of the models whose layer shapes we keep.
PUBLISHED = {
    "qwen3-1.7b": (2048, 6144, 16, 8, 128, 151936, True, 0, 0),
    "qwen3-8b": (4096, 12288, 32, 8, 128, 151936, False, 0, 0),
    "qwen3-30b-a3b": (2048, 6144, 32, 4, 128, 151936, False, 128, 768),
    "qwen3-235b-a22b": (4096, 12288, 64, 4, 128, 151936, False, 128, 1536),
}


@pytest.mark.parametrize("name", TINY)
def test_same_seed_same_bytes_other_seed_other_weights(name: str, tmp_path: Path) -> None:
    first = make_model(name, tmp_path / "first")
    again = make_model(name, tmp_path / "again")
    other = make_model(name, tmp_path / "other", seed=1)
    files = sorted(path.name for path in first.iterdir())
    assert files == sorted(path.name for path in again.iterdir())
    for file in files:
        assert (first / file).read_bytes() == (again / file).read_bytes()
    weights = "model.safetensors"
    assert (first / weights).read_bytes() != (other / weights).read_bytes()


@pytest.mark.parametrize("name", TINY)
def test_tokenizer_covers_exactly_the_vocabulary(name: str, tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    model = make_model(name, tmp_path / "model")
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    size = SHAPES[name].vocab_size
    assert tokenizer.get_vocab_size() == size
    assert all(tokenizer.id_to_token(token) is not None for token in range(size))
    text = "The future of AI is: naïve 模型\n"
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


@pytest.mark.parametrize("name", TINY)
def test_weights_have_the_names_and_shapes_of_the_architecture(name: str, tmp_path: Path) -> None:
    import torch
    import transformers
    from safetensors.torch import load_file

    model = make_model(name, tmp_path / "model")
    config = transformers.AutoConfig.from_pretrained(str(model))
    with torch.device("meta"):
        reference = transformers.AutoModelForCausalLM.from_config(config)
    parameters = sum(p.numel() for p in reference.parameters())
    weights = load_file(str(model / "model.safetensors"))
    # Expert weights are fused inside transformers, so count elements rather than names.
    assert sum(w.numel() for w in weights.values()) == parameters
    assert all(w.dtype == torch.bfloat16 and bool(w.isfinite().all()) for w in weights.values())


@pytest.mark.parametrize("name", PUBLISHED)
def test_layer_shapes_are_those_of_the_published_models(name: str) -> None:
    shape = SHAPES[name]
    assert PUBLISHED[name] == (
        shape.hidden_size,
        shape.intermediate_size,
        shape.num_attention_heads,
        shape.num_key_value_heads,
        shape.head_dim,
        shape.vocab_size,
        shape.tie_word_embeddings,
        shape.num_experts,
        shape.moe_intermediate_size,
    )
    assert model_config(shape)["model_type"] == ("qwen3_moe" if shape.is_moe else "qwen3")


def test_large_weights_are_sharded_with_an_index(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    whole = make_model("qwen3-moe", tmp_path / "whole")
    sharded = make_model("qwen3-moe", tmp_path / "sharded", shard_bytes=1 << 20)
    index = json.loads((sharded / "model.safetensors.index.json").read_text())["weight_map"]
    expected = load_file(str(whole / "model.safetensors"))
    assert index.keys() == expected.keys()
    assert len(set(index.values())) > 1
    for name, file in index.items():
        assert load_file(str(sharded / file))[name].equal(expected[name])


def test_repeated_blocks_do_not_align_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from safetensors.torch import load_file

    from vllm_ascend.batch_invariant import tiny_models

    monkeypatch.setattr(tiny_models, "RANDOM_BLOCK", 65521)
    model = make_model("qwen3-moe", tmp_path / "model")
    head = load_file(str(model / "model.safetensors"))["lm_head.weight"]
    assert head.unique(dim=0).shape == head.shape


def test_a_directory_in_use_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").write_text("kept")
    assert main(["make-model", "qwen3", str(tmp_path)]) == 3
    assert "not empty" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_an_unknown_model_is_named_with_the_known_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["make-model", "qwen1", str(tmp_path / "m")]) == 3
    error = capsys.readouterr().err
    assert "'qwen1'" in error and "qwen3-moe" in error
    assert not (tmp_path / "m").exists()


def test_more_than_the_file_system_holds_is_refused_before_it_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["make-model", "qwen3", str(tmp_path / "m"), "--layers", str(10**18)]) == 3
    assert "GB free" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_link_to_an_empty_directory_is_followed(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "m").symlink_to("disk")
    assert main(["make-model", "qwen3", str(tmp_path / "m")]) == 0
    assert (tmp_path / "m").is_symlink() and (tmp_path / "disk/config.json").is_file()


def test_a_mount_point_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["make-model", "qwen3", "/proc"]) == 3
    assert "is a mount point" in capsys.readouterr().err


def test_a_terminated_run_leaves_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "vllm_ascend.batch_invariant", "make-model"]
    run = subprocess.Popen([*command, "qwen3-8b", str(tmp_path / "m")])
    try:
        while not list(tmp_path.glob(".m-*/model")):
            assert run.poll() is None
            time.sleep(0.01)
        run.terminate()
        assert run.wait(60) == 143
    finally:
        run.kill()
    assert list(tmp_path.iterdir()) == []
