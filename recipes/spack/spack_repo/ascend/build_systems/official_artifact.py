# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import platform
import re
from typing import Any, Dict

from spack.package import InstallError, PackageBase, Version
from spack_repo.ascend import soc_table

#: A run package of Huawei's: its label and machine
RUN_PACKAGE = re.compile(r"cann-ops-batch_invariant-([^-]+)-[^/]*-linux\.(\w+)\.run$")


class OfficialArtifactPackage(PackageBase):
    """Auxiliary class for packages that can come from a prebuilt artifact of Huawei's.

    Where the recipe knows the sha256, Spack fetches the artifact, or takes it from a mirror. For
    every other SoC and architecture the site has it, and says where and with which sha256 in
    packages.yaml:

        packages:
          ascendc-batch-invariant-ops:
            package_attributes:
              official_source: /path/to/cann-ops-batch_invariant-910b-2.0.0-linux.x86_64.run
              official_sha256: <64 hexadecimal digits>

    It is then that version's archive: checked, cached, mirrored and part of the hash as any other.
    One that its name says is for another SoC or machine is refused.

    Maintainers: batch-invariant
    """

    #: Path or URL of the site's own artifact
    official_source: str = ""
    #: Its sha256
    official_sha256: str = ""

    versions: Dict[Any, Any]

    def __init__(self, spec: Any) -> None:
        super().__init__(spec)
        if self.official_source and self.official_sha256:
            official = Version("2.0.0")
            url = self.official_source
            if not isinstance(url, str):
                raise InstallError(
                    "packages:{}:package_attributes:official_source: expected text, found {}: "
                    "quote a URL".format(self.name, dict(url))
                )
            if "://" not in url:
                url = pathlib.Path(os.path.abspath(url)).as_uri()
            given = {"url": url, "sha256": self.official_sha256}
            self.versions = {
                **self.versions,
                official: {**self.versions[official], **given},
            }

    def official_artifact(self) -> str:
        """Path of the artifact, which Spack has fetched and checked.

        Raises:
            InstallError: there is none for this SoC and architecture, or the site's is another's.
        """
        if self.has_code:
            self._compare_name()
            return str(self.stage.archive_file)
        raise InstallError(
            "no sha256 of Huawei's artifact is known for {} {} on {}: get the file and set "
            "official_source and official_sha256 in packages:{}:package_attributes".format(
                self.name,
                self.spec.format("{variants.soc}"),
                self.spec.target.family,
                self.name,
            )
        )

    def _compare_name(self) -> None:
        named = RUN_PACKAGE.search(self.official_source)
        if named is None:
            return
        # Not the target's family: where it is built, one called 910b is its own.
        soc, machine = self.spec.variants["soc"].value, platform.machine()
        (label,) = (row.label for row in soc_table.rows() if row.name == soc)
        if named.groups() != (label, machine):
            raise InstallError(
                "official_source is another SoC's or machine's: {} is for {} on {}, expected {} on "
                "{}: set it in packages:{}:package_attributes of site/{}/spack.yaml".format(
                    named.group(), *named.groups(), label, machine, self.name, soc
                )
            )
