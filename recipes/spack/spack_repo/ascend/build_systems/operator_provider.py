# SPDX-License-Identifier: Apache-2.0
from spack.package import conflicts, requires, variant, version
from spack_repo.ascend.build_systems.ascend import AscendPackage


class OperatorProviderPackage(AscendPackage):
    """Auxiliary class for stages 1 and 2, which hold the operators of one SoC: this tree's, or on
    an NPU Huawei's.

    The recipe states Huawei's version 2.0.0, with its archive and sha256, by itself.

    Maintainers: batch-invariant
    """

    # This tree: csrc/VERSION.
    version("0.1.0", preferred=True)

    variant(
        "provider",
        default="source",
        values=("source",),
        when="soc=cpu",
        description="Whose operators: this tree's",
    )
    for soc in AscendPackage.npu_socs:
        variant(
            "provider",
            default="official",
            values=("official", "source"),
            when=f"soc={soc}",
            description="Whose operators: Huawei's prebuilt package or this tree's",
        )
    del soc

    requires("@2.0.0", when="provider=official", msg="provider=official is version 2.0.0")
    requires("@0.1.0", when="provider=source", msg="provider=source is version 0.1.0")
    conflicts("soc=none", msg=AscendPackage.name_the_soc)
