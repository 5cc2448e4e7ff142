# SPDX-License-Identifier: Apache-2.0
import hashlib
import os
from typing import Any, Optional

from spack.package import InstallError, PackageBase


class OfficialArtifactPackage(PackageBase):
    """Auxiliary class for packages that can come from a prebuilt artifact of Huawei's.

    Where the recipe knows the sha256, Spack fetches the artifact, or takes it from a mirror. For
    every other SoC and architecture the site has the file and its sha256, and says so in
    packages.yaml:

        packages:
          ascendc-batch-invariant-ops:
            package_attributes:
              official_file: /path/to/cann-ops-batch_invariant-910b-2.0.0-linux.x86_64.run
              official_sha256: <64 hexadecimal digits>

    Maintainers: batch-invariant
    """

    #: The site's own copy of the artifact
    official_file: str = ""
    #: Its sha256, which becomes part of the package's hash
    official_sha256: str = ""

    def content_hash(self, content: Optional[bytes] = None) -> Any:
        recipe = super().content_hash(content)
        given = self.official_sha256 if self.spec.satisfies("provider=official") else ""
        if not given:
            return recipe
        return hashlib.sha256((recipe + given).encode("utf-8")).hexdigest()

    def official_artifact(self) -> str:
        """Path of the artifact, after its sha256 was compared.

        Raises:
            InstallError: there is none for this SoC and architecture, or it is another file.
        """
        if not self.official_file and self.has_code:
            return str(self.stage.archive_file)
        attributes = "packages:{}:package_attributes".format(self.name)
        if not self.official_file or not self.official_sha256:
            raise InstallError(
                "no sha256 of Huawei's artifact is known for {} {} on {}: get the file and set "
                "official_file and official_sha256 in {}".format(
                    self.name,
                    self.spec.format("{variants.soc}"),
                    self.spec.target.family,
                    attributes,
                )
            )
        if not os.path.isfile(self.official_file):
            raise InstallError(
                "{}:official_file: expected a file, found nothing at {}".format(
                    attributes, self.official_file
                )
            )
        digest = hashlib.sha256()
        with open(self.official_file, "rb") as file:
            for block in iter(lambda: file.read(1 << 20), b""):
                digest.update(block)
        if digest.hexdigest() != self.official_sha256:
            raise InstallError(
                "{}: expected sha256 {}, found {}: get the file again or correct {}".format(
                    self.official_file, self.official_sha256, digest.hexdigest(), attributes
                )
            )
        return self.official_file
