# SPDX-License-Identifier: Apache-2.0
"""Who builds, where and when: everything that must not be seen in what is built."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COUNTER = Path(__file__).with_name("network_attempts.py")
# What would choose a place, a version or a time for the build.
UNWANTED = {
    *("ASCEND_CUSTOM_OPP_PATH", "ASCEND_OPP_PATH", "CXX", "CXXFLAGS", "LDFLAGS", "PYTHONPATH"),
    *("SOURCE_DATE_EPOCH", "LANG", "LC_ALL", "MAX_JOBS", "COMPILE_CUSTOM_KERNELS"),
    "VLLM_BATCH_INVARIANT",
}


@dataclass(frozen=True, slots=True, eq=False)
class Circumstances:
    """How a build is run."""

    directory: Path
    """Holds the sources, the home directory, and all that is made."""
    umask: int
    jobs: int
    environment: Mapping[str, str]
    user: int | None = None
    """A user's number other than the caller's, who is nobody to the system."""

    def tree(self) -> Path:
        """A copy of the sources, made at the first call; elsewhere it has other times and modes."""
        copy = self.directory / "tree"
        if not copy.exists():
            leave = shutil.ignore_patterns(
                "build", "dist", "__pycache__", "*.egg-info", "*.so", ".*"
            )
            shutil.copytree(ROOT, copy, ignore=leave, copy_function=self._copy)
        return copy

    def _copy(self, source: str, target: str) -> str:
        if self.user is None:
            return str(shutil.copy2(source, target))
        shutil.copyfile(source, target)
        executable = os.stat(source).st_mode & 0o100  # noqa: PTH116
        os.chmod(target, 0o700 if executable else 0o600)  # noqa: PTH101
        os.utime(target, (86400, 86400))
        return target

    def run(self, command: Sequence[str | Path], **more: str) -> subprocess.CompletedProcess[str]:
        """Runs a command under these circumstances, without a network."""
        for name in ("home", "tmp"):
            (self.directory / name).mkdir(exist_ok=True)
        home = {"HOME": str(self.directory / "home"), "TMPDIR": str(self.directory / "tmp")}
        kept = {key: value for key, value in os.environ.items() if key not in UNWANTED}
        known = sorted(os.sched_getaffinity(0))[: self.jobs]
        report = self.directory / "sent.json"
        report.unlink(missing_ok=True)
        inner: list[str] = []
        if self.user is not None:
            inner = ["unshare", "--user", f"--map-user={self.user}", f"--map-group={self.user}"]
        rights = () if os.geteuid() == 0 else ("--map-root-user",)
        return subprocess.run(
            [
                *("unshare", *rights, "--net", sys.executable, COUNTER, report),
                *(*inner, *command),
            ],
            cwd=self.directory,
            env={**kept, **home, **self.environment, **more},
            umask=self.umask,
            preexec_fn=lambda: os.sched_setaffinity(0, known),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )

    def sent(self) -> dict[str, int]:
        """Packets that the last command sent or would have sent, by the kernel's counter."""
        found = json.loads((self.directory / "sent.json").read_text())
        return {name: count for name, count in found.items() if count}

    def made(self, command: Sequence[str | Path], **more: str) -> str:
        """As run(), for a build: it succeeds and does not try to reach a network."""
        done = self.run(command, **more)
        assert done.returncode == 0, done.stdout
        assert self.sent() == {}, f"it tried to reach a network\n{done.stdout}"
        return done.stdout


def here(directory: Path) -> Circumstances:
    """Those of whoever runs the tests."""
    directory.mkdir(parents=True)
    return Circumstances(directory, 0o022, 2, {"TZ": "UTC", "LANG": "C.UTF-8"})


def elsewhere(directory: Path, clock: Path) -> Circumstances:
    """Other ones in each respect.

    clock   the library that other_clock.cc makes
    """
    directory.mkdir(parents=True)
    variables = {"TZ": "Asia/Shanghai", "LC_ALL": "C", "USER": "somebody", "LOGNAME": "somebody"}
    return Circumstances(
        directory, 0o077, 1, {**variables, "LD_PRELOAD": str(clock)}, user=os.geteuid() + 1234
    )
