# SPDX-License-Identifier: Apache-2.0
from spack.package import (
    EnvironmentModifications,
    InstallError,
    conflicts,
    depends_on,
    license,
    maintainers,
    run_before,
    variant,
    version,
)
from spack_repo.builtin.build_systems.python import PythonPackage


class PyVllm(PythonPackage):
    """Inference and serving engine for large language models. An out-of-tree platform brings the
    device, so it is built without one, or taken with the CPU's from an existing prefix."""

    homepage = "https://docs.vllm.ai/"
    pypi = "vllm/vllm-0.32.0.tar.gz"

    # Importing more of it starts a platform, which an NPU's host may lack.
    import_modules = ["vllm.version"]

    maintainers("batch-invariant")

    license("Apache-2.0", checked_by="batch-invariant")

    version("0.32.0", sha256="d2c957d5eee3d0985012151315ddc62cbe0cd368fc96a5fc3510438d9dddf2ad")

    variant(
        "device",
        default="empty",
        values=("empty", "cpu"),
        multi=False,
        description="Kernels inside: none, for an out-of-tree platform, or the CPU's",
    )

    depends_on("python@3.11:", type=("build", "run"))
    depends_on("py-setuptools@77.0.3:80", type="build")
    depends_on("py-setuptools-scm@8:", type="build")
    depends_on("py-setuptools-rust@1.9:", type="build")
    depends_on("py-packaging@24.2:", type="build")
    depends_on("py-jinja2", type="build")
    depends_on("py-torch@2.13:", type=("build", "run"))
    # spack-packages lacks a third of what vLLM requires: see recipes/spack/README.md.
    depends_on("py-vllm-requirements@0.32.0", type=("build", "run"))

    conflicts("^py-torch@2.14:", msg="it is made for torch 2.13")

    def setup_build_environment(self, env: EnvironmentModifications) -> None:
        env.set("VLLM_TARGET_DEVICE", "empty")
        # The archive is no git clone for setuptools-scm to ask.
        env.set("SETUPTOOLS_SCM_PRETEND_VERSION", str(self.version))

    @run_before("install")
    def only_without_a_device(self) -> None:
        if not self.spec.satisfies("device=empty"):
            raise InstallError(
                "py-vllm device=cpu is taken from an existing prefix: put what "
                "`scripts/spack-externals PREFIX` prints into packages.yaml"
            )
