# SPDX-License-Identifier: Apache-2.0
"""The cpu image, built by buildah without a registry, and run."""

from __future__ import annotations

import functools
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vllm_ascend.batch_invariant.tiny_models import make_model

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
REVISION = "0123456789abcdef0123456789abcdef01234567"
SWITCHES = ("VLLM_BATCH_INVARIANT", "COMPILE_CUSTOM_KERNELS")

QUICK_CHECK = """
import batch_invariant_ops
import torch
op = torch.ops.batch_invariant_ops.npu_matmul_batch_invariant
print(op)
"""

# Each prompt alone, then all at once.
GENERATE = """
import os
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
from vllm import LLM, SamplingParams
llm = LLM(model="/model", enable_prefix_caching=False, enable_chunked_prefill=False, block_size=128,
          max_model_len=256, max_num_seqs=8, kv_cache_memory_bytes=2**27)
prompts = [f"The number {n} is" for n in range(6)]
sampling = SamplingParams(temperature=0, max_tokens=16, logprobs=1)
def result(outputs):
    return [(o.outputs[0].token_ids, o.outputs[0].cumulative_logprob) for o in outputs]
alone = [result(llm.generate([prompt], sampling))[0] for prompt in prompts]
print("SAME" if result(llm.generate(prompts, sampling)) == alone else "DIFFERENT")
"""


class Buildah:
    """A store of its own; no registry is asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *arguments: str | Path, **environment: str) -> str:
        places = ("--root", self.folder / "store", "--runroot", self.folder / "run")
        done = subprocess.run(
            ["buildah", *places, *arguments],
            cwd=ROOT,
            env=os.environ | {"BUILDAH_ISOLATION": "chroot"} | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{arguments[0]}: {(done.stdout + done.stderr)[-6000:]}")
        return done.stdout.strip()


@pytest.fixture(scope="module")
def buildah(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Buildah]:
    for tool in ("buildah", "debootstrap"):
        if shutil.which(tool) is None:
            pytest.skip(f"skipped: no {tool}; Debian: apt install buildah debootstrap")
    if os.geteuid() != 0:
        pytest.skip("skipped: debootstrap, which makes the base, is for root")
    folder = tmp_path_factory.mktemp("buildah")
    yield Buildah(folder)
    # Its mounts go first, else their content would be removed one by one.
    subprocess.run(["umount", "--quiet", "--recursive", folder / "store/overlay"], check=False)
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def base(buildah: Buildah) -> str:
    """Debian 12, by digest, made from its archive."""
    debian = buildah.folder / "base/debian"
    debian.parent.mkdir()
    command = ["debootstrap", "--variant=minbase", "bookworm", str(debian)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
    containerfile = debian.parent / "Containerfile"
    containerfile.write_text('FROM scratch\nCOPY debian /\nCMD ["bash"]\n')
    buildah("build", "--tag", "localhost/debian", "--file", containerfile, debian.parent)
    shutil.rmtree(debian.parent)
    return f"localhost/debian@{buildah('images', '--format', '{{.Digest}}', 'localhost/debian')}"


@pytest.fixture(scope="module")
def pip_configuration(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A pip.conf that leads to the locked wheels, which this machine's own pip has downloaded."""
    folder = tmp_path_factory.mktemp("wheels")
    locks = [f"--requirement={ROOT / 'locks' / name}.txt" for name in ("build", "runtime-cpu")]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    subprocess.run([*command, *locks, "--dest", folder], check=True, stdout=subprocess.DEVNULL)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    handler.log_message = lambda *_: None  # type: ignore[attr-defined]
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        path = folder / "pip.conf"
        path.write_text(
            f"[global]\nno-index = true\nfind-links = http://127.0.0.1:{server.server_port}/\n"
        )
        yield path
        server.shutdown()
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources as they are now, for both builds."""
    copy: Path = tmp_path_factory.mktemp("tree") / "tree"
    leave = shutil.ignore_patterns("build", "dist", "__pycache__", "*.egg-info", "*.so", ".*")
    shutil.copytree(ROOT, copy, ignore=leave)
    return copy


def build(buildah: Buildah, tree: Path, base: str, pip_configuration: Path, tag: str) -> str:
    """The built image's id. The builder's own environment has the switch on."""
    return buildah(
        *("build", "--quiet", "--layers=false", "--pull-never", "--timestamp", "315532800"),
        *("--build-arg", f"BASE={base}", "--build-arg", f"REVISION={REVISION}"),
        *("--secret", f"id=pip.conf,src={pip_configuration}", "--tag", f"localhost/{tag}"),
        *("--file", tree / "recipes/images/cpu-debian/Containerfile", tree),
        **dict.fromkeys(SWITCHES, "1"),
    ).splitlines()[-1]


@pytest.fixture(scope="module")
def image(buildah: Buildah, tree: Path, base: str, pip_configuration: Path) -> str:
    return build(buildah, tree, base, pip_configuration, "one")


@pytest.fixture(scope="module")
def container(buildah: Buildah, image: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A container with a tiny model in /model, which its user can only read."""
    model: Path = tmp_path_factory.mktemp("model") / "qwen3"
    make_model("qwen3", model)
    model.parent.chmod(0o755)
    return buildah("from", "--pull-never", "--volume", f"{model}:/model:ro", image)


