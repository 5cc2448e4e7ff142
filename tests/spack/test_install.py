# SPDX-License-Identifier: Apache-2.0
"""From an empty store: built, installed, loaded as a module, tried, and put into a build cache.

Each test goes on where the one before it ended; the store is the module's.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.spack.conftest import Spack
from vllm_ascend import soc

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent.parent
CPU = "vllm-ascend soc=cpu"

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

LMOD = Path("/usr/share/lmod/lmod")


def environment_modules() -> Path:
    """modulecmd.tcl of environment-modules, or the test is skipped.

    Debian does not install it beside Lmod, so MODULECMD_TCL may name an unpacked one.
    """
    given = os.environ.get("MODULECMD_TCL")
    candidates = [Path(given)] if given else []
    candidates += sorted(Path("/usr/lib").glob("*/modulecmd.tcl"))
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    pytest.skip("no environment-modules")


def modules(spack: Spack, kind: str) -> Path:
    """The directory that has our module files of this kind."""
    return next(path.parent for path in (spack.scope / f"modules-{kind}").rglob("vllm-ascend"))


def module_command(kind: str, shell: str) -> str:
    """What defines `module` in a shell."""
    if kind == "tcl":
        command = shlex.join(["tclsh", str(environment_modules()), shell])
        return f'module() {{ eval "$({command} "$@")"; }}'
    if not LMOD.exists():
        pytest.skip("no Lmod")
    return f'module() {{ eval "$({LMOD / "libexec/lmod"} {shell} "$@")"; }}'


def run_in(shell: str, script: str, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    executable = shutil.which(shell)
    if executable is None:
        pytest.skip(f"no {shell}")
    return subprocess.run([executable, "-c", script], env=environ, capture_output=True, text=True)


def bare(kind_modules: Path) -> dict[str, str]:
    return {
        "HOME": os.environ.get("HOME", "/"),
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "MODULEPATH": str(kind_modules),
        "MODULEPATH_ROOT": str(kind_modules),
    }


@pytest.fixture(scope="module")
def installed(spack: Spack) -> Spack:
    """The CPU's three stages, installed into an empty store."""
    roots = {kind: str(spack.scope / f"modules-{kind}") for kind in ("lmod", "tcl")}
    path = spack.scope / "modules.yaml"
    line = "    enable: [lmod, tcl]\n"
    assert line in path.read_text()
    path.write_text(path.read_text().replace(line, f"{line}    roots: {json.dumps(roots)}\n"))
    spack("install", "--fail-fast", CPU)
    return spack


def test_the_stages_are_installed_in_their_prefixes(installed: Spack) -> None:
    said = installed("find", "--format", "{name} {prefix}", "soc=cpu")
    prefixes = dict(line.split(" ", 1) for line in said.splitlines() if " /" in line)
    stage = Path(prefixes["ascendc-batch-invariant-ops"])
    library = stage / "share/ascend/opp/vendors/batch_invariant/op_api/lib/libcust_opapi.so"
    assert library.is_file()
    found = subprocess.run(["readelf", "-d", library], check=True, capture_output=True, text=True)
    # Spack's wrapper adds the compiler's runtime; nothing else, and no path of the build, is there.
    searched = re.findall(r"\(R(?:UN)?PATH\).*\[(.*)\]", found.stdout)
    for path in ":".join(searched).split(":"):
        assert not path or Path(path).parent.name.startswith("gcc-runtime-"), path
    assert list(Path(prefixes["py-batch-invariant-ops"]).rglob("batch_invariant_ops/__init__.py"))
    assert list(Path(prefixes["vllm-ascend"]).rglob("vllm_ascend/soc.toml"))


@pytest.mark.parametrize("kind", ["lmod", "tcl"])
def test_a_module_brings_the_chain_and_the_quick_check_passes(installed: Spack, kind: str) -> None:
    environ = bare(modules(installed, kind))
    script = (
        f"{module_command(kind, 'bash')}\n"
        "module load vllm-ascend/0.32.0-cpu || exit 3\n"
        f"python3 -c {shlex.quote(QUICK_CHECK)} && python3 -m vllm_ascend.soc resolve cpu\n"
    )
    run = run_in("bash", script, environ)
    assert run.returncode == 0, run.stdout + run.stderr
    assert str(installed.scope / "store") in run.stdout
    assert run.stdout.splitlines()[-1] == "cpu"


