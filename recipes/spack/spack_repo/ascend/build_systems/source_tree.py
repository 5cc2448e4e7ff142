# SPDX-License-Identifier: Apache-2.0
import base64
import hashlib
import os
import shutil
from typing import Any, Iterator, Optional, Tuple

from spack.package import InstallError, PackageBase
from spack_repo.ascend import soc_table


class SourceTreePackage(PackageBase):
    """Auxiliary class for packages whose source is the tree that this repository lies in.

    A version without an archive is built from that tree: nothing is fetched, `tree_sources` is
    copied to the stage, and its content is part of the hash, so that a changed source is another
    package. A version with an archive is fetched and checked by Spack as any other.

    Maintainers: batch-invariant
    """

    #: Files and directories to build from, relative to the root of the tree
    tree_sources: Tuple[str, ...] = ()

    @property
    def from_tree(self) -> bool:
        """Whether this version is built from the tree; without a version, whether each is."""
        versions = [self.version] if self.spec.versions.concrete else list(self.versions)
        archives = [number for number in versions if "sha256" in self.versions.get(number, {})]
        return not self.spec.external and not archives

    @property
    def has_code(self) -> bool:
        """Whether Spack has an archive to fetch for this version."""
        return not self.from_tree

    def do_stage(self, mirror_only: bool = False) -> None:
        super().do_stage(mirror_only)
        if not self.from_tree:
            return
        for name in self._tree_files():
            copy = os.path.join(self.stage.source_path, name)
            os.makedirs(os.path.dirname(copy), exist_ok=True)
            # A link is copied as what it leads to: a VERSION in a subdirectory is one.
            shutil.copy(os.path.join(soc_table.TREE, name), copy)

    def content_hash(self, content: Optional[bytes] = None) -> Any:
        recipe = super().content_hash(content)
        if not self.from_tree:
            return recipe
        digest = hashlib.sha256(recipe.encode("utf-8"))
        for name in self._tree_files():
            with open(os.path.join(soc_table.TREE, name), "rb") as file:
                digest.update(name.encode("utf-8") + b"\0")
                digest.update(hashlib.sha256(file.read()).digest())
        return base64.b32encode(digest.digest()).decode("ascii").lower()

    def _tree_files(self) -> Iterator[str]:
        """The files of `tree_sources`, sorted, without what Python and tests leave behind.

        Raises:
            InstallError: the repository lies in no source tree.
        """
        found = []
        for source in self.tree_sources:
            top = os.path.join(soc_table.TREE, source)
            if os.path.isfile(top):
                found.append(source)
            for folder, folders, files in os.walk(top):
                folders[:] = [
                    name
                    for name in folders
                    if name not in ("__pycache__", "build") and not name.endswith(".egg-info")
                ]
                relative = os.path.relpath(folder, soc_table.TREE)
                found += [os.path.join(relative, name) for name in files]
            if not os.path.exists(top):
                raise InstallError(
                    "{} is built from the source tree that its recipe lies in, and {} is not "
                    "there: add the repository of a whole tree".format(self.name, top)
                )
        return iter(sorted(found))
