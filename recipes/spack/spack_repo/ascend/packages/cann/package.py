# SPDX-License-Identifier: Apache-2.0
import os
import platform
import re
from typing import Any, Dict, Iterable, List, Optional

from spack.package import (
    EnvironmentModifications,
    InstallError,
    Package,
    Prefix,
    Spec,
    maintainers,
    requires,
    version,
)

INFO = "ascend_toolkit_install.info"


def read_info(prefix: str) -> Dict[str, str]:
    """The `key=value` lines of the description that CANN's installer leaves, {} where it is not."""
    machine = platform.machine()
    for folder in (prefix, os.path.join(prefix, f"{machine}-linux")):
        path = os.path.join(folder, INFO)
        if os.path.isfile(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                pairs = (line.strip().partition("=") for line in file if "=" in line)
                return {key: value for key, _, value in pairs}
    return {}


class Cann(Package):
    """Ascend's Compute Architecture for Neural Networks: runtime, compiler and operators.

    External only: it is installed by Huawei's installer, and `spack external find cann` finds it.
    """

    homepage = "https://www.hiascend.com/software/cann"

    has_code = False

    executables = [r"^atc$", r"^bisheng$"]

    maintainers("batch-invariant")

    version("9.1.0")
    version("9.0.0")
    version("8.5.0")

    requires("platform=linux", msg="CANN exists for Linux only")

    @classmethod
    def determine_spec_details(cls, prefix: str, exes_in_prefix: Iterable[str]) -> Optional[Spec]:
        """The CANN that an executable belongs to: ASCEND_HOME_PATH, the prefix or a parent."""
        found = os.path.realpath(prefix)
        candidates: List[str] = []
        home = os.environ.get("ASCEND_HOME_PATH", "")
        if home and found.startswith(os.path.join(os.path.realpath(home), "")):
            candidates.append(home)
        for exe in exes_in_prefix:
            folder = os.path.dirname(exe)
            # bin/ and, for the compiler, tools/<compiler>/bin and compiler/<compiler>/bin
            for _ in range(4):
                candidates.append(folder)
                folder = os.path.dirname(folder)
        for candidate in candidates:
            info = read_info(candidate)
            if re.match(r"^\d+(\.\w+)+", info.get("version", "")):
                return Spec.from_detection(
                    f"cann@{info['version']}",
                    external_path=candidate,
                    extra_attributes={"arch": info.get("arch", "")},
                )
        return None

    @classmethod
    def validate_detected_spec(cls, spec: Spec, extra_attributes: Dict[str, Any]) -> None:
        arch = extra_attributes.get("arch")
        if arch and arch != platform.machine():
            raise InstallError(
                f"CANN at {spec.external_path} is for {arch}; expected {platform.machine()}"
            )

    def install(self, spec: Spec, prefix: Prefix) -> None:
        raise InstallError(
            "CANN is not installed by Spack: install it with Huawei's installer, then type "
            "`spack external find --not-buildable cann`"
        )

    def setup_run_environment(self, env: EnvironmentModifications) -> None:
        """What CANN's own set_env.sh sets, whatever its version and layout.

        Raises:
            InstallError: the prefix is another machine's CANN, or none.
        """
        prefix = str(self.prefix)
        family = str(self.spec.target.family)
        arch = read_info(prefix).get("arch", family)
        if arch != family:
            raise InstallError(
                f"CANN at {prefix} is for {arch}; expected {family}: correct packages:cann in "
                "packages.yaml"
            )
        places = (prefix, os.path.dirname(prefix), os.path.dirname(os.path.dirname(prefix)))
        scripts = [os.path.join(place, "set_env.sh") for place in places]
        script = next(filter(os.path.isfile, scripts), None)
        if script is None:
            raise InstallError(f"no set_env.sh in {prefix} or above: is it CANN's directory?")
        # Alone: what the user's shell has of a CANN would be taken for no change.
        clean = {"PATH": "/usr/bin:/bin", "HOME": prefix}
        changes = EnvironmentModifications.from_sourcing_file(script, clean=True, env=clean)
        for change in changes:
            # Spack takes every PATH for a list; two directories in one of these are none.
            if re.match(r"ASCEND_(?!CUSTOM_)\w+_PATH$", change.name):
                env.set(change.name, change.value)
            else:
                env.env_modifications.append(change)

    def setup_dependent_build_environment(
        self, env: EnvironmentModifications, dependent_spec: Spec
    ) -> None:
        self.setup_run_environment(env)
