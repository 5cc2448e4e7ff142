# SPDX-License-Identifier: Apache-2.0
import platform
from typing import List

from spack.package import Version, conflicts, depends_on, license, maintainers, requires, version
from spack_repo.builtin.build_systems.python import PythonPackage

# sha256 of the wheel for each machine and CPython.
WHEELS = {
    "x86_64": {
        "310": "3084a5ebdab53d45acbbf3154f7cb45d1e00c463b76f0b9b2149b96c1f12ba67",
        "311": "0deb809cf447d3fce636ccfdc9c9f874950f1fe76f18f4aaab31e2d345f7dac0",
        "312": "f27cf44167b6e0a4b8cf82097c688d2bf532edf503d3e5d6a7ced80a7e759ea6",
        "313": "20441bfb56c4054a427560ff413fa033db921b993e06c3d67d0f7edc23d40513",
    },
    "aarch64": {
        "310": "da6b7785ce005a5459308ad7c88104a5739865d6f23d453dd53ff967c7e17200",
        "311": "d0e64a90b3e640b0274511e47c65284d3a7dedae5f6ad2b95d91de12ff9a29ff",
        "312": "ebb895735bf3c347e8c971c3f9083bb5ec032a1b139876ce019f03ee408d81fa",
        "313": "359a055deaf9b94de35ffadff2e68e9fb4a3b3576796ed3617e85d16a42df259",
    },
}


class PyTorchNpu(PythonPackage):
    """PyTorch's adapter for Ascend NPUs, from its wheel."""

    homepage = "https://gitcode.com/ascend/pytorch"
    pypi = "torch-npu/torch_npu-2.13.0.tar.gz"

    # Importing it needs CANN's libraries and its driver's, which a login node lacks.
    import_modules: List[str] = []

    maintainers("batch-invariant")

    license("BSD-3-Clause", checked_by="batch-invariant")

    for cpython, sha256 in WHEELS.get(platform.machine(), WHEELS["x86_64"]).items():
        version(f"2.13.0-cp{cpython}", sha256=sha256, expand=False)
        depends_on(
            f"python@{cpython[0]}.{cpython[1:]}",
            type=("build", "run"),
            when=f"@2.13.0-cp{cpython}",
        )
    del cpython, sha256

    depends_on("py-torch@2.13:", type=("build", "run"))
    depends_on("cann@8.5.0:", type="run")

    requires("platform=linux", msg="torch-npu has wheels for Linux only")
    conflicts("^py-torch@2.14:", msg="it is made for torch 2.13")

    def url_for_version(self, version: Version) -> str:
        """The wheel lies beside the sources, in a directory named for its CPython."""
        number, _, cpython = str(version).partition("-")
        top = str(self.url).partition("source/")[0]
        wheel = f"torch_npu-{number}-{cpython}-{cpython}-manylinux_2_28_{platform.machine()}.whl"
        return f"{top}{cpython}/t/torch-npu/{wheel}"
