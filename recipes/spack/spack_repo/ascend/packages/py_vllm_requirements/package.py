# SPDX-License-Identifier: Apache-2.0
from spack.package import InstallError, Package, Prefix, Spec, maintainers, version


class PyVllmRequirements(Package):
    """What vLLM's metadata requires beside torch, taken from one prefix. External only."""

    homepage = "https://docs.vllm.ai/"

    has_code = False

    maintainers("batch-invariant")

    version("0.32.0")

    def install(self, spec: Spec, prefix: Prefix) -> None:
        raise InstallError(
            "py-vllm-requirements is taken from an existing prefix: put what "
            "`scripts/spack-externals PREFIX` prints into packages.yaml"
        )
