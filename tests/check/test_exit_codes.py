# SPDX-License-Identifier: Apache-2.0
"""What `check` answers, with engines that are made to compute as a test says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from vllm_ascend.batch_invariant.__main__ import main
from vllm_ascend.batch_invariant.check.command import run
from vllm_ascend.batch_invariant.check.configuration import Configuration
from vllm_ascend.batch_invariant.check.engine_process import EngineFailure, EngineResult

from .synthetic_runs import SyntheticEngines, depends_on_the_batch, invariant, options


@pytest.fixture
def model(tmp_path: Path) -> str:
    directory = tmp_path / "model"
    directory.mkdir()
    config = {"vocab_size": 300, "max_position_embeddings": 4096, "torch_dtype": "bfloat16"}
    (directory / "config.json").write_text(json.dumps(config))
    return str(directory)


def test_identical_with_a_differing_control_is_0(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "out.json"
    engines = SyntheticEngines()
    assert run(options(model=[model], json=file), engines) == 0
    document = json.loads(file.read_text())
    # Batches of 2 and 8 at two thread counts and the runs alone across them, 8 requests each; the
    # 3 greedy ones without penalties continued at two thread counts.
    assert document["comparisons"] == document["identical"] == 5 * 8 + 2 * 3
    assert document["control_differs"] is True
    assert document["verdict"] == "identical" and document["exit_code"] == 0
    assert [c.subject for c in engines.started] == ["mode", "mode", "stock"]
    assert document["operators"] == {"isa": "portable"}
    assert document["configurations"][0]["steps"]["8"]["requests_in_a_step"] == {"9": 6}
    kinds = document["configurations"][0]["requests"]
    assert kinds["greedy"] == kinds["seeded"] == 4 and kinds["several_outputs"] == 1
    printed = capsys.readouterr()
    assert "check: identical: 46 of 46" in printed.out
    assert "stock, 1 thread: 8 of 8 differ" in printed.out
    assert "[3/3]" in printed.err


def test_a_difference_is_1_and_is_named(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "out.json"
    engines = SyntheticEngines(subject=depends_on_the_batch)
    assert run(options(model=[model], json=file), engines) == 1
    document = json.loads(file.read_text())
    assert document["identical"] == 14 and document["comparisons"] == 46
    assert "batch of 2, 1 thread: " in document["configurations"][0]["first_difference"]
    assert "16 of 19 differ, first batch of 2, 1 thread: " in capsys.readouterr().out


def test_a_difference_between_prefill_and_decode_is_1(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    engines = SyntheticEngines()

    def start(*arguments: object) -> EngineResult:
        result = engines(*arguments)  # type: ignore[arg-type]
        name, (first, *rest) = result.continued[0]
        changed = first.replace("bf", "3f")
        return replace(result, continued=((name, (changed, *rest)), *result.continued[1:]))

    assert run(options(model=[model], threads="1"), start) == 1
    assert "first continued, 1 thread: greedy0, token 0: " in capsys.readouterr().out


def test_a_difference_between_thread_counts_is_1(model: str) -> None:
    engines = SyntheticEngines()

    def by_threads(request: str, rows: int) -> float:
        return invariant(request, rows) - engines.started[-1].threads

    engines._subject = by_threads
    assert run(options(model=[model]), engines) == 1
    assert run(options(model=[model], threads="2"), engines) == 0


def test_serialised_batches_are_1_though_all_bits_agree(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(options(model=[model]), SyntheticEngines(at_once=1)) == 1
    assert "no step held more than 1 of " in capsys.readouterr().out


def test_no_differing_control_is_2_after_all_were_tried(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "out.json"
    engines = SyntheticEngines(control=invariant)
    assert run(options(model=[model], json=file), engines) == 2
    document = json.loads(file.read_text())
    assert document["verdict"] == "inconclusive" and document["control_differs"] is False
    assert [(c.subject, c.threads) for c in engines.started[2:]] == [
        ("stock", 1),
        ("stock", 2),
        ("without:vllm::linear", 2),
        ("without:vllm::attention", 2),
        ("without:vllm::moe", 2),
    ]
    assert "no control differs" in capsys.readouterr().out


def test_one_model_without_a_control_makes_the_whole_inconclusive(model: str) -> None:
    engines = SyntheticEngines()

    def bfloat16_only(request: str, rows: int) -> float:
        compute = depends_on_the_batch if engines.started[-1].dtype == "bfloat16" else invariant
        return compute(request, rows)

    engines._control = bfloat16_only
    assert run(options(model=[model], dtype="bfloat16,float32"), engines) == 2


def test_the_next_control_is_tried_when_stock_cannot_start(model: str, tmp_path: Path) -> None:
    engines = SyntheticEngines()

    def start(configuration: Configuration, *rest: object) -> object:
        if configuration.subject == "stock":
            raise EngineFailure("the engine was killed by SIGILL")
        return engines(configuration, *rest)  # type: ignore[arg-type]

    file = tmp_path / "out.json"
    assert run(options(model=[model], json=file), start) == 0  # type: ignore[arg-type]
    (control,) = json.loads(file.read_text())["controls"]
    assert control["differs"] is True
    assert [t["subject"] for t in control["tries"]] == ["stock"] * 2 + ["without:vllm::linear"]
    assert "SIGILL" in control["tries"][0]["error"]


def test_nothing_to_compare_is_2(model: str) -> None:
    assert (
        run(options(model=[model], batches="1", threads="1", max_tokens=1), SyntheticEngines()) == 2
    )


def test_a_subject_that_does_not_start_is_3(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def start(*_: object) -> object:
        raise EngineFailure("VLLM_BATCH_INVARIANT=1 needs the package batch_invariant_ops")

    file = tmp_path / "out.json"
    assert run(options(model=[model], json=file), start) == 3  # type: ignore[arg-type]
    assert capsys.readouterr().err.endswith("needs the package batch_invariant_ops\n")
    assert not file.exists()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"model": ["/nowhere/at/all"]}, "no such directory"),
        ({"dtype": "int8"}, "--dtype int8"),
        ({"threads": "0"}, "--threads 0"),
        ({"threads": "one"}, "--threads one"),
        ({"batches": "64"}, "--prompts 32"),
        ({"prompts": 0}, "--prompts 0"),
        ({"prompts": 10**9}, "expected at most 4096, because"),
        ({"batches": f"1,{10**9}"}, "--batches 1000000000: expected at most 8192"),
        ({"threads": f"{10**9}"}, "--threads 1000000000: expected at most"),
        ({"max_tokens": 0}, "--max-tokens 0"),
        ({"subject": "stok"}, "stok"),
        ({"controls": "stock,without:"}, "without:"),
        ({"subject": "without:typo"}, "'typo'; choose from aten::_log_softmax, "),
        ({"controls": "stock,without:vllm::linear+typo"}, "no override is called 'typo'"),
        ({"json": Path("/nowhere/at/all/x.json")}, "--json"),
    ],
)
def test_what_cannot_be_run_is_3_in_one_line(
    model: str, changed: dict[str, object], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    engines = SyntheticEngines()
    assert run(options(**({"model": [model]} | changed)), engines) == 3
    printed = capsys.readouterr()
    assert said in printed.err and printed.err.count("\n") == 1
    assert engines.started == [], "nothing may run before the arguments are known to be good"


def test_a_directory_without_a_model_is_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "--model", str(tmp_path)]) == 3
    assert "no config.json" in capsys.readouterr().err
    (tmp_path / "config.json").write_text("{")
    assert main(["check", "--model", str(tmp_path)]) == 3
    assert "not a model's configuration" in capsys.readouterr().err


def test_wrong_usage_is_3_because_2_means_inconclusive(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["check", "--modle", "x"])
    assert stopped.value.code == 3
    with pytest.raises(SystemExit) as stopped:
        main(["check", "--help"])
    assert stopped.value.code == 0
    help_text = capsys.readouterr().out
    for code in ("0  identical", "1  different", "2  inconclusive", "3  error"):
        assert code in help_text


def test_an_interrupted_check_leaves_no_file(model: str, tmp_path: Path) -> None:
    def start(*_: object) -> object:
        raise KeyboardInterrupt

    file = tmp_path / "out.json"
    assert run(options(model=[model], json=file), start) == 130  # type: ignore[arg-type]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ('{"vocab_size": 0}', "vocab_size is 0"),
        ('{"vocab_size": -3}', "vocab_size is -3"),
        ('{"vocab_size": 1e400}', "not a model's configuration"),
        ("[" * 100_000, "not a model's configuration"),
        ('{"vocab_size": 50, "max_position_embeddings": 1}', "max_position_embeddings is 1"),
        (
            '{"vocab_size": 50, "num_attention_heads": 0, "hidden_size": 4, '
            '"num_hidden_layers": 2}',
            "heads",
        ),
        ('{"vocab_size": 50, "num_key_value_heads": "x", "num_hidden_layers": 2}', "heads"),
    ],
)
def test_numbers_that_no_model_has_are_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], config: str, says: str
) -> None:
    (tmp_path / "config.json").write_text(config)
    assert run(options(model=[str(tmp_path)]), SyntheticEngines()) == 3
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("check: ") and says in line


def test_what_the_mode_never_runs_is_refused_by_name_without_an_engine(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engines = SyntheticEngines()
    config = {"vocab_size": 300, "quantization_config": {"quant_method": "compressed-tensors"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert run(options(model=[str(tmp_path)]), engines) == 3
    assert "is quantised (compressed-tensors)" in capsys.readouterr().err
    Path(model, "adapter_config.json").write_text('{"peft_type": "LORA"}')
    assert run(options(model=[model]), engines) == 3
    assert "a LoRA adapter (adapter_config.json)" in capsys.readouterr().err
    assert main(["report", "--model", model]) == 3
    assert "a LoRA adapter" in capsys.readouterr().err
    assert engines.started == []


def test_a_name_stands_for_what_the_cache_has_under_it(
    model: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    engines = SyntheticEngines()
    assert run(options(model=["org/model"]), engines) == 3
    [line] = capsys.readouterr().err.splitlines()
    assert "no model of this name" in line and line.endswith("hf download org/model")
    assert run(options(model=["/no/model"]), engines) == 3
    assert "hf download" not in capsys.readouterr().err
    cached = tmp_path / "hub" / "models--org--model"
    revision = "0" * 40
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_text(revision)
    (cached / "snapshots").mkdir()
    Path(model).rename(cached / "snapshots" / revision)
    assert run(options(model=["org/model"]), engines) == 0
    assert {each.model for each in engines.started} == {"org/model"}


def test_stop_words_are_asked_for_where_there_is_a_tokenizer(model: str, tmp_path: Path) -> None:
    def stop_words() -> int:
        file = tmp_path / "out.json"
        assert run(options(model=[model], threads="1", json=file), SyntheticEngines()) == 0
        requests = json.loads(file.read_text())["configurations"][0]["requests"]
        return int(requests["stop_words"])

    assert stop_words() == 0
    Path(model, "tokenizer.json").write_text("{}")
    assert stop_words() == 2


def test_a_json_file_that_is_a_directory_is_3_before_anything_runs(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engines = SyntheticEngines()
    assert run(options(model=[model], json=tmp_path), engines) == 3
    assert engines.started == []
    assert "is a directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["--layers", "0"], ["--seed", "-1"], ["--seed", "9" * 30], ["--shard-bytes", "0"]]
)
def test_make_model_refuses_what_it_cannot_make(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert main(["make-model", "qwen3", str(tmp_path / "m"), *arguments]) == 3
    assert capsys.readouterr().err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_python_without_torch_is_named_in_one_line() -> None:
    # -S: no site-packages.
    command = [sys.executable, "-S", "-m", "vllm_ascend.batch_invariant", "check", "--help"]
    environ = {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(command, env=environ, capture_output=True, text=True)
    assert done.returncode == 3
    [line] = done.stderr.splitlines()
    assert line.startswith(f"{sys.executable} has no ") and "vllm_ascend.doctor" in line


@pytest.mark.parametrize("module", ["vllm_ascend.soc", "vllm_ascend.doctor"])
def test_a_closed_standard_output_is_no_result(module: str) -> None:
    arguments = "resolve cpu" if module.endswith("soc") else ""
    command = f"exec '{sys.executable}' -m {module} {arguments} >&-"
    done = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, text=True)
    assert done.returncode == (1 if arguments else 2)
    [line] = done.stderr.splitlines()
    assert line.endswith("cannot write the result: standard output is closed")


def test_a_directory_that_is_gone_is_no_result(tmp_path: Path) -> None:
    command = f"mkdir gone; cd gone; rmdir ../gone; exec '{sys.executable}' -m"
    done = subprocess.run(
        ["sh", "-c", f"{command} vllm_ascend.batch_invariant check --model x"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.splitlines()[-1] == "the current directory is gone: change into another"
