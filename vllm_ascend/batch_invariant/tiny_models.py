# SPDX-License-Identifier: Apache-2.0
"""Qwen3, Qwen3-MoE, Qwen2 and Llama model directories with seeded random weights.

A directory written here is one that `vllm` loads with no network: `config.json`,
`generation_config.json`, `model.safetensors` (sharded where it is large) and a byte-level BPE
tokenizer built on the spot that covers the whole vocabulary.

`qwen3`, `qwen3-moe`, `llama` and `qwen2` (tied embeddings, biases) are small enough for the fast
tests. The other names have the true layer shapes of the published models (the values of their
`config.json`), cut to `layers` layers.

The scales are chosen so that the logits are those of a model that has something to say:
every branch adds about unit variance to the residual stream, and the last norm times the head's
weight gives logits of standard deviation `LOGIT_STD`. A sampled token then has many rivals, and
the smallest change of a bit shows in its logprob.
"""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from .tiny_tokenizer import write_tokenizer

# Standard deviation of the logits: wide enough for a clear maximum, narrow enough that sampling at
# temperature 0.7 still reaches many tokens.
LOGIT_STD = 2.5

# A shard is closed when the next tensor would take it over this size.
SHARD_BYTES = 2 << 30

# A weight this large is filled by repeating a block of random values of this many elements with
# a shift that no two rows share: the true shapes have billions of weights, and a generator makes
# about 10^8 a second.
RANDOM_BLOCK = (1 << 24) - 3


@dataclass(frozen=True)
class Shape:
    """What `config.json` says of a model; the names are those of the published files."""

    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    num_hidden_layers: int
    tie_word_embeddings: bool
    max_position_embeddings: int = 4096
    # Mixture of experts; 0 experts is a dense model.
    num_experts: int = 0
    num_experts_per_tok: int = 0
    moe_intermediate_size: int = 0
    model_type: str = "qwen3"

    @property
    def is_moe(self) -> bool:
        return self.num_experts > 0


SHAPES: dict[str, Shape] = {
    # 16 * 128 inputs of the attention's output projection: CPU libraries split a reduction longer
    # than about 1024 differently for one row and for several, so that stock vLLM shows the batch's
    # influence in every dtype. The dense vocabulary is over the 32,768 elements from which PyTorch
    # spreads the reduction of one row over threads.
    "qwen3": Shape(256, 768, 16, 4, 128, 33792, 2, False),
    "qwen3-moe": Shape(
        256,
        768,
        16,
        4,
        128,
        2048,
        2,
        False,
        num_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=128,
        model_type="qwen3_moe",
    ),
    # As in Llama 3, no norms of queries and keys. 1536 inputs of the down projection.
    "llama": Shape(1024, 1536, 8, 2, 128, 4096, 2, False, model_type="llama"),
    # As in the small Qwen2 and Qwen2.5: biases, heads of 64, embeddings that are also the head.
    "qwen2": Shape(1024, 1536, 16, 4, 64, 4096, 2, True, model_type="qwen2"),
    "qwen3-1.7b": Shape(2048, 6144, 16, 8, 128, 151936, 2, True),
    "qwen3-8b": Shape(4096, 12288, 32, 8, 128, 151936, 2, False),
    "qwen3-30b-a3b": Shape(
        2048,
        6144,
        32,
        4,
        128,
        151936,
        2,
        False,
        num_experts=128,
        num_experts_per_tok=8,
        moe_intermediate_size=768,
        model_type="qwen3_moe",
    ),
    "qwen3-235b-a22b": Shape(
        4096,
        12288,
        64,
        4,
        128,
        151936,
        1,
        False,
        num_experts=128,
        num_experts_per_tok=8,
        moe_intermediate_size=1536,
        model_type="qwen3_moe",
    ),
}


ARCHITECTURES = {
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
}


