# SPDX-License-Identifier: Apache-2.0
"""An installation that is killed, or is one of several, leaves one good state."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from csrc.run_package.build import Built, build
from vllm_ascend import soc

from .conftest import (
    Packages,
    clean_environment,
    installed,
    run_package,
    stage,
    state,
    without_flock,
)

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


def start(
    package: Path, target: Path, env: Mapping[str, str], *arguments: str
) -> subprocess.Popen[bytes]:
    """Starts an installation, or what the arguments say, in a process group of its own."""
    return begin([str(package), "--quiet", f"--install-path={target}", *arguments], env)


def begin(command: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


@dataclass(frozen=True, slots=True)
class Change:
    """What is interrupted: from the installation of `before` (None: nothing) to `after`."""

    before: Callable[[Packages], Built] | None
    after: Callable[[Packages], Built] | None
    arguments: tuple[str, ...] = ()
    """Of the second package; `uninstall.sh` alone stands for that script."""
    flock: bool = True


CHANGES = {
    "first installation": Change(None, lambda made: made.second),
    "upgrade": Change(lambda made: made.first, lambda made: made.second, ("--upgrade",)),
    "other soc": Change(lambda made: made.other_soc, lambda made: made.second, ("--force",)),
    "uninstall": Change(lambda made: made.first, None, ("--uninstall",)),
    "uninstall.sh": Change(lambda made: made.first, None, ("uninstall.sh",)),
    "first installation, lock directory": Change(None, lambda made: made.second, flock=False),
    "upgrade, lock directory": Change(
        lambda made: made.first, lambda made: made.second, ("--upgrade",), flock=False
    ),
    "uninstall, lock directory": Change(
        lambda made: made.first, None, ("--uninstall",), flock=False
    ),
}


@pytest.mark.parametrize("step", [6, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", CHANGES)
def test_killed_at_any_command_it_leaves_the_old_or_the_new_state(
    packages: Packages,
    counting: Callable[[int, str], dict[str, str]],
    tmp_path: Path,
    name: str,
    step: int,
) -> None:
    """Before and after each command it starts, or each sixth; then it is done again."""
    change, target, good = CHANGES[name], tmp_path / "opp", tmp_path / "good"
    states: list[dict[str, str] | None] = []
    env: dict[str, str] = {}
    if not change.flock:
        env = without_flock(tmp_path / "no flock")
        shutil.copy(tmp_path / "no flock/flock", tmp_path / "shims/flock")
    for number, package in enumerate((change.before, change.after)):
        place = good / str(number)
        place.mkdir(parents=True)
        if package:
            done = run_package(package(packages).path, f"--install-path={place}")
            assert done.returncode == 0, done.stderr
        states.append(installed(place))
    assert states[0] != states[1]
    points = 0
    for when, first in (("before", 1), ("after", 1 + step // 2)):
        seen = []
        for kill_at in range(first, 1000, step):
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(good / "0", target, symlinks=True)
            command = [str(packages.second.path), f"--install-path={target}", *change.arguments]
            if change.arguments == ("uninstall.sh",):
                command = [f"{target}/vendors/batch_invariant/scripts/uninstall.sh"]
            status = begin(command, counting(kill_at, when)).wait(timeout=60)
            found = installed(target)
            assert found in states, f"killed {when} command {kill_at}"
            seen.append(found == states[1])
            if status == 0:
                break
            assert status == -signal.SIGKILL
            points += 1
            again = change.arguments if change.after else ("--uninstall",)
            done = run_package(packages.second.path, f"--install-path={target}", *again, env=env)
            assert done.returncode == (1 if change.after is None and seen[-1] else 0), done.stderr
            assert installed(target) == states[1]
            left = {path.name for path in (target / "vendors").glob("*")}
            assert len(left) == (2 if change.after else 0), f"leftovers stay: {left}"
        # Once new, new: there is one moment at which the state changes.
        assert seen == sorted(seen) and seen[0] is False and seen[-1] is True
    assert points >= (30 if step == 1 else 5), "hardly anything was interrupted"


@pytest.mark.parametrize("kills", [10, pytest.param(60, marks=pytest.mark.slow)])
def test_killed_at_any_time_it_leaves_the_old_or_the_new_state(
    contents: tuple[dict[str, str], dict[str, str]], packages: Packages, tmp_path: Path, kills: int
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
    for number in range(kills):
        shutil.rmtree(target)
        assert run_package(packages.first.path, f"--install-path={target}").returncode == 0
        process = start(big.path, target, clean_environment())
        time.sleep(duration * number / kills)
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
        process = start(packages.first.path, target, {**clean_environment(), **env})
        while not Path(env["STARTED"]).exists():
            time.sleep(0.01)
        os.killpg(process.pid, number)
        assert process.wait(timeout=60) == 128 + number
        assert not target.exists()


@pytest.mark.parametrize("lock", ["flock", "directory"])
def test_eight_at_once_give_one_good_installation(
    packages: Packages,
    contents: tuple[dict[str, str], dict[str, str]],
    tmp_path: Path,
    lock: str,
) -> None:
    env = clean_environment()
    if lock == "directory":
        env |= without_flock(tmp_path / "shims")
    target = tmp_path / "opp"
    both = (packages.first.path, packages.second.path)
    running = [start(package, target, env) for package in both * 4]
    assert [process.wait(timeout=120) for process in running] == [0] * 8
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
    for _ in range(2):
        running = [start(packages.first.path, target, env) for _ in range(4)]
        assert [process.wait(timeout=120) for process in running] == [1] * 4
        assert set(state(target)) <= {"vendors"}
    assert run_package(packages.first.path, f"--install-path={target}").returncode == 0
    assert set(installed(target) or {}) == set(packages.first.files)


def holder(pid: int, *, start: str | None = None, host: str | None = None) -> str:
    """The entry of a lock directory: PID.START.HOST."""
    began = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[19]
    namespace = Path("/proc/self/ns/pid").readlink().name.strip("pid:[]")
    return f"{pid}.{start or began}.{host or f'{os.uname().nodename}-{namespace}'}"


@pytest.mark.parametrize("gone", ["ended", "its number is another's", "not yet collected"])
def test_directory_lock_of_a_killed_installer_does_not_stay(
    packages: Packages, tmp_path: Path, gone: str
) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        name = holder(process.pid)
        process.kill()
        if gone == "not yet collected":
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        else:
            process.wait()
        if gone == "its number is another's":
            name = holder(os.getpid(), start="1")
        vendors = tmp_path / "opp/vendors"
        (vendors / ".batch_invariant.lock" / name).mkdir(parents=True)
        # And of one that was killed before it had the lock.
        (vendors / f".batch_invariant.lock.{name}" / name).mkdir(parents=True)
        env = without_flock(tmp_path / "shims")
        done = run_package(packages.first.path, f"--install-path={tmp_path}/opp", env=env)
        assert done.returncode == 0, done.stderr
        assert "waiting" not in done.stdout
        assert len(list(vendors.iterdir())) == 2


@pytest.mark.parametrize("host", [None, "another-1"], ids=["alive", "of another host"])
def test_directory_lock_is_waited_for_while_its_holder_may_live(
    packages: Packages, tmp_path: Path, host: str | None
) -> None:
    with subprocess.Popen(["true"]) as process:
        ended = holder(process.pid, host=host)
    entry = ended if host else holder(os.getpid())
    lock = tmp_path / "opp/vendors/.batch_invariant.lock"
    (lock / entry).mkdir(parents=True)
    with subprocess.Popen(
        [packages.first.path, f"--install-path={tmp_path}/opp"],
        env={**clean_environment(), **without_flock(tmp_path / "shims")},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        assert "waiting for another installation" in process.stdout.readline()
        assert (lock / entry).is_dir() and installed(tmp_path / "opp") is None
        (lock / entry).rmdir()
        assert process.wait(timeout=120) == 0
    assert set(installed(tmp_path / "opp") or {}) == set(packages.first.files)
    assert not lock.exists()
