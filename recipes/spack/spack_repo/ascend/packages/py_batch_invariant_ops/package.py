# SPDX-License-Identifier: Apache-2.0
import os

from spack.package import (
    EnvironmentModifications,
    conflicts,
    depends_on,
    license,
    maintainers,
    version,
)
from spack_repo.ascend.build_systems.official_artifact import OfficialArtifactPackage
from spack_repo.ascend.build_systems.operator_provider import OperatorProviderPackage
from spack_repo.ascend.build_systems.source_tree import SourceTreePackage
from spack_repo.builtin.build_systems.python import PythonPackage


class PyBatchInvariantOps(
    PythonPackage, OperatorProviderPackage, OfficialArtifactPackage, SourceTreePackage
):
    """The batch-invariant operators for PyTorch: torch.ops.batch_invariant_ops. Stage 2 of
    three."""

    homepage = "https://docs.vllm.ai/projects/ascend/"

    tree_sources = ("LICENSE", "csrc/VERSION", "csrc/torch_ops_extension")

    import_modules = ["batch_invariant_ops"]

    maintainers("batch-invariant")

    license("Apache-2.0", checked_by="batch-invariant")

    # Huawei's extension to its own run package, in source.
    version(
        "2.0.0",
        sha256="88c0a69d5a9487ccc54bc71ef4e3581756098f47d87188da52c299e792ab76c2",
        url="https://vllm-ascend.obs.cn-north-4.myhuaweicloud.com/vllm-ascend/batch_invariant-torch_ops_extension-2.0.0.zip",
    )

    depends_on("c", type="build")
    depends_on("cxx", type="build")

    depends_on("python@3.11:", type=("build", "run"))
    depends_on("py-setuptools@78.1.1:80", type="build")
    depends_on("py-torch@2.13:", type=("build", "link", "run"))
    depends_on("ascendc-batch-invariant-ops@0.1.0 soc=cpu", type=("build", "run"), when="soc=cpu")
    for soc in OperatorProviderPackage.npu_socs:
        depends_on("py-torch-npu@2.13.0", type=("build", "run"), when=f"soc={soc}")
        for provider in ("official", "source"):
            depends_on(
                f"ascendc-batch-invariant-ops soc={soc} provider={provider}",
                type=("build", "run"),
                when=f"soc={soc} provider={provider}",
            )
    for target in OperatorProviderPackage.soc_targets:
        depends_on(
            f"ascendc-batch-invariant-ops target={target}",
            type=("build", "run"),
            when=f"target={target}",
        )
    del provider, soc, target

    conflicts("^py-torch@2.14:", msg="it is made for torch 2.13")

    @property
    def build_directory(self) -> str:
        top = str(self.stage.source_path)
        if self.from_tree:
            return os.path.join(top, "csrc", "torch_ops_extension")
        # How deep it lies in Huawei's archive is not assumed.
        return next((place for place, _, files in os.walk(top) if "setup.py" in files), top)

    def setup_build_environment(self, env: EnvironmentModifications) -> None:
        env.set("MAX_JOBS", str(self.module.make_jobs))
        # torch would import torch_npu, which needs the driver's libraries: a login node has none.
        env.set("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
