# SPDX-License-Identifier: Apache-2.0
"""What an NPU's image installs, on this machine: a stub in CANN's place, and stand-ins for Huawei's
two artifacts. torch-npu is the real wheel, and vLLM is built from its source archive."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spack.sites import extension_archive, run_package_for
from tests.stub_cann.make import make_stub_cann
from vllm_ascend import soc

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
NPU = soc.resolve("ascend910b")

# torch_npu is not imported: it needs more of CANN than a stub has.
LOOK = """
import importlib.metadata, os
import batch_invariant_ops, vllm_ascend
print(*(importlib.metadata.version(name) for name in ("vllm", "torch-npu", "vllm-ascend")))
print(os.environ["ASCEND_HOME_PATH"])
"""


def test_closure_and_stages(tmp_path: Path) -> None:
    tree, prefix, downloads = (tmp_path / name for name in ("tree", "prefix", "downloads"))
    leave = shutil.ignore_patterns("build", "dist", "__pycache__", "*.egg-info", "*.so", ".*")
    shutil.copytree(ROOT, tree, ignore=leave)
    downloads.mkdir()
    package = run_package_for(NPU, tmp_path / "made")
    extension = extension_archive(downloads)
    name = re.sub("-0.1.0-", "-2.0.0-", package.path.name)
    shutil.copy(package.path, downloads / name)
    (downloads / "SHA256SUMS").write_text(f"{package.sha256}  {name}\n")
    # Of the extension the sha256 is known: that of the stand-in, here.
    lock = tree / "locks/official.toml"
    digest = hashlib.sha256(extension.read_bytes()).hexdigest()
    text, times = re.subn(rf'("{extension.name}" = )"\w+"', rf'\1"{digest}"', lock.read_text())
    assert times == 1
    lock.write_text(text)
    home = make_stub_cann(tmp_path / "Ascend", libraries=False)
    # The switch, left on by whoever builds.
    environ = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHON")
    } | {
        "PYTHON": sys.executable,
        "IMAGE_PREFIX": str(prefix),
        "BI_DOWNLOADS": str(downloads),
        "ASCEND_HOME_PATH": str(home),
        "VLLM_BATCH_INVARIANT": "1",
    }
    for step in ("closure", "stages"):
        done = subprocess.run(
            ["bash", tree / "recipes/images/install.sh", step, NPU.name],
            env=environ,
            umask=0o077,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == 0, done.stdout[-5000:]
    assert (prefix / "share/ascend/opp/vendors/batch_invariant/op_api/lib").is_dir()
    command = (prefix / "bin/with-cann").read_text().replace("/opt/vllm-ascend", str(prefix))
    done = subprocess.run(
        ["sh", "-c", command, "with-cann", prefix / "bin/python", "-P", "-c", LOOK],
        env={"PATH": os.environ["PATH"], "ASCEND_HOME_PATH": str(home)}
        | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["0.32.0 2.13.0 0.32.0", str(home)]
    shutil.rmtree(prefix)
