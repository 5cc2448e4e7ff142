# SPDX-License-Identifier: Apache-2.0
"""Writes a directory that looks like an installed CANN; see README.md beside this file."""

from __future__ import annotations

import argparse
import platform
import subprocess
from pathlib import Path

LIBRARIES = (
    "acl_op_compiler",
    "acl_tdt_channel",
    "ascendcl",
    "ge_runner",
    "graph",
    "hccl",
    "nnopbase",
)
EXECUTABLES = ("atc", "bisheng")

SET_ENV = """\
# What the real one sets, in the same form.
export ASCEND_TOOLKIT_HOME={home}
export LD_LIBRARY_PATH=${{ASCEND_TOOLKIT_HOME}}/lib64${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}
export PYTHONPATH=${{ASCEND_TOOLKIT_HOME}}/python/site-packages${{PYTHONPATH:+:$PYTHONPATH}}
export PATH=${{ASCEND_TOOLKIT_HOME}}/bin:$PATH
export ASCEND_AICPU_PATH=${{ASCEND_TOOLKIT_HOME}}
export ASCEND_OPP_PATH=${{ASCEND_TOOLKIT_HOME}}/opp
export ASCEND_HOME_PATH=${{ASCEND_TOOLKIT_HOME}}
"""

ACL_H = """\
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
typedef int aclError;
typedef void *aclrtStream;
"""


def make_stub_cann(
    directory: Path,
    version: str = "9.1.0",
    arch: str | None = None,
    layout: str = "new",
    libraries: bool = True,
) -> Path:
    """Writes the stub below `directory` and returns CANN's own path, its `ASCEND_HOME_PATH`.

    Args:
        version: as the installer spells it, e.g. `8.2.RC1`.
        arch: `uname -m` of the machine it claims to be for; this one's by default.
        layout: `new` or `old`, see README.md.
        libraries: whether to compile the empty libraries, which takes a C compiler.

    Raises:
        ValueError: an unknown layout.
    """
    arch = arch or platform.machine()
    if layout == "new":
        home = inner = directory / f"cann-{version}"
        latest = directory / "cann"
    elif layout == "old":
        home = directory / "ascend-toolkit" / version
        inner = home / f"{arch}-linux"
        latest = home.parent / "latest"
    else:
        raise ValueError(f"layout: expected new or old, found {layout!r}")
    folders = ("bin", "include/acl", "lib64", "opp/vendors", "python/site-packages")
    for folder in folders:
        (inner / folder).mkdir(parents=True, exist_ok=True)
    (inner / "ascend_toolkit_install.info").write_text(
        "package_name=Ascend-cann-toolkit\n"
        f"version={version}\n"
        "innerversion=V100R001C11SPC001B243\n"
        f"arch={arch}\n"
        "os=linux\n"
        f"path={inner}\n"
    )
    if home != inner:
        for folder in ("bin", "include", "lib64", "opp", "python"):
            (home / folder).symlink_to(inner / folder)
    latest.unlink(missing_ok=True)
    latest.symlink_to(home.name)
    (home / "set_env.sh").write_text(SET_ENV.format(home=home))
    (inner / "include/acl/acl.h").write_text(ACL_H)
    for name in EXECUTABLES:
        executable = inner / "bin" / name
        executable.write_text("#!/bin/sh\necho stub: compiles nothing >&2\nexit 1\n")
        executable.chmod(0o755)
    if libraries:
        for name in LIBRARIES:
            library = inner / "lib64" / f"lib{name}.so"
            command = ["cc", "-shared", "-nostdlib", "-x", "c", "/dev/null", "-o", str(library)]
            subprocess.run(command, check=True)
    return home


def main() -> None:
    """Command line: prints the path."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--version", default="9.1.0")
    parser.add_argument("--arch", default=None)
    parser.add_argument("--layout", default="new", choices=["new", "old"])
    options = parser.parse_args()
    print(
        make_stub_cann(options.directory.absolute(), options.version, options.arch, options.layout)
    )


if __name__ == "__main__":
    main()
