# SPDX-License-Identifier: Apache-2.0
"""From an empty store, `soc=cpu`: built, installed, loaded as a module, tried, and reinstalled.

Each test goes on where the one before it ended.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.spack.sites import STAGES, Site, bare, module_command, run_in

pytestmark = pytest.mark.slow

QUICK_CHECK = """
import batch_invariant_ops
import torch
op = torch.ops.batch_invariant_ops.npu_matmul_batch_invariant
print(op)
assert 'npu_matmul_batch_invariant' in str(op)
a, b = torch.randn(5, 7), torch.randn(7, 3)
assert torch.equal(op(a, b)[2:3], op(a[2:3], b))
print(batch_invariant_ops.library().path)
"""

GENERATION = """
import pathlib, sys
from vllm_ascend.batch_invariant.tiny_models import make_model
from vllm import LLM, SamplingParams

path = pathlib.Path(sys.argv[1])
make_model("qwen3", path)
llm = LLM(model=str(path), enable_prefix_caching=False, enable_chunked_prefill=False,
          block_size=128, max_model_len=256, max_num_seqs=8)
sampling = SamplingParams(temperature=0.7, max_tokens=8, seed=42)
prompts = ["The future of AI is", "Machine learning enables", "Deep learning models can"]
together = [one.outputs[0].token_ids for one in llm.generate(prompts, sampling)]
alone = [llm.generate([one], sampling)[0].outputs[0].token_ids for one in prompts]
assert together == alone, (together, alone)
print("same tokens")
"""


def test_the_stages_are_installed_in_their_prefixes(cpu_site: Site) -> None:
    stage = cpu_site.prefix("cpu", STAGES[0])
    library = stage / "share/ascend/opp/vendors/batch_invariant/op_api/lib/libcust_opapi.so"
    assert library.is_file()
    found = subprocess.run(["readelf", "-d", library], check=True, capture_output=True, text=True)
    # Spack's wrapper adds the compiler's runtime; nothing else, and no path of the build, is there.
    searched = re.findall(r"\(R(?:UN)?PATH\).*\[(.*)\]", found.stdout)
    for path in ":".join(searched).split(":"):
        assert not path or Path(path).parent.name.startswith("gcc-runtime-"), path
    assert list(cpu_site.prefix("cpu", STAGES[1]).rglob("batch_invariant_ops/__init__.py"))
    assert list(cpu_site.prefix("cpu", STAGES[2]).rglob("vllm_ascend/soc.toml"))


def test_the_view_has_the_stages(cpu_site: Site) -> None:
    view = cpu_site.environment("cpu") / "view"
    vendor = view / "share/ascend/opp/vendors/batch_invariant"
    assert (vendor / "op_api/lib/libcust_opapi.so").is_file()
    packages = next(view.glob("lib/python3.*/site-packages"))
    for name in ("batch_invariant_ops", "vllm_ascend"):
        assert (packages / name / "__init__.py").is_file()


@pytest.mark.parametrize("kind", ["lmod", "tcl"])
def test_a_module_brings_the_chain_and_the_quick_check_passes(cpu_site: Site, kind: str) -> None:
    environ = bare(cpu_site.modules(kind))
    script = (
        f"{module_command(kind, 'bash')}\n"
        "module load vllm-ascend/0.32.0-cpu || exit 3\n"
        f"python3 -c {shlex.quote(QUICK_CHECK)} && python3 -m vllm_ascend.soc resolve cpu\n"
    )
    run = run_in("bash", script, environ)
    assert run.returncode == 0, run.stdout + run.stderr
    assert str(cpu_site.prefix("cpu", STAGES[0])) in run.stdout
    assert run.stdout.splitlines()[-1] == "cpu"


@pytest.mark.vllm
def test_offline_generation(cpu_site: Site, tmp_path: Path) -> None:
    """vLLM from the loaded module, in the mode: a prompt alone and among others, same tokens."""
    model = tmp_path / "model"
    script = (
        f"{module_command('lmod', 'bash')}\n"
        "module load vllm-ascend/0.32.0-cpu || exit 3\n"
        f"python3 -c {shlex.quote(GENERATION)} {shlex.quote(str(model))}\n"
    )
    environ = bare(cpu_site.modules("lmod")) | {
        "VLLM_BATCH_INVARIANT": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
    }
    run = run_in("bash", script, environ)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "same tokens" in run.stdout


def test_reinstall_from_the_build_cache_rebuilds_nothing(cpu_site: Site, tmp_path: Path) -> None:
    """From the lock file: the same hashes; a damaged archive of the cache is refused first."""
    cache = tmp_path / "cache"
    lock = cpu_site.hashes("cpu")
    stages = [f"/{lock[stage]}" for stage in STAGES]
    cpu_site.run(
        "cpu", "buildcache", "push", "--unsigned", "--only", "package", cache.as_uri(), *STAGES
    )
    cpu_site.spack("uninstall", "--yes-to-all", "--dependents", *stages)
    cpu_site.spack("mirror", "add", "--unsigned", "cache", cache.as_uri())
    # Else Spack would build what it cannot take from the cache.
    install = ("install", "--use-buildcache", "only")
    archives = {path: path.read_bytes() for path in (cache / "blobs").rglob("*") if path.is_file()}
    try:
        for path, content in archives.items():
            path.write_bytes(content[:-1])
        cpu_site.run("cpu", *install, fails=True)
        for path, content in archives.items():
            path.write_bytes(content)
        said = cpu_site.run("cpu", *install)
    finally:
        cpu_site.spack("mirror", "remove", "cache")
    assert "Executing phase" not in said
    for stage in STAGES:
        assert lock[stage] in cpu_site.spack("find", "--format", "{hash}", f"/{lock[stage]}")
