# SPDX-License-Identifier: Apache-2.0
"""The engine: bits of a request alone, in batches, on one and two threads; and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import RunPython

pytestmark = pytest.mark.vllm

# Greedy and seeded requests of mixed lengths, with top-k, top-p, penalties, prompt logprobs and
# different numbers of logprobs, so that neighbours differ in all of it.
GENERATE = """
    import json, random, struct, sys
    from vllm import LLM, SamplingParams

    def requests(count):
        numbers = random.Random(1)
        for i in range(count):
            prompt = [numbers.randrange(3, 900) for _ in range(numbers.randrange(1, 200))]
            yield {"prompt_token_ids": prompt}, SamplingParams(
                temperature=0.0 if i % 2 else 0.8,
                seed=None if i % 2 else 100 + i,
                top_p=0.7 if i % 4 == 0 else 1.0,
                top_k=20 if i % 8 == 2 else 0,
                min_p=0.05 if i % 16 == 6 else 0.0,
                presence_penalty=0.5 if i % 5 == 0 else 0.0,
                logprobs=(2, 5, 9)[i % 3],
                prompt_logprobs=1 if i % 7 == 0 else None,
                max_tokens=12,
                ignore_eos=True,
                detokenize=False,
            )

    def chosen(positions):
        return [
            [(token, struct.pack("d", entry.logprob).hex(), entry.rank)
             for token, entry in position.items()]
            for position in positions or () if position
        ]

    def main():
        model, dtype, batches = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
        engine = LLM(
            model, dtype=dtype, max_model_len=512, max_num_seqs=64, block_size=128,
            skip_tokenizer_init=True, enable_prefix_caching=False, enable_chunked_prefill=False,
            **json.loads(sys.argv[4]),
        )
        items = list(enumerate(requests(32)))
        found = {}
        for size in batches:
            random.Random(size).shuffle(items)
            results = {}
            for start in range(0, len(items), size):
                part = items[start : start + size]
                outputs = engine.generate(
                    [prompt for _, (prompt, _) in part], [wish for _, (_, wish) in part],
                    use_tqdm=False,
                )
                for (index, _), output in zip(part, outputs):
                    completion = output.outputs[0]
                    results[index] = [
                        list(completion.token_ids),
                        chosen(completion.logprobs),
                        chosen(output.prompt_logprobs),
                    ]
            found[size] = [results[index] for index in range(len(items))]
        print("RESULTS" + json.dumps(found))

    if __name__ == "__main__":
        main()
