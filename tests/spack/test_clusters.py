# SPDX-License-Identifier: Apache-2.0
"""docs/clusters.md, command by command, and each message in its table as a real Spack prints it."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import guide
from tests.spack.real_spack import REPOSITORY, ROOT, Spack
from tests.spack.sites import (
    STAGES,
    bare,
    extension_archive,
    module_command,
    run_in,
)
from tests.stub_cann.make import make_stub_cann
from vllm_ascend import soc

DOCUMENT = "clusters.md"
NPU = soc.resolve("ascend910b")
FULL = "vllm-ascend+batch_invariant"
STAGE = STAGES[0]  # which is solved sooner than all three
OTHER = "x86_64" if platform.machine() == "aarch64" else "aarch64"

# What is asked of Spack for each message of the first table, and which CANN, or what
# else, the machine has.
ASKED: dict[str, tuple[str, str]] = {
    "name the SoC: soc=ascend910b or target=910b (Atlas A2)": (FULL, "9.1.0"),
    "cannot satisfy constraint 'target=910B'": (f"{STAGE} target=910B", "9.1.0"),
    "invalid values for variant 'soc' in package vllm-ascend: '910b'": (
        f"{FULL} soc=910b",
        "9.1.0",
    ),
    "target=910b is Atlas A2: leave soc out or say soc=ascend910b": (
        f"{STAGE} target=910b soc=ascend950",
        "9.1.0",
    ),
    "the operators of ascend910b are not built from source yet: say provider=official": (
        f"{STAGE} soc=ascend910b provider=source",
        "9.1.0",
    ),
    "ascend950 needs CANN 9.1.0 or newer": (f"{STAGE} target=950", "8.5.0"),
    "Cannot build cann": (f"{STAGE} target=910b", ""),
    "it is made for torch 2.13": (f"{STAGES[1]} soc=cpu", "torch 2.14"),
    "cannot have the same external id python": (f"{STAGE} soc=cpu", "two prefixes"),
    "is not compatible with this machine": (f"{STAGE} soc=cpu target={OTHER}", "9.1.0"),
    "expected an x86_64 or aarch64 host": (f"{STAGE} soc=cpu", "ppc64le"),
}

# Said at installation: where a recipe says it.
IN_RECIPES = {
    "CANN is not installed by Spack": "packages/cann/package.py",
    "no sha256 of Huawei's artifact is known": "build_systems/official_artifact.py",
    "py-vllm device=cpu is taken from an existing prefix": "packages/py_vllm/package.py",
    "official_source is another SoC's or machine's": "build_systems/official_artifact.py",
}


def tables() -> list[list[str]]:
    """The messages of each table under the document's last heading."""
    text = (guide.DOCS / DOCUMENT).read_text()
    _, _, section = text.partition("\n## When concretization says no\n")
    parts = re.split(r"^\| it says .*$", section, flags=re.MULTILINE)
    return [re.findall(r"^\| `([^`]+)` \|", part, re.MULTILINE) for part in parts[1:]]


def test_each_message_is_asked_for_or_stands_in_a_recipe() -> None:
    spack, _, installation = tables()
    assert spack == list(ASKED)
    assert installation == list(IN_RECIPES)
    for message, path in IN_RECIPES.items():
        assert message in (REPOSITORY / path).read_text()


# In the place of Huawei's run package: it lets its group read, and nobody else.
CLOSED_TO_OTHERS = """\
umask 027
for option in "$@"; do
  case $option in --install-path=*) top=${option#*=}/vendors/batch_invariant ;; esac
done
mkdir -p "$top/op_api/lib" && echo library >"$top/op_api/lib/libcust_opapi.so"
"""


