# SPDX-License-Identifier: Apache-2.0
from spack.package import (
    EnvironmentModifications,
    conflicts,
    depends_on,
    license,
    maintainers,
    variant,
    version,
)
from spack_repo.ascend.build_systems.ascend import AscendPackage
from spack_repo.ascend.build_systems.source_tree import SourceTreePackage
from spack_repo.builtin.build_systems.python import PythonPackage


class VllmAscend(PythonPackage, AscendPackage, SourceTreePackage):
    """vLLM platform plugin for Ascend NPUs and the CPU reference, with a batch-invariant mode: the
    bits of a request's result depend on that request alone. Stage 3 of three."""

    homepage = "https://docs.vllm.ai/projects/ascend/"

    tree_sources = ("LICENSE", "README.md", "pyproject.toml", "setup.py", "soc.toml", "vllm_ascend")

    # The plugin itself: its submodules import vLLM, and on an NPU need one.
    import_modules = ["vllm_ascend", "vllm_ascend.soc"]

    maintainers("batch-invariant")

    license("Apache-2.0", checked_by="batch-invariant")

    # The version is that of the vLLM it is for.
    version("0.32.0")

    variant(
        "batch_invariant",
        default=True,
        description="Install the batch-invariant operators (stages 1 and 2) as well",
    )

    depends_on("python@3.11:", type=("build", "run"))
    depends_on("py-setuptools@78.1.1:80", type="build")
    depends_on("py-vllm@0.32.0", type=("build", "run"))
    depends_on("py-vllm device=cpu", type=("build", "run"), when="soc=cpu")
    for soc in AscendPackage.npu_socs:
        depends_on("py-vllm device=empty", type=("build", "run"), when=f"soc={soc}")
        depends_on("py-torch-npu@2.13.0", type=("build", "run"), when=f"soc={soc}")
    for soc in (*AscendPackage.npu_socs, "cpu"):
        depends_on(
            f"py-batch-invariant-ops soc={soc}",
            type=("build", "run"),
            when=f"+batch_invariant soc={soc}",
        )
    for target in AscendPackage.soc_targets:
        depends_on(
            f"py-batch-invariant-ops target={target}",
            type=("build", "run"),
            when=f"+batch_invariant target={target}",
        )
    del soc, target

    conflicts("soc=none", when="+batch_invariant", msg=AscendPackage.name_the_soc)

    def setup_build_environment(self, env: EnvironmentModifications) -> None:
        # The operators are packages of their own.
        env.unset("VLLM_BATCH_INVARIANT")
        env.unset("COMPILE_CUSTOM_KERNELS")