def model_config(shape: Shape) -> dict[str, Any]:
    """The `config.json` of a model of this shape, weights in bfloat16."""
    config: dict[str, Any] = {
        "architectures": [ARCHITECTURES[shape.model_type]],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "hidden_act": "silu",
        "initializer_range": 0.02,
        "rms_norm_eps": 1e-06,
        "rope_theta": 1000000.0,
        "rope_scaling": None,
        "sliding_window": None,
        "use_sliding_window": False,
        "use_cache": True,
        "torch_dtype": "bfloat16",
        "bos_token_id": None,
        "eos_token_id": 0,
        "pad_token_id": 0,
    }
    fields = asdict(shape)
    if shape.is_moe:
        config |= {
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
            "norm_topk_prob": True,
            "output_router_logits": False,
            "router_aux_loss_coef": 0.001,
        }
    else:
        for name in ("num_experts", "num_experts_per_tok", "moe_intermediate_size"):
            del fields[name]
    return config | fields


def _weight_tensors(shape: Shape) -> Iterator[tuple[str, tuple[int, ...], float, float]]:
    """Names as in the published checkpoints, with shape, mean and standard deviation."""
    hidden, head = shape.hidden_size, shape.head_dim
    query = shape.num_attention_heads * head
    key_value = shape.num_key_value_heads * head

    def matrix(
        name: str, out: int, inner: int, gain: float
    ) -> tuple[str, tuple[int, ...], float, float]:
        # A row of unit-variance inputs gives outputs of standard deviation `gain`.
        return name, (out, inner), 0.0, gain / math.sqrt(inner)

    # Scores of standard deviation 1.5 * 1.5: attention that looks at something.
    normed = shape.model_type.startswith("qwen3")
    look = 1.0 if normed else 1.5

    def projection(name: str, out: int, gain: float) -> Iterator[tuple[Any, ...]]:
        yield matrix(f"{name}.weight", out, hidden, gain)
        if shape.model_type == "qwen2":
            yield f"{name}.bias", (out,), 0.0, 0.5

    def norm(name: str, size: int, mean: float = 1.0) -> tuple[str, tuple[int, ...], float, float]:
        return name, (size,), mean, 0.1

    yield matrix("model.embed_tokens.weight", shape.vocab_size, hidden, LOGIT_STD)
    for layer in range(shape.num_hidden_layers):
        at = f"model.layers.{layer}."
        yield norm(at + "input_layernorm.weight", hidden)
        yield from projection(at + "self_attn.q_proj", query, look)
        yield from projection(at + "self_attn.k_proj", key_value, look)
        yield from projection(at + "self_attn.v_proj", key_value, 1.0)
        # Attention averages about e values of unit variance: a gain of 2 restores it.
        yield matrix(at + "self_attn.o_proj.weight", hidden, query, 2.0)
        if normed:
            yield norm(at + "self_attn.q_norm.weight", head, 1.5)
            yield norm(at + "self_attn.k_norm.weight", head, 1.5)
        yield norm(at + "post_attention_layernorm.weight", hidden)
        if shape.is_moe:
            inner = shape.moe_intermediate_size
            yield matrix(at + "mlp.gate.weight", shape.num_experts, hidden, 1.0)
            experts = [f"{at}mlp.experts.{e}." for e in range(shape.num_experts)]
        else:
            inner = shape.intermediate_size
            experts = [at + "mlp."]
        for expert in experts:
            yield matrix(expert + "gate_proj.weight", inner, hidden, 1.0)
            yield matrix(expert + "up_proj.weight", inner, hidden, 1.0)
            # silu(x) * y has a standard deviation of about 0.6 for unit normal x and y.
            yield matrix(expert + "down_proj.weight", hidden, inner, 1.7)
    yield norm("model.norm.weight", hidden)
    if not shape.tie_word_embeddings:
        yield matrix("lm_head.weight", shape.vocab_size, hidden, LOGIT_STD)