@pytest.mark.parametrize("shell", ["bash", "zsh", "dash"])
@pytest.mark.parametrize("kind", ["lmod", "tcl"])
def test_unload_restores_the_environment(installed: Spack, kind: str, shell: str) -> None:
    environ = bare(modules(installed, kind)) | {"PYTHONPATH": "/a b:/ü", "ASCEND_OTHER": "kept"}
    show = f"{sys.executable} -c 'import os; print(sorted(os.environb.items()))'"
    dialect = "zsh" if shell == "zsh" else "bash" if shell == "bash" else "sh"
    script = (
        f"{module_command(kind, dialect)}\n"
        # What the module system keeps for itself is there after any command of it.
        f"module list >/dev/null 2>&1\n{show}\n"
        f"module load vllm-ascend/0.32.0-cpu\n{show}\n"
        # The last line keeps the shell from becoming the command before it, with another SHLVL.
        f"module unload vllm-ascend/0.32.0-cpu\n{show}\n:\n"
    )
    run = run_in(shell, script, environ)
    before, loaded, after = run.stdout.splitlines()
    assert b"ASCEND_CUSTOM_OPP_PATH" in loaded.encode(), run.stderr
    assert "VLLM_BATCH_INVARIANT" not in loaded
    assert without_bookkeeping(after) == without_bookkeeping(before)


def without_bookkeeping(shown: str) -> list[tuple[bytes, bytes]]:
    """The variables but those in which a module system notes what is loaded."""
    items: list[tuple[bytes, bytes]] = eval(shown)
    own = (b"_ModuleTable", b"LMOD_", b"_LMFILES_", b"LOADEDMODULES", b"__LMOD", b"__MODULES")
    return [(name, value) for name, value in items if not name.startswith(own) and name != b"_"]


@pytest.mark.vllm
def test_offline_generation(installed: Spack, tmp_path: Path) -> None:
    """vLLM from the loaded module, in the mode: a prompt alone and among others, same tokens."""
    model = tmp_path / "model"
    script = (
        f"{module_command('lmod', 'bash')}\n"
        "module load vllm-ascend/0.32.0-cpu || exit 3\n"
        f"python3 -c {shlex.quote(GENERATION)} {shlex.quote(str(model))}\n"
    )
    environ = bare(modules(installed, "lmod")) | {
        "VLLM_BATCH_INVARIANT": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
    }
    run = run_in("bash", script, environ)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "same tokens" in run.stdout


def test_reinstall_from_the_build_cache_rebuilds_nothing(installed: Spack, tmp_path: Path) -> None:
    before = set(installed("find", "--format", "{name} {hash}", "soc=cpu").splitlines())
    cache = (tmp_path / "cache").as_uri()
    installed("mirror", "add", "--unsigned", "cache", cache)
    installed("buildcache", "push", "--unsigned", "--only", "package", "cache", *hashes(before))
    installed("uninstall", "--yes-to-all", "--dependents", *hashes(before))
    said = installed("install", "--use-buildcache", "package:only,dependencies:auto", CPU)
    assert "Executing phase" not in said
    assert set(installed("find", "--format", "{name} {hash}", "soc=cpu").splitlines()) == before


def hashes(lines: set[str]) -> list[str]:
    names = {"vllm-ascend", "py-batch-invariant-ops", "ascendc-batch-invariant-ops"}
    pairs = [line.split() for line in lines if line.split()[:1] and line.split()[0] in names]
    return [f"/{digest}" for _, digest in pairs]


def test_official_operators_install_from_the_sites_file(spack: Spack, tmp_path: Path) -> None:
    """Stage 1 of an NPU, with a run package that a test made in the place of Huawei's."""
    from csrc.run_package import build as run_package

    row = next(row for row in soc.rows() if row.is_npu)
    stage = tmp_path / "stage"
    (stage / "op_api/lib").mkdir(parents=True)
    (stage / "op_api/include").mkdir()
    shutil.copy(ROOT / "csrc/op_api/include/batch_invariant.h", stage / "op_api/include")
    library = stage / "op_api/lib/libcust_opapi.so"
    command = ["cc", "-shared", "-nostdlib", "-x", "c", "/dev/null", "-o", str(library)]
    subprocess.run(command, check=True)
    built = run_package.build(stage, row, tmp_path, version="0.1.0")
    request = f"ascendc-batch-invariant-ops target={row.targets[0]}"
    own = spack.with_scope(tmp_path / "scope")

    def give(sha256: str) -> None:
        packages = yaml.safe_load((spack.scope / "packages.yaml").read_text())
        packages["packages"]["ascendc-batch-invariant-ops"] = {
            "package_attributes": {"official_file": str(built.path), "official_sha256": sha256}
        }
        (own.scope / "packages.yaml").write_text(yaml.safe_dump(packages))

    refused = own("install", request, fails=True)
    assert "no sha256 of Huawei's artifact is known for ascendc-batch-invariant-ops" in refused
    give("0" * 64)
    refused = own("install", request, fails=True)
    assert f"expected sha256 {'0' * 64}, found {built.sha256}" in refused
    give(built.sha256)
    own("install", request)
    prefix = Path(own("location", "-i", request).splitlines()[-1])
    assert f"linux-{row.targets[0]}" in prefix.parts
    assert next(prefix.rglob("libcust_opapi.so")).read_bytes() == library.read_bytes()