@pytest.fixture(scope="module")
def configuration(buildah: Buildah, image: str) -> dict[str, Any]:
    inspected: dict[str, Any] = json.loads(buildah("inspect", "--type", "image", image))
    configuration: dict[str, Any] = inspected["OCIv1"]["config"]
    return configuration


def test_a_base_by_its_tag_is_refused(buildah: Buildah, tree: Path, base: str) -> None:
    with pytest.raises(RuntimeError, match="BASE is 'localhost/debian': name the image by its"):
        build(buildah, tree, base.partition("@")[0], tree / "soc.toml", "refused")


def test_the_image_says_what_it_is(configuration: dict[str, Any]) -> None:
    labels = {
        name.removeprefix("org.opencontainers.image."): value
        for name, value in configuration["Labels"].items()
    }
    assert labels["revision"] == REVISION
    assert labels["licenses"] == "Apache-2.0"
    assert (configuration["Entrypoint"], configuration["User"]) == (["vllm"], "10001")


def test_no_switch_is_left_on(
    buildah: Buildah, container: str, configuration: dict[str, Any]
) -> None:
    environment = dict(entry.split("=", 1) for entry in configuration["Env"])
    assert set(environment) == {"PATH"}
    run = dict(line.split("=", 1) for line in buildah("run", container, "--", "env").splitlines())
    assert not set(SWITCHES) & set(run)
    assert not [name for name in run if name.startswith(("PIP_", "VLLM_", "ASCEND_"))]


def test_the_image_has_neither_a_compiler_nor_the_sources_nor_pips_configuration(
    buildah: Buildah, container: str
) -> None:
    said = buildah(
        *("run", container, "--", "sh", "-c"),
        "for each in gcc g++ c++ cc cmake; do command -v $each; done;"
        " ls -d /src /etc/pip.conf /wheels /downloads 2>/dev/null; id -u; pwd",
    )
    assert said.split() == ["10001", "/home/vllm"]


def test_the_quick_check_passes_in_it(buildah: Buildah, container: str) -> None:
    said = buildah("run", container, "--", "python", "-c", QUICK_CHECK)
    assert said == "batch_invariant_ops.npu_matmul_batch_invariant"


def test_its_command_answers(buildah: Buildah, container: str) -> None:
    assert "0.32.0" in buildah("run", container, "--", "vllm", "--version")


def test_generation_in_the_mode_does_not_depend_on_the_batch(
    buildah: Buildah, container: str
) -> None:
    switch = ("--env", "VLLM_BATCH_INVARIANT=1")
    said = buildah("run", *switch, container, "--", "python", "-c", GENERATE)
    assert said.splitlines()[-1] == "SAME"


def test_the_same_sources_give_the_same_image(
    buildah: Buildah, tree: Path, base: str, pip_configuration: Path, image: str
) -> None:
    assert build(buildah, tree, base, pip_configuration, "two") == image
