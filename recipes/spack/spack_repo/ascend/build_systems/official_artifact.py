# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
from typing import Any, Dict

from spack.package import InstallError, PackageBase, Version


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
            InstallError: there is none for this SoC and architecture.
        """
        if self.has_code:
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