class _Normal:
    """Seeded normal values in bfloat16; a large tensor repeats one block (see RANDOM_BLOCK)."""

    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self._block: torch.Tensor | None = None

    def __call__(self, dims: tuple[int, ...], mean: float, std: float) -> torch.Tensor:
        count = math.prod(dims)
        if count <= RANDOM_BLOCK:
            values = torch.randn(count, generator=self._generator)
            return values.mul_(std).add_(mean).to(torch.bfloat16).reshape(dims)
        if self._block is None:
            self._block = torch.randn(RANDOM_BLOCK, generator=self._generator)
        start = int(torch.randint(RANDOM_BLOCK, (), generator=self._generator))
        block = self._block.roll(start).mul_(std).add_(mean).to(torch.bfloat16)
        return block.repeat(-(-count // RANDOM_BLOCK))[:count].reshape(dims)


def _write_weights(directory: Path, shape: Shape, seed: int, shard_bytes: int) -> None:
    from safetensors.torch import save_file

    normal = _Normal(seed)
    mode = directory.stat().st_mode & 0o666
    shards: list[list[str]] = []
    pending: dict[str, torch.Tensor] = {}
    filled = total = 0

    def close() -> None:
        shards.append(list(pending))
        path = directory / f"model-{len(shards):05d}.safetensors"
        save_file(pending, path, metadata={"format": "pt"})
        path.chmod(mode)  # safetensors writes 0600 whatever the umask says
        pending.clear()

    for name, dims, mean, std in _weight_tensors(shape):
        tensor = normal(dims, mean, std).contiguous()
        size = tensor.numel() * tensor.element_size()
        if pending and filled + size > shard_bytes:
            close()
            filled = 0
        pending[name] = tensor
        filled += size
        total += size
    close()
    if len(shards) == 1:
        (directory / "model-00001.safetensors").rename(directory / "model.safetensors")
        return
    weight_map = {
        name: f"model-{index:05d}.safetensors"
        for index, names in enumerate(shards, start=1)
        for name in names
    }
    document = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(document, indent=1) + "\n")


def _weight_bytes(shape: Shape) -> int:
    """Bytes of all weights; without a walk over the layers, which are alike."""

    def of(layers: int) -> int:
        cut = replace(shape, num_hidden_layers=layers)
        return sum(2 * math.prod(dims) for _, dims, _, _ in _weight_tensors(cut))

    return of(0) + (of(1) - of(0)) * shape.num_hidden_layers


def make_model(
    name: str,
    directory: Path,
    *,
    seed: int = 0,
    layers: int | None = None,
    shard_bytes: int = SHARD_BYTES,
) -> Path:
    """Write the model `name` of SHAPES into `directory`, whole or not at all.

    `directory` may not exist yet, or be empty. The same name, seed and number of layers give the
    same bytes. A file of weights is closed before it grows over `shard_bytes`. Raises ValueError
    for an unknown name, a seed below 0 or less than one layer or byte, FileExistsError for a
    directory in use, and OSError where the file system has no room for the weights.
    """
    if name not in SHAPES:
        raise ValueError(f"unknown model {name!r}; known: {', '.join(SHAPES)}")
    shape = SHAPES[name]
    if not 0 <= seed < 2**63:
        raise ValueError(f"seed {seed}: expected 0 to 2**63 - 1")
    if layers is not None and layers < 1:
        raise ValueError(f"{layers} layers: expected 1 or more")
    if shard_bytes < 1:
        raise ValueError(f"shards of {shard_bytes} bytes: expected 1 or more")
    if layers is not None:
        shape = replace(shape, num_hidden_layers=layers)
    directory = directory.resolve()  # an empty directory is replaced; one behind a link too
    if directory.is_mount():
        raise ValueError(f"{directory} is a mount point; give a directory in it")
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise FileExistsError(f"{directory} exists and is not empty; give another directory")
    directory.parent.mkdir(parents=True, exist_ok=True)
    needed, free = _weight_bytes(shape), shutil.disk_usage(directory.parent).free
    if needed > free:
        raise OSError(
            f"the weights take {needed / 1e9:.1f} GB, and {directory.parent} has "
            f"{free / 1e9:.1f} GB free"
        )
    # Beside the directory, so that the rename at the end stays inside one file system.
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=f".{directory.name}-") as made:
        model = Path(made) / "model"
        model.mkdir()
        _write_weights(model, shape, seed, shard_bytes)
        write_tokenizer(model, shape.vocab_size, shape.max_position_embeddings)
        generation = {"eos_token_id": 0, "pad_token_id": 0, "do_sample": True}
        (model / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
        # Last: a directory with a config.json is a model.
        config = json.dumps(model_config(shape), indent=2, sort_keys=True)
        (model / "config.json").write_text(config + "\n")
        if directory.exists():
            directory.rmdir()
        model.rename(directory)
    return directory
