# SPDX-License-Identifier: Apache-2.0
import os
from typing import List

from spack.package import (
    EnvironmentModifications,
    Executable,
    GenericBuilder,
    InstallError,
    Package,
    Prefix,
    Spec,
    build_system,
    conditional,
    conflicts,
    depends_on,
    license,
    maintainers,
    mkdirp,
    version,
)
from spack_repo.ascend.build_systems.official_artifact import OfficialArtifactPackage
from spack_repo.ascend.build_systems.operator_provider import OperatorProviderPackage
from spack_repo.ascend.build_systems.source_tree import SourceTreePackage
from spack_repo.builtin.build_systems import cmake
from spack_repo.builtin.build_systems.cmake import CMakePackage

LIBRARY = os.path.join("op_api", "lib", "libcust_opapi.so")


class AscendcBatchInvariantOps(
    CMakePackage, Package, OperatorProviderPackage, OfficialArtifactPackage, SourceTreePackage
):
    """The batch-invariant operators' library, as an Ascend custom operator package (OPP). Stage 1
    of three."""

    homepage = "https://docs.vllm.ai/projects/ascend/"

    tree_sources = (
        "LICENSE",
        "soc.toml",
        "csrc/CMakeLists.txt",
        "csrc/VERSION",
        "csrc/cmake",
        "csrc/cpu",
        "csrc/op_api",
        "csrc/ops",
    )

    maintainers("batch-invariant")

    license("Apache-2.0", checked_by="batch-invariant")

    # Huawei's run package. This one is for Atlas A3 and aarch64; for other machines no sha256 is
    # known, and the site gives the file.
    version(
        "2.0.0",
        sha256="7b78c05ac31a48398e0902fdbf379d4f481f6fc31ecba0fac646595f70e9c5a5",
        url="https://vllm-ascend.obs.cn-north-4.myhuaweicloud.com/vllm-ascend/cann-ops-batch_invariant-A3-2.0.0-linux.aarch64.run",
        expand=False,
    )

    build_system(
        conditional("cmake", when="@0.1.0"), conditional("generic", when="@2.0.0"), default="cmake"
    )

    depends_on("c", type="build", when="@0.1.0")
    depends_on("cxx", type="build", when="@0.1.0")

    depends_on("cmake@3.25:", type="build", when="@0.1.0")

    for soc in OperatorProviderPackage.npu_socs:
        conflicts(
            "provider=source",
            when=f"soc={soc}",
            msg=f"the operators of {soc} are not built from source yet: say provider=official",
        )
    del soc

    @property
    def has_code(self) -> bool:
        """Whether Spack has an archive to fetch: the site's, or the one whose sha256 is known."""
        known = "@2.0.0 soc=ascend910_93 target=aarch64:"
        return bool(self.spec.satisfies("@2.0.0" if self.official_sha256 else known))

    @property
    def vendor(self) -> str:
        """The vendor's directory, which holds the library and its description."""
        return os.path.join(
            str(self.prefix), "share", "ascend", "opp", "vendors", "batch_invariant"
        )

    def setup_run_environment(self, env: EnvironmentModifications) -> None:
        env.prepend_path("ASCEND_CUSTOM_OPP_PATH", self.vendor)


class CMakeBuilder(cmake.CMakeBuilder):
    """provider=source: the operators of this tree."""

    @property
    def root_cmakelists_dir(self) -> str:
        return os.path.join(str(self.pkg.stage.source_path), "csrc")

    def cmake_args(self) -> List[str]:
        soc = self.spec.variants["soc"].value
        return [
            self.define("BI_SOC", soc),
            self.define("CMAKE_INSTALL_PREFIX", self.pkg.vendor),
            self.define("CMAKE_INSTALL_RPATH", ""),
        ]


class GenericBuilder(GenericBuilder):  # type: ignore[no-redef]
    """provider=official: Huawei's run package installs itself below the prefix."""

    def install(self, pkg: Package, spec: Spec, prefix: Prefix) -> None:
        opp = os.path.join(prefix, "share", "ascend", "opp")
        artifact = pkg.official_artifact()
        mkdirp(opp)
        # The installer would add to a directory of the user's, and fails on one with a colon.
        os.environ.pop("ASCEND_CUSTOM_OPP_PATH", None)
        installer = Executable("sh")
        options = ("--quiet", f"--install-path={opp}")
        said = installer(artifact, *options, output=str, error=str, fail_on_error=False)
        if installer.returncode:
            raise InstallError(f"{artifact} stopped: {said.strip() or 'without a word'}")
        if not os.path.isfile(os.path.join(pkg.vendor, LIBRARY)):
            raise InstallError(
                f"{artifact} installed no {LIBRARY} below {pkg.vendor}: it is not the run package "
                "of the batch-invariant operators"
            )
