# SPDX-License-Identifier: Apache-2.0
from spack.package import PackageBase, conflicts, depends_on, requires, variant
from spack_repo.ascend import soc_table, soc_targets


def _choices() -> str:
    """Each SoC as it is typed, for messages."""
    choices = []
    for row in soc_table.rows():
        typed = ["soc={}".format(row.name)]
        typed += ["target={}".format(name) for name in row.targets[:1]]
        choices.append("{} ({})".format(" or ".join(typed), row.product))
    return "; ".join(choices)


def _before(version: str) -> str:
    """The range of versions before `version`, a major.minor.0; its previews are not in it."""
    major, minor, _ = map(int, version.split("."))
    return ":{}.{}".format(major, minor - 1) if minor else ":{}".format(major - 1)


class AscendPackage(PackageBase):
    """Auxiliary class for packages that are made for one Ascend SoC, or for the CPU reference.

    It has the variant `soc`, what follows from `target=910b` and the other SoC names, and the
    bounds on CANN. Only packages of this class carry a SoC's name as target.

    Maintainers: batch-invariant
    """

    soc_rows = soc_table.rows()
    npu_socs = tuple(row.name for row in soc_rows if row.is_npu)
    soc_targets = tuple(name for row in soc_rows for name in row.targets)
    name_the_soc = "name the SoC: {}".format(_choices())

    variant(
        "soc",
        default="none",
        values=("none",) + tuple(row.name for row in soc_rows),
        multi=False,
        sticky=True,
        description="Ascend SoC to build for, or cpu: the reference on any host",
    )

    for row in soc_rows:
        for name in row.targets:
            requires(
                "soc={}".format(row.name),
                when="target={}".format(name),
                msg="target={} is {}: leave soc out or say soc={}".format(
                    name, row.product, row.name
                ),
            )
        if row.min_cann:
            depends_on("cann", type=("build", "link", "run"), when="soc={}".format(row.name))
            # A bound on the dependency would be answered by "cannot build cann".
            conflicts(
                "^cann@{}".format(_before(row.min_cann)),
                when="soc={}".format(row.name),
                msg="{} needs CANN {} or newer".format(row.name, row.min_cann),
            )
    del row, name

    requires("platform=linux", msg="Ascend and its CPU reference run on Linux only")
    requires(
        "target=x86_64:",
        "target=aarch64:",
        policy="one_of",
        msg="expected an x86_64 or aarch64 host: CANN and the wheels exist for these",
    )


def _carries_soc(package: str) -> bool:
    import spack.repo

    return issubclass(spack.repo.PATH.get_pkg_class(package), AscendPackage)


soc_targets.install(_carries_soc)
