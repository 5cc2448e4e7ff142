# SPDX-License-Identifier: Apache-2.0
"""The literal command's three stages installed, as far as a stub CANN allows.

The official operators are artifacts made by the tests: they install as the real ones do, and hold
no operator. torch-npu is the real wheel and vLLM is built from its source archive.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.spack.sites import STAGES, Site, bare, module_command, run_in
from vllm_ascend import soc

pytestmark = pytest.mark.slow

NPU = next(row for row in soc.rows() if row.is_npu)

# torch_npu is not imported: it needs more of CANN than a stub has.
LOOK = """
import importlib.metadata, os
import batch_invariant_ops, vllm, vllm_ascend
print(vllm.__file__)
print(importlib.metadata.version("vllm"))
print(importlib.metadata.version("torch-npu"))
print(os.environ["ASCEND_CUSTOM_OPP_PATH"])
print(os.environ["ASCEND_HOME_PATH"])
"""


def test_the_three_stages_are_installed_for_the_soc(npu_site: Site) -> None:
    for stage in STAGES:
        assert f"linux-{NPU.targets[0]}" in npu_site.prefix(NPU.name, stage).parts
    for package in ("py-torch-npu", "py-vllm"):
        assert f"linux-{NPU.targets[0]}" not in npu_site.prefix(NPU.name, package).parts
    assert next(npu_site.prefix(NPU.name, STAGES[0]).rglob("libcust_opapi.so"))


@pytest.mark.parametrize("kind", ["lmod", "tcl"])
def test_its_module_brings_cann_and_the_chain(npu_site: Site, kind: str) -> None:
    script = (
        f"{module_command(kind, 'bash')}\n"
        f"module load vllm-ascend/0.32.0-{NPU.targets[0]} || exit 3\n"
        f"TORCH_DEVICE_BACKEND_AUTOLOAD=0 python3 -c {shlex.quote(LOOK)}\n"
    )
    run = run_in("bash", script, bare(npu_site.modules(kind)))
    assert run.returncode == 0, run.stdout + run.stderr
    vllm, version, torch_npu, opp, cann = run.stdout.splitlines()[-5:]
    assert Path(vllm).is_relative_to(npu_site.prefix(NPU.name, "py-vllm"))
    assert version == "0.32.0+empty"
    assert torch_npu == "2.13.0"
    assert Path(opp).is_relative_to(npu_site.prefix(NPU.name, STAGES[0]))
    assert Path(cann, "set_env.sh").is_file()


@pytest.mark.parametrize("kind", ["lmod", "tcl"])
def test_two_socs_together_are_refused(cpu_site: Site, npu_site: Site, kind: str) -> None:
    """The second is refused by its name and what to unload, and what is loaded stays as it is."""
    first, second = "vllm-ascend/0.32.0-cpu", f"vllm-ascend/0.32.0-{NPU.targets[0]}"
    for loaded, refused in ((first, second), (second, first)):
        script = (
            f"{module_command(kind, 'bash')}\n"
            f"module load {loaded} || exit 3\n"
            "before=$(env | sort)\n"
            f"module load {refused} && exit 4\n"
            '[ "$before" = "$(env | sort)" ] || exit 5\n'
            f"module unload {loaded} && module load {refused} || exit 6\n"
        )
        run = run_in("bash", script, bare(npu_site.modules(kind)))
        assert run.returncode == 0, (run.returncode, run.stderr)
        # Lmod breaks the line where the terminal ends.
        said = " ".join(run.stderr.split())
        assert refused in said
        assert f"module unload {loaded if kind == 'lmod' else 'vllm-ascend'}" in said


@pytest.mark.parametrize("kind", ["lmod", "tcl"])
def test_a_cann_of_the_users_shell_gives_way_and_comes_back(npu_site: Site, kind: str) -> None:
    show = 'echo "$ASCEND_HOME_PATH $ASCEND_OPP_PATH $ASCEND_TOOLKIT_HOME"'
    script = (
        f"{module_command(kind, 'bash')}\n"
        f"module load vllm-ascend/0.32.0-{NPU.targets[0]} || exit 3\n{show}\n"
        f"module unload vllm-ascend\n{show}\n"
    )
    users = {"ASCEND_HOME_PATH": "/old", "ASCEND_OPP_PATH": "/old/opp"}
    users["ASCEND_TOOLKIT_HOME"] = "/old/toolkit"
    run = run_in("bash", script, bare(npu_site.modules(kind)) | users)
    loaded, after = run.stdout.splitlines()
    home, operators, toolkit = loaded.split()
    assert Path(home, "set_env.sh").is_file(), run.stderr
    assert (operators, toolkit) == (f"{home}/opp", home)
    assert after.split() == list(users.values())


@pytest.mark.parametrize("which", ["cpu", NPU.targets[0]])
@pytest.mark.parametrize("shell", ["bash", "zsh", "dash"])
@pytest.mark.parametrize("kind", ["lmod", "tcl"])
def test_unload_restores_the_environment(
    cpu_site: Site, npu_site: Site, kind: str, shell: str, which: str
) -> None:
    environ = bare(npu_site.modules(kind)) | {"PYTHONPATH": "/a b:/ü", "ASCEND_OTHER": "kept"}
    show = "/usr/bin/python3 -SEc 'import os; print(sorted(os.environb.items()))'"
    dialect = "zsh" if shell == "zsh" else "bash" if shell == "bash" else "sh"
    script = (
        f"{module_command(kind, dialect)}\n"
        # What the module system keeps for itself is there after any command of it.
        f"module list >/dev/null 2>&1\n{show}\n"
        f"module load vllm-ascend/0.32.0-{which}\n{show}\n"
        # The last line keeps the shell from becoming the command before it, with another SHLVL.
        f"module unload vllm-ascend/0.32.0-{which}\n{show}\n:\n"
    )
    run = run_in(shell, script, environ)
    before, loaded, after = run.stdout.splitlines()
    assert "ASCEND_CUSTOM_OPP_PATH" in loaded, run.stderr
    assert ("ASCEND_HOME_PATH" in loaded) == (which != "cpu")
    assert "VLLM_BATCH_INVARIANT" not in loaded
    assert without_bookkeeping(after) == without_bookkeeping(before)


def without_bookkeeping(shown: str) -> list[tuple[bytes, bytes]]:
    """The variables but those in which a module system notes what is loaded."""
    items: list[tuple[bytes, bytes]] = eval(shown)
    own = (b"_ModuleTable", b"LMOD_", b"_LMFILES_", b"LOADEDMODULES", b"__LMOD", b"__MODULES")
    return [(name, value) for name, value in items if not name.startswith(own) and name != b"_"]