"""

IN_PROCESS = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}


def generate(
    run_python: RunPython,
    model: Path,
    dtype: str,
    batches: list[int],
    variables: dict[str, str],
    options: str = "{}",
) -> dict[str, list[object]]:
    done = run_python(
        GENERATE, str(model), dtype, json.dumps(batches), options, **IN_PROCESS | variables
    )
    line = next(line for line in done.stdout.splitlines() if line.startswith("RESULTS"))
    found: dict[str, list[object]] = json.loads(line.removeprefix("RESULTS"))
    return found


def differing(a: list[object], b: list[object]) -> int:
    return sum(x != y for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize(
    "dtype", ["bfloat16", "float32", pytest.param("float16", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("kind", ["dense_model", "moe_model"])
def test_a_request_has_its_bits_in_any_batch_on_any_number_of_threads(
    run_python: RunPython, request: pytest.FixtureRequest, kind: str, dtype: str
) -> None:
    model = request.getfixturevalue(kind)
    mode = {"VLLM_BATCH_INVARIANT": "1"}
    one = generate(run_python, model, dtype, [1, 8, 32], mode | {"OMP_NUM_THREADS": "1"})
    two = generate(run_python, model, dtype, [1, 32], mode | {"OMP_NUM_THREADS": "2"})
    for found in (one["8"], one["32"], two["1"], two["32"]):
        assert differing(one["1"], found) == 0


@pytest.mark.parametrize("kind", ["dense_model", "moe_model"])
def test_control_stock_vllm_gives_other_bits_in_a_batch(
    run_python: RunPython, request: pytest.FixtureRequest, kind: str
) -> None:
    stock = generate(
        run_python,
        request.getfixturevalue(kind),
        "bfloat16",
        [1, 32],
        {"OMP_NUM_THREADS": "1"},
        # Our worker, which with the mode off only asks for AMX tiles; stock dies without them.
        '{"enforce_eager": true, "kv_cache_memory_bytes": 134217728,'
        ' "worker_cls": "vllm_ascend.worker.cpu_worker.AscendCpuWorker"}',
    )
    assert differing(stock["1"], stock["32"]) > 0


def test_control_the_mode_without_its_linear_layers_gives_other_bits(
    run_python: RunPython, dense_model: Path
) -> None:
    found = generate(
        run_python,
        dense_model,
        "bfloat16",
        [1, 32],
        {
            "VLLM_BATCH_INVARIANT": "1",
            "VLLM_BATCH_INVARIANT_DISABLE": "vllm::linear",
            "OMP_NUM_THREADS": "1",
        },
    )
    assert differing(found["1"], found["32"]) > 0


def test_the_bits_do_not_depend_on_the_size_of_the_kv_cache(
    run_python: RunPython, dense_model: Path
) -> None:
    """A cache for a few requests only: the others wait, and none is computed a second time."""
    mode = {"VLLM_BATCH_INVARIANT": "1"}
    ample = generate(run_python, dense_model, "bfloat16", [32], mode)
    # Six blocks of the tiny model beside vLLM's own.
    options = json.dumps({"kv_cache_memory_bytes": 7 * block_bytes(dense_model)})
    scarce = generate(run_python, dense_model, "bfloat16", [32], mode, options)
    assert differing(ample["32"], scarce["32"]) == 0


def block_bytes(model: Path) -> int:
    """Bytes of one KV block of 128 tokens in bfloat16, all layers."""
    config = json.loads((model / "config.json").read_text())
    per_token = 2 * config["num_key_value_heads"] * config["head_dim"] * 2
    return int(128 * per_token * config["num_hidden_layers"])


GUIDE: dict[str, object] = {
    "enable_chunked_prefill": False,
    "enable_prefix_caching": False,
    "block_size": 128,
}

# What is given instead of or beside the guide's settings, and the line that refuses it.
REFUSED: list[tuple[dict[str, object], str]] = [
    (
        {"enable_chunked_prefill": None},
        "chunked prefill is on; use --no-enable-chunked-prefill "
        "(offline: enable_chunked_prefill=False)",
    ),
    (
        {"enable_prefix_caching": None},
        "prefix caching is on; use --no-enable-prefix-caching "
        "(offline: enable_prefix_caching=False)",
    ),
    (
        {"tensor_parallel_size": 2},
        "tensor parallel size is 2, which is not proven invariant; use --tensor-parallel-size 1 "
        "(offline: tensor_parallel_size=1)",
    ),
    (
        {"block_size": 64},
        "the KV cache has blocks of 64 tokens; use --block-size 128 (offline: block_size=128)",
    ),
    (
        # Two layers of four heads of 128, keys and values in bfloat16, and the null block.
        {"kv_cache_memory_bytes": 2 << 20},
        "a request of 512 tokens needs 2.5 MiB of KV cache and --kv-cache-memory-bytes gives "
        "2.0 MiB: give --max-model-len 384 or less, or --kv-cache-memory-bytes 2621440",
    ),
    (
        {"quantization": "fp8"},
        "the model is quantised (fp8); use an unquantised --model (offline: an unquantised model)",
    ),
    (
        {
            "hf_overrides": {
                "quantization_config": {
                    "quant_method": "awq",
                    "bits": 4,
                    "group_size": 128,
                    "zero_point": True,
                }
            }
        },
        "the model is quantised (awq); use an unquantised --model (offline: an unquantised model)",
    ),
    (
        {"enable_lora": True},
        "LoRA is on; use no --enable-lora (offline: enable_lora=False)",
    ),
    (
        {
            "hf_overrides": {
                "sliding_window": 256,
                "use_sliding_window": True,
                "max_window_layers": 0,
            }
        },
        "MODEL has a sliding window of 256 tokens; use --disable-sliding-window, which limits "
        "--max-model-len to it (offline: disable_sliding_window=True)",
    ),
]

CONFIGURE = """
    import json, sys
    from vllm.engine.arg_utils import EngineArgs
    for options in json.loads(sys.argv[2]):
        options = {name: value for name, value in options.items() if value is not None}
        arguments = EngineArgs(sys.argv[1], skip_tokenizer_init=True, max_model_len=512, **options)
        try:
            arguments.create_engine_config()
            print("RESULT", "accepted")
        except Exception as error:
            print("RESULT", f"{type(error).__name__}: {error}")
"""


def test_what_the_mode_cannot_honour_is_refused_by_name_before_a_model_is_loaded(
    run_python: RunPython, dense_model: Path
) -> None:
    asked = [GUIDE, *(GUIDE | options for options, _ in REFUSED)]
    done = run_python(CONFIGURE, str(dense_model), json.dumps(asked), VLLM_BATCH_INVARIANT="1")
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    start = "RESULT ModeRefused: VLLM_BATCH_INVARIANT=1: "
    wanted = [start + message.replace("MODEL", str(dense_model)) for _, message in REFUSED]
    assert lines == ["RESULT accepted", *wanted]


OFFLINE = """
    import sys
    from vllm import LLM
    if __name__ == "__main__":
        LLM(sys.argv[1], skip_tokenizer_init=True, max_model_len=512)
"""


def test_an_offline_script_ends_in_the_lines_that_name_the_flags(
    run_python: RunPython, dense_model: Path
) -> None:
    done = run_python(OFFLINE, str(dense_model), check=False, VLLM_BATCH_INVARIANT="1")
    assert done.returncode != 0
    assert [line.partition("VLLM_BATCH")[2] for line in done.stderr.splitlines()[-2:]] == [
        f"_INVARIANT=1: {message}" for _, message in REFUSED[:2]
    ]


@pytest.mark.parametrize("bypass", [{"VLLM_TARGET_DEVICE": "cpu"}, {"VLLM_PLUGINS": "another"}])
def test_the_engine_never_runs_with_the_mode_asked_for_and_another_platform(
    run_python: RunPython, dense_model: Path, bypass: dict[str, str]
) -> None:
    done = run_python(
        GENERATE,
        str(dense_model),
        "bfloat16",
        "[32]",
        '{"enforce_eager": true, "kv_cache_memory_bytes": 134217728}',
        check=False,
        VLLM_BATCH_INVARIANT="1",
        **IN_PROCESS | bypass,
    )
    assert done.returncode != 0
    assert "RESULTS" not in done.stdout
    if "VLLM_TARGET_DEVICE" in bypass:  # then vLLM still loads our second entry point
        assert "needs the platform of vllm-ascend" in done.stderr
