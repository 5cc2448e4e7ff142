# SPDX-License-Identifier: Apache-2.0
"""An installation that is killed, or is one of several, leaves one good state."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from csrc.run_package.build import Built, build
from vllm_ascend import soc

from .conftest import Packages, clean_environment, installed, run_package, stage, state

TIMED_KILLS = 30
TOOLS = ["cat", "df", "dirname", "flock", "gzip", "head", "ln", "mkdir", "mv", "readlink", "rm"]
TOOLS += ["rmdir", "sha256sum", "sync", "tail", "tar", "uname", "wc"]


@pytest.fixture(scope="module")
def contents(
    packages: Packages, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, str], dict[str, str]]:
    """What a good installation of the first and of the second package holds."""
    good = []
    for package in (packages.first, packages.second):
        place = tmp_path_factory.mktemp("good")
        assert run_package(package.path, f"--install-path={place}").returncode == 0
        found = installed(place)
        assert found
        good.append(found)
    assert good[0] != good[1]
    return good[0], good[1]


@pytest.fixture
def counting(tmp_path: Path) -> Callable[[int, str], dict[str, str]]:
    """An environment in which the n-th command that the installer starts kills everything."""
    shims = tmp_path / "shims"
    shims.mkdir()
    for tool in TOOLS:
        real = shutil.which(tool)
        assert real, tool
        # Each call claims the next number by a file that it alone can make: the commands of a pipe
        # run at the same time, and no number may be passed over.
        (shims / tool).write_text(
            "#!/bin/sh\n"
            "set -C; calls=1\n"
            'until { true >"$KILL_COUNT/$calls"; } 2>/dev/null; do calls=$((calls + 1)); done\n'
            '[ "$KILL_WHEN" != before ] || [ "$calls" -ne "$KILL_AT" ] || kill -9 0\n'
            f'"{real}" "$@"; result=$?\n'
            '[ "$KILL_WHEN" != after ] || [ "$calls" -ne "$KILL_AT" ] || kill -9 0\n'
            "exit $result\n"
        )
        (shims / tool).chmod(0o755)

    def environment(kill_at: int, when: str) -> dict[str, str]:
        shutil.rmtree(tmp_path / "count", ignore_errors=True)
        (tmp_path / "count").mkdir()
        return {
            **clean_environment(),
            "PATH": f"{shims}:{os.environ['PATH']}",
            "KILL_COUNT": str(tmp_path / "count"),
            "KILL_AT": str(kill_at),
            "KILL_WHEN": when,
        }

    return environment


def start(package: Built, target: Path, env: dict[str, str]) -> subprocess.Popen[bytes]:
    """Starts an installation in a process group of its own."""
    return subprocess.Popen(
        [package.path, "--quiet", f"--install-path={target}"],
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("fresh", [True, False], ids=["fresh", "over another version"])
def test_killed_at_any_command_it_leaves_the_old_or_the_new_state(
    packages: Packages,
    contents: tuple[dict[str, str], dict[str, str]],
    counting: Callable[[int, str], dict[str, str]],
    tmp_path: Path,
    fresh: bool,
    when: str,
) -> None:
    old, new = (None if fresh else contents[0]), contents[1]
    seen = []
    for kill_at in range(1, 1000):
        target = tmp_path / "opp"
        shutil.rmtree(target, ignore_errors=True)
        if not fresh:
            assert run_package(packages.first.path, f"--install-path={target}").returncode == 0
        status = start(packages.second, target, counting(kill_at, when)).wait(timeout=60)
        found = installed(target)
        assert found in (old, new), f"killed {when} command {kill_at}"
        seen.append(found == new)
        if status == 0:
            break
        assert status == -signal.SIGKILL
        assert run_package(packages.second.path, f"--install-path={target}").returncode == 0
        assert installed(target) == new
        assert len(list((target / "vendors").iterdir())) == 2, "leftovers stay"
    assert kill_at > 20, "hardly anything was interrupted"
    # Once new, new: there is one moment at which the state changes.
    assert seen == sorted(seen) and seen[0] is False and seen[-1] is True


def test_killed_at_any_time_it_leaves_the_old_or_the_new_state(
    contents: tuple[dict[str, str], dict[str, str]], packages: Packages, tmp_path: Path
) -> None:
    """Long files, so that many of the kills fall into the writing of one."""
    big = build(
        stage(tmp_path / "tree", size=20_000_000, seed=5), soc.resolve("cpu"), tmp_path, version="3"
    )
    target = tmp_path / "opp"
    began = time.monotonic()
    assert run_package(big.path, f"--install-path={target}").returncode == 0
    duration = time.monotonic() - began
    new = installed(target)
    unfinished = 0
    for number in range(TIMED_KILLS):
        shutil.rmtree(target)
        assert run_package(packages.first.path, f"--install-path={target}").returncode == 0
        process = start(big, target, clean_environment())
        time.sleep(duration * number / TIMED_KILLS)
        os.killpg(process.pid, signal.SIGKILL)
        killed = process.wait(timeout=60) != 0
        found = installed(target)
        assert found in (contents[0], new)
        unfinished += killed and len(list((target / "vendors").iterdir())) > 2
    assert unfinished > 0, "no kill fell between beginning and end"
    assert run_package(big.path, f"--install-path={target}").returncode == 0
    assert installed(target) == new
    assert len(list((target / "vendors").iterdir())) == 2


def test_interrupted_from_the_keyboard_it_cleans_up(packages: Packages, tmp_path: Path) -> None:
    """SIGINT and SIGTERM while it unpacks: as if it had not been started."""
    shims = tmp_path / "shims"
    shims.mkdir()
    (shims / "gzip").write_text("#!/bin/sh\necho >>$STARTED\nsleep 2\n")
    (shims / "gzip").chmod(0o755)
    for number, name in ((signal.SIGINT, "int"), (signal.SIGTERM, "term")):
        started, target = tmp_path / f"started {name}", tmp_path / name
        env = {"PATH": f"{shims}:{os.environ['PATH']}", "STARTED": f"'{started}'"}
        env["STARTED"] = str(started).replace(" ", "-")
        process = start(packages.first, target, {**clean_environment(), **env})
        while not Path(env["STARTED"]).exists():
            time.sleep(0.01)
        os.killpg(process.pid, number)
        assert process.wait(timeout=60) == 128 + number
        assert not target.exists()


@pytest.mark.parametrize("without_flock", [False, True], ids=["flock", "directory"])
def test_four_at_once_give_one_good_installation(
    packages: Packages,
    contents: tuple[dict[str, str], dict[str, str]],
    tmp_path: Path,
    without_flock: bool,
) -> None:
    env = clean_environment()
    if without_flock:
        shims = tmp_path / "shims"
        shims.mkdir()
        # As flock answers on a file system that has no locks.
        (shims / "flock").write_text("#!/bin/sh\nexit 71\n")
        (shims / "flock").chmod(0o755)
        env["PATH"] = f"{shims}:{env['PATH']}"
    target = tmp_path / "opp"
    for _ in range(3):
        running = [start(package, target, env) for package in (packages.first, packages.second) * 2]
        assert [process.wait(timeout=120) for process in running] == [0] * 4
        assert installed(target) in contents
        assert len(list((target / "vendors").iterdir())) == 2


def test_four_at_once_that_all_fail_leave_no_file(packages: Packages, tmp_path: Path) -> None:
    """Each removes what it made and nothing of another's.

    An empty directory may stay: the one below which another installer was just making its own.
    """
    target = tmp_path / "opp"
    shims = tmp_path / "shims"
    shims.mkdir()
    (shims / "gzip").write_text("#!/bin/sh\nexit 1\n")
    (shims / "gzip").chmod(0o755)
    env = {**clean_environment(), "PATH": f"{shims}:{os.environ['PATH']}"}
    for _ in range(3):
        running = [start(packages.first, target, env) for _ in range(4)]
        assert [process.wait(timeout=120) for process in running] == [1] * 4
        assert set(state(target)) <= {"vendors"}
    assert run_package(packages.first.path, f"--install-path={target}").returncode == 0
    assert set(installed(target) or {}) == set(packages.first.files)


def test_directory_lock_of_a_killed_installer_does_not_stay(
    packages: Packages, tmp_path: Path
) -> None:
    shims = tmp_path / "shims"
    shims.mkdir()
    (shims / "flock").write_text("#!/bin/sh\nexit 71\n")
    (shims / "flock").chmod(0o755)
    env = {"PATH": f"{shims}:{os.environ['PATH']}"}
    ended = subprocess.Popen(["true"])
    ended.wait()
    lock = tmp_path / "vendors/.batch_invariant.lock"
    lock.mkdir(parents=True)
    (lock / "holder").write_text(f"{os.uname().nodename} {ended.pid}\n")
    done = run_package(packages.first.path, f"--install-path={tmp_path}", env=env)
    assert done.returncode == 0, done.stderr
    assert "waiting for another installation" in done.stdout
    assert len(state(tmp_path / "vendors")) > 2 and not lock.exists()