class Shell:
    """A site's administrator: in a copy of the tree, with a Spack that knows nothing of it yet."""

    def __init__(self, spack: Spack, tree: Path, **variables: str) -> None:
        self.spack, self.tree, self.variables = spack, tree, variables

    def run(self, text: str, fails: bool = False, umask: int = 0o022) -> str:
        """Runs a block's text as it stands; its output, both streams."""
        commands = f'spack() {{ "{self.spack.executable}" "$@"; }}\n{text}'
        done = subprocess.run(
            ["bash", "-euc", commands],
            cwd=self.tree,
            env=self.spack.environ | self.variables,
            umask=umask,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert (done.returncode != 0) == fails, f"{text}\n{done.stdout[-6000:]}"
        return done.stdout


def copy_of_the_tree(folder: Path) -> Path:
    leave = shutil.ignore_patterns("build", "dist", "__pycache__", "*.egg-info", "*.so", ".*")
    shutil.copytree(ROOT, folder / "tree", ignore=leave)
    return folder / "tree"


def edit(scope: Path, section: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((scope / f"{section}.yaml").read_text())[section]
    return content


def write(scope: Path, section: str, content: dict[str, Any]) -> None:
    (scope / f"{section}.yaml").write_text(yaml.safe_dump({section: content}))


@pytest.fixture(scope="module")
def shell(spack: Spack, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A Spack with compilers, a mirror and a store of its own, and no more."""
    top = tmp_path_factory.mktemp("cluster")
    own = spack.with_scope(top / "scope")
    kept = {"gcc", "c", "cxx", "fortran"}
    packages = edit(own.scope, "packages")
    write(own.scope, "packages", {key: packages[key] for key in packages.keys() & kept})
    repositories = edit(own.scope, "repos")
    del repositories["ascend"]
    write(own.scope, "repos", repositories)
    config = edit(own.scope, "config")
    del config["template_dirs"]
    config["install_tree"]["root"] = str(top / "store")
    write(own.scope, "config", config)
    # Module files of these tests, not among those of the user's Spack.
    roots = {kind: str(top / kind) for kind in ("lmod", "tcl")}
    write(own.scope, "modules", {"default": {"roots": roots}})
    cann = make_stub_cann(top / "Ascend")
    archive = extension_archive(top)
    package = top / "cann-ops-batch_invariant.run"
    package.write_text(CLOSED_TO_OTHERS)
    shell = Shell(
        own,
        copy_of_the_tree(top),
        PREFIX=str(spack.scope.parent / "prefix"),
        PATH=f"{cann}/bin:{Path(sys.executable).parent}:{own.environ['PATH']}",
        PYTHON=sys.executable,
        RUN_PACKAGE=str(package),
        SHA256=hashlib.sha256(package.read_bytes()).hexdigest(),
        CACHE=str(top / "cache"),
        SOC="cpu",
    )
    # The extension comes from the network, but here.
    attributes = "packages:py-batch-invariant-ops:package_attributes"
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    shell.run(f"spack config add '{attributes}:official_source:{archive}'")
    shell.run(f"spack config add '{attributes}:official_sha256:{digest}'")
    shell.run(guide.block("id=site-configuration", DOCUMENT))
    shell.run(guide.block("id=site-operators", DOCUMENT))
    return shell


@pytest.fixture(scope="module")
def installed(shell: Shell) -> Shell:
    """With the literal command's packages, under a umask that would shut everybody out."""
    shell.run(guide.block("id=site-install", DOCUMENT), umask=0o077)
    return shell


def prefix_of(shell: Shell, request: str) -> Path:
    return Path(shell.run(f"spack location -i {request}").splitlines()[-1])


@pytest.mark.slow
def test_what_is_installed_others_can_read_and_not_write(installed: Shell) -> None:
    for stage in STAGES:
        prefix = prefix_of(installed, f"{stage} target={NPU.targets[0]}")
        assert f"linux-{NPU.targets[0]}" in prefix.parts
        for path in (prefix, *prefix.rglob("*")):
            if not path.is_symlink() and ".spack" not in path.parts:
                mode = path.stat().st_mode
                assert mode & stat.S_IROTH and not mode & stat.S_IWOTH, f"{path}: {mode:o}"
                assert not path.is_dir() or mode & stat.S_IXOTH, f"{path}: {mode:o}"


@pytest.mark.slow
def test_its_module_is_loaded_and_a_second_soc_is_not(installed: Shell) -> None:
    installed.run("spack install vllm-ascend+batch_invariant soc=cpu")
    lmod = installed.spack.scope.parent / "lmod"
    name = f"vllm-ascend/0.32.0-{NPU.targets[0]}.lua"
    (module,) = lmod.rglob(name)
    # Unlike a package, the folders of the module files heed the umask.
    assert not module.parent.stat().st_mode & stat.S_IXOTH
    shutil.rmtree(lmod)
    installed.run(guide.block("id=site-modules", DOCUMENT))
    (module,) = lmod.rglob(name)
    prepared = f"{module_command('lmod', 'bash')}\n"
    environ = bare(module.parents[1])
    load = guide.block("id=site-load", DOCUMENT)
    done = run_in("bash", f"{prepared}set -e\n{load}", environ)
    assert done.stdout.splitlines()[-1:] == [NPU.name], done.stdout + done.stderr
    both = f"{prepared}module load vllm-ascend/0.32.0-cpu || exit 3\n{load.splitlines()[0]}\n"
    said = " ".join(run_in("bash", both, environ).stderr.split())
    assert guide.block("log=two-socs", DOCUMENT).strip() in said


@pytest.mark.slow
def test_an_environment_names_the_run_package_of_its_soc(shell: Shell) -> None:
    environment = f"recipes/spack/site/{NPU.name}"
    with (shell.tree / environment / "spack.yaml").open("a") as file:
        file.write(guide.block("id=site-soc", DOCUMENT))
    said = yaml.safe_load(shell.run(f"spack -e {environment} config get packages"))
    wanted = f"cann-ops-batch_invariant-{NPU.label}-"
    found = said["packages"][STAGE]["package_attributes"]["official_source"]
    assert Path(found).name.startswith(wanted)


@pytest.mark.slow
def test_the_lock_file_and_the_cache_bring_the_same_back(installed: Shell) -> None:
    installed.run(guide.block("id=site-lock", DOCUMENT))
    environment = "spack -e recipes/spack/site/cpu"
    find = f"{environment} find --format '{{hash}}' {' '.join(STAGES)}"
    before = installed.run(find)
    assert len(before.split()) >= len(STAGES)
    remove = "uninstall --all --yes-to-all --dependents"
    installed.run(f"spack {remove} {STAGE} soc=cpu")
    installed.run(f"{find}", fails=True)
    said = installed.run(guide.block("id=site-cache", DOCUMENT))
    installed.run("spack mirror remove site-cache")
    assert "Executing phase" not in said
    assert installed.run(find) == before


@pytest.mark.slow
def test_the_prefix_is_made_outside_and_inside(tmp_path: Path) -> None:
    """With the network, for the download; then without one."""
    tree = copy_of_the_tree(tmp_path)
    spack = Spack(
        Path("/nonexistent"), {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}, tree
    )
    given = {"PREFIX": str(tmp_path / "prefix"), "WHEELS": str(tmp_path / "wheels")}
    outside = Shell(spack, tree, **dict(os.environ), **given)
    outside.run(guide.block("id=gap-download", DOCUMENT))
    offline = "HTTPS_PROXY=http://127.0.0.1:9 HTTP_PROXY=http://127.0.0.1:9"
    inside = guide.block("id=gap-inside", DOCUMENT)
    prefix = guide.block("id=site-prefix", DOCUMENT)
    outside.run(f"export {offline}\n{inside}{prefix}", umask=0o077)
    for path in (tmp_path / "prefix/lib").rglob("*"):
        assert path.is_symlink() or path.stat().st_mode & stat.S_IROTH, path
    shutil.rmtree(tmp_path / "prefix")
    shutil.rmtree(tmp_path / "wheels")


@pytest.mark.slow
@pytest.mark.parametrize("machine", ["9.1.0", "8.5.0", "", "torch 2.14", "two prefixes", "ppc64le"])
def test_the_messages_of_the_table(spack: Spack, tmp_path: Path, machine: str) -> None:
    asked = {message: request for message, (request, where) in ASKED.items() if where == machine}
    own = spack.with_scope(tmp_path / "scope")
    packages = edit(own.scope, "packages")
    if machine == "torch 2.14":
        packages["py-torch"]["externals"][0]["spec"] = "py-torch@2.14.0~cuda~rocm"
    elif machine == "two prefixes":
        (python,) = packages["python"]["externals"]
        packages["python"]["externals"].append({**python, "spec": "python@3.11.99"})
    elif machine in ("8.5.0", ""):
        stub = {"spec": "cann@8.5.0", "prefix": str(make_stub_cann(tmp_path, libraries=False))}
        packages["cann"]["externals"] = [stub] if machine else []
    write(own.scope, "packages", packages)
    answers = own.concretize(*asked.values(), host=machine if machine == "ppc64le" else "")
    for message, request in asked.items():
        assert message in answers[request]["refused"]
