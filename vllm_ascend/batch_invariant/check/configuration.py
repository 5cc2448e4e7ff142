# SPDX-License-Identifier: Apache-2.0
"""One engine start: which model, dtype and number of threads, and with which operators."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The spellings of `--dtype` that vLLM takes; "auto" is the model's own.
DTYPES = ("auto", "bfloat16", "float16", "float32", "half", "float")

# One of these makes a directory's text readable; without any, stop words are left out.
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "tekken.json")

MODE = "mode"
STOCK = "stock"
WITHOUT = "without:"


class ConfigurationError(ValueError):
    """What was asked for cannot be run; the message is one line for the user."""


def subject_environment(subject: str) -> dict[str, str]:
    """The environment variables that select `subject`, out of

    "mode"           the batch-invariant mode
    "stock"          vLLM as it is
    "without:NAMES"  the mode with the overrides NAMES (separated by "+") left out
    """
    from vllm_ascend.batch_invariant.switch import LEFT_OUT_VARIABLE, MODE_VARIABLE

    if subject == STOCK:
        return {}
    if subject == MODE:
        return {MODE_VARIABLE: "1"}
    names = subject.removeprefix(WITHOUT)
    if names == subject or not names:
        raise ConfigurationError(
            f"unknown subject {subject!r}: expected {MODE}, {STOCK} or {WITHOUT}OVERRIDE"
        )
    return {MODE_VARIABLE: "1", LEFT_OUT_VARIABLE: names.replace("+", ",")}


def check_subject(subject: str) -> None:
    """Raises ConfigurationError in one line where `subject` selects nothing that exists."""
    from vllm_ascend.batch_invariant.switch import LEFT_OUT_VARIABLE

    names = subject_environment(subject).get(LEFT_OUT_VARIABLE)
    if names is None:
        return
    from vllm_ascend.batch_invariant.overrides import declared

    known = sorted(override.name for override in declared())
    if unknown := sorted(set(names.split(",")) - set(known)):
        raise ConfigurationError(
            f"{subject}: no override is called {', '.join(map(repr, unknown))}; "
            f"choose from {', '.join(known)}"
        )


@dataclass(frozen=True)
class Configuration:
    """One start of an engine."""

    model: str
    dtype: str
    threads: int
    subject: str = MODE

    def label(self) -> str:
        threads = f"{self.threads} thread" + ("s" if self.threads > 1 else "")
        return f"{Path(self.model).name} {self.dtype}, {threads}, {self.subject}"


@dataclass(frozen=True)
class ModelFacts:
    """What `config.json` says that the workload depends on."""

    vocab_size: int
    max_positions: int
    dtype: str
    # Bytes of KV cache for one token in float32, over all layers; None where the keys are missing.
    cache_bytes_per_token: int | None
    has_tokenizer: bool


def _in_cache(name: str) -> Path:
    """The directory of a model that is in the Hugging Face cache under `name`, "org/model".

    The network is not asked. Raises ConfigurationError in one line where it is not there.
    """
    try:
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(name, local_files_only=True))
    except (ImportError, OSError, ValueError) as error:  # not there, or no name of a model
        is_name = re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name) and not name.startswith(".")
        fetch = f", or fetch it first: hf download {name}" if is_name else ""
        raise ConfigurationError(
            f"--model {name}: no such directory, and no model of this name in the Hugging Face "
            f"cache; give a model's directory{fetch}"
        ) from error


def read_model(directory: str) -> ModelFacts:
    """Reads `config.json` of a model's directory, or of a name that the cache has.

    Raises ConfigurationError in one line where it is not a model, or one that the mode refuses
    whatever else is asked for: that needs no engine to find out.
    """
    if not directory:
        raise ConfigurationError("--model: expected a model's directory, found ''")
    path = Path(directory)
    if not path.is_dir():
        path = _in_cache(directory)
    if (path / "adapter_config.json").is_file():
        raise ConfigurationError(
            f"--model {directory}: a LoRA adapter (adapter_config.json); the mode runs no LoRA, "
            "give the model that it was merged into"
        )
    file = path / "config.json"
    if not file.is_file():
        raise ConfigurationError(
            f"--model {directory}: no config.json in it; give the directory of a model, "
            "or make one with `python -m vllm_ascend.batch_invariant make-model qwen3 DIR`"
        )
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
        # Models with several parts keep the language model's values one level down.
        text: dict[str, Any] = config.get("text_config") or config
        quantised = text.get("quantization_config") or config.get("quantization_config")
        vocab_size = int(text["vocab_size"])
        positions = int(text.get("max_position_embeddings", 2048))
        dtype = str(text.get("dtype") or text.get("torch_dtype") or config.get("torch_dtype"))
    except (
        OSError, ValueError, ArithmeticError, KeyError, TypeError, AttributeError, RecursionError,
    ) as error:  # fmt: skip
        raise ConfigurationError(
            f"{file}: not a model's configuration ({type(error).__name__}: {error})"
        ) from error
    if quantised:
        method = quantised.get("quant_method") if isinstance(quantised, dict) else quantised
        raise ConfigurationError(
            f"--model {directory}: the model is quantised ({method or 'quantization_config'}); "
            "the mode takes an unquantised one"
        )
    for name, value in (("vocab_size", vocab_size), ("max_position_embeddings", positions)):
        if value < 2:
            raise ConfigurationError(f"{file}: {name} is {value}; expected 2 or more")
    cache = None
    try:
        heads = int(text.get("num_key_value_heads") or text["num_attention_heads"])
        size = int(text.get("head_dim") or text["hidden_size"] // text["num_attention_heads"])
        cache = int(text["num_hidden_layers"]) * 2 * heads * size * 4
    except (KeyError, TypeError):
        pass
    except (ValueError, ArithmeticError) as error:
        raise ConfigurationError(f"{file}: heads, head_dim or layers: {error}") from error
    has_tokenizer = any((path / name).is_file() for name in TOKENIZER_FILES)
    return ModelFacts(vocab_size, positions, dtype, cache, has_tokenizer)


def resolve_dtype(dtype: str, facts: ModelFacts) -> str:
    """The dtype that vLLM will use: its synonyms, and the model's own for "auto"."""
    if dtype not in DTYPES:
        raise ConfigurationError(
            f"--dtype {dtype}: unknown; expected one of {', '.join(DTYPES)}, or several "
            "separated by commas"
        )
    if dtype == "auto":
        # vLLM runs a model that was stored in float32 in a 16-bit type; we ask for what it says.
        dtype = facts.dtype.removeprefix("torch.")
        if dtype not in DTYPES:
            dtype = "bfloat16"
    return {"half": "float16", "float": "float32"}.get(dtype, dtype)


def number_list(option: str, text: str, most: int) -> tuple[int, ...]:
    """`1,2,8` → (1, 2, 8): from 1 to `most`, ascending, each once."""
    try:
        numbers = sorted({int(part) for part in text.split(",")})
    except ValueError:
        numbers = []
    if not numbers or numbers[0] < 1:
        raise ConfigurationError(
            f"{option} {text}: expected positive numbers separated by commas, e.g. 1,2"
        )
    if numbers[-1] > most:
        raise ConfigurationError(f"{option} {numbers[-1]}: expected at most {most}")
    return tuple(numbers)


def distinct(values: Sequence[str]) -> tuple[str, ...]:
    """The values, each once, in their order."""
    return tuple(dict.fromkeys(values))
