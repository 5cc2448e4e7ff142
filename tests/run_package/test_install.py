# SPDX-License-Identifier: Apache-2.0
"""What a person sees who runs a package, well or badly."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from csrc.run_package.build import LIBRARY

from .conftest import Packages, clean_environment, installed, run_package, said, state

PLACE = "vendors/batch_invariant"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")

# What the package may rely on besides a POSIX shell: coreutils, tar and gzip.
BASE_TOOLS = [
    "cat",
    "df",
    "dirname",
    "head",
    "ln",
    "mkdir",
    "mktemp",
    "mv",
    "readlink",
    "rm",
    "rmdir",
]
BASE_TOOLS += ["sha256sum", "sleep", "sync", "tail", "uname", "wc", "tar", "gzip"]


@pytest.fixture
def base_tools(tmp_path: Path) -> Path:
    """A PATH of exactly the base tools: no flock, find, sed, awk or grep."""
    folder = tmp_path / "base tools"
    folder.mkdir()
    for tool in ("sh", *BASE_TOOLS):
        found = shutil.which(tool)
        assert found, tool
        (folder / tool).symlink_to(found)
    return folder


def test_layout_is_that_of_an_operator_package(packages: Packages, tmp_path: Path) -> None:
    done = run_package(packages.first.path, f"--install-path={tmp_path}")
    assert done.returncode == 0, done.stderr
    assert f"in {tmp_path}/{PLACE}" in done.stdout
    assert set(installed(tmp_path) or {}) == set(packages.first.files)
    assert {
        "op_api/include/batch_invariant.h",
        LIBRARY,
        "version.info",
        "scripts/uninstall.sh",
        "bin/set_env.bash",
    } <= set(packages.first.files)


def test_only_the_package_is_in_the_vendors_directory(packages: Packages, tmp_path: Path) -> None:
    for package in (packages.first, packages.second, packages.second):
        assert run_package(package.path, f"--install-path={tmp_path}").returncode == 0
        entries = sorted(path.name for path in (tmp_path / "vendors").iterdir())
        assert len(entries) == 2 and entries[1] == "batch_invariant", entries


def test_two_fresh_installations_are_alike(packages: Packages, tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert run_package(packages.first.path, f"--install-path={tmp_path / name}").returncode == 0
    assert state(tmp_path / "a") == state(tmp_path / "b")


def test_reinstalling_repairs_a_damaged_installation(packages: Packages, tmp_path: Path) -> None:
    assert run_package(packages.first.path, f"--install-path={tmp_path}").returncode == 0
    good = installed(tmp_path)
    (tmp_path / PLACE / LIBRARY).write_bytes(b"damaged")
    (tmp_path / PLACE / "bin/set_env.bash").unlink()
    assert installed(tmp_path) != good
    assert run_package(packages.first.path, f"--install-path={tmp_path}").returncode == 0
    assert installed(tmp_path) == good


def test_another_version_replaces_the_installed_one_whole(
    packages: Packages, tmp_path: Path
) -> None:
    assert run_package(packages.first.path, f"--install-path={tmp_path}").returncode == 0
    first = installed(tmp_path)
    assert run_package(packages.second.path, f"--install-path={tmp_path}").returncode == 0
    assert installed(tmp_path) != first
    assert "version=0.2.0" in (tmp_path / PLACE / "version.info").read_text()


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o000], ids=oct)
def test_others_can_read_but_not_write_whatever_the_umask(
    packages: Packages, tmp_path: Path, umask: int
) -> None:
    prefix = tmp_path / "new" / "prefix"
    done = run_package(packages.first.path, f"--install-path={prefix}", umask=umask)
    assert done.returncode == 0, done.stderr
    place = (prefix / PLACE).resolve()
    for path in (prefix.parent, prefix, prefix / "vendors", place, *place.rglob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        runs = path.is_dir() or path.name == "uninstall.sh"
        assert mode == (0o755 if runs else 0o644), f"{path}: {mode:o}"


@pytest.mark.parametrize(
    "name", ["plain", "with spaces", "umlaut ü 中文", "quote'\"$x`", "-dash", "trailing/"]
)
def test_any_name_of_a_directory_works(packages: Packages, tmp_path: Path, name: str) -> None:
    for argument in (f"{tmp_path}/{name}", name):
        done = run_package(packages.first.path, f"--install-path={argument}", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert set(installed(tmp_path / name) or {}) == set(packages.first.files)


def test_package_itself_may_lie_anywhere(packages: Packages, tmp_path: Path) -> None:
    folder = tmp_path / "ein Ordner ü"
    folder.mkdir()
    copy = folder / "a package.run"
    shutil.copy(packages.first.path, copy)
    for command in (["./a package.run"], ["sh", "a package.run"], ["bash", "a package.run"]):
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        done = run_package(
            command[-1], "--install-path=../out", cwd=folder, prefix=tuple(command[:-1])
        )
        assert done.returncode == 0, done.stderr
        assert installed(tmp_path / "out")


def test_leading_dashes_of_other_installers_are_tolerated(
    packages: Packages, tmp_path: Path
) -> None:
    done = run_package(packages.first.path, "--", f"--install-path={tmp_path}", "--quiet")
    assert done.returncode == 0 and installed(tmp_path)


def test_quiet_says_nothing_unless_something_is_wrong(packages: Packages, tmp_path: Path) -> None:
    done = run_package(packages.first.path, "--quiet", f"--install-path={tmp_path}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    checked = run_package(packages.first.path, "--check", "--quiet")
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
    assert said(run_package(packages.other_soc.path, "--quiet", f"--install-path={tmp_path}"))


def test_check_compares_each_embedded_file_and_installs_nothing(
    packages: Packages, tmp_path: Path
) -> None:
    target, temporary = tmp_path / "opp", tmp_path / "tmp"
    target.mkdir()
    temporary.mkdir()
    env = {"ASCEND_OPP_PATH": str(target), "TMPDIR": str(temporary)}
    done = run_package(packages.first.path, "--check", cwd=target, env=env)
    assert done.returncode == 0, done.stderr
    for name in set(packages.first.files) - {"scripts/files.sha256"}:
        assert f"{name}: OK\n" in done.stdout
    assert list(target.iterdir()) == list(temporary.iterdir()) == []


def test_check_works_for_a_package_of_another_processor(packages: Packages) -> None:
    assert run_package(packages.other_arch.path, "--check").returncode == 0


def test_help_shows_an_example_that_works(packages: Packages, tmp_path: Path) -> None:
    text = run_package(packages.first.path, "--help").stdout
    example = text.split("Example:\n")[1].replace("./", f"{packages.first.path.parent}/")
    done = subprocess.run(
        ["bash", "-euc", f"{example}\nprintf %s $ASCEND_CUSTOM_OPP_PATH"],
        env={**clean_environment(), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(f"{tmp_path}/opp/{PLACE}")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--instal-path=/x"], "--instal-path=/x"),
        (["--install-path", "/x"], "--install-path=DIR"),
        (["--install-path="], "--install-path=DIR"),
        (["/x"], "/x"),
        (["--", "--", "--install-path=/x"], "--"),
        (["--check", "--install-path=/x"], "--check installs nothing"),
        (["-q"], "-q"),
        *([[option], option] for option in ("--upgrade", "--force", "--uninstall", "--list")),
    ],
)
def test_an_unknown_option_is_an_error(
    packages: Packages, tmp_path: Path, arguments: list[str], named: str
) -> None:
    target = {"ASCEND_OPP_PATH": str(tmp_path)}
    done = run_package(packages.first.path, *arguments, env=target)
    assert done.returncode == 2
    assert named in said(done) and "--help" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_without_a_path_it_goes_beside_the_first_custom_entry(
    packages: Packages, tmp_path: Path
) -> None:
    def install(custom: str | None, opp: str | None = None) -> None:
        env = {"ASCEND_CUSTOM_OPP_PATH": custom, "ASCEND_OPP_PATH": opp}
        given = {key: value for key, value in env.items() if value is not None}
        done = run_package(packages.first.path, env=given)
        assert done.returncode == 0, done.stderr

    install(f"{tmp_path}/a")
    assert installed(tmp_path / "a")
    install(f"{tmp_path}/b/vendors/batch_invariant/")  # as set_env.bash leaves it
    assert installed(tmp_path / "b")
    install(f":{tmp_path}/c/vendors/another:{tmp_path}/d/vendors/more", f"{tmp_path}/e")
    assert installed(tmp_path / "c")
    install(":", f"{tmp_path}/f")
    assert installed(tmp_path / "f")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c", "f"]


def test_without_any_place_it_asks_for_one(packages: Packages, tmp_path: Path) -> None:
    assert "--install-path=DIR" in said(run_package(packages.first.path, cwd=tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_package_for_another_processor_is_refused(packages: Packages, tmp_path: Path) -> None:
    line = said(run_package(packages.other_arch.path, f"--install-path={tmp_path}/x"))
    assert "this machine is" in line
    assert list(tmp_path.iterdir()) == []


def test_another_socs_package_is_not_replaced(packages: Packages, tmp_path: Path) -> None:
    assert run_package(packages.other_soc.path, f"--install-path={tmp_path}").returncode == 0
    before = state(tmp_path)
    line = said(run_package(packages.first.path, f"--install-path={tmp_path}"))
    assert "soc=ascend910b" in line and "soc=cpu" in line
    assert state(tmp_path) == before


@pytest.mark.parametrize("kind", ["directory", "link", "file", "ours without version.info"])
def test_a_foreign_package_is_not_touched(packages: Packages, tmp_path: Path, kind: str) -> None:
    place = tmp_path / PLACE
    place.parent.mkdir()
    if kind == "directory":
        place.mkdir()
        (place / "version.info").write_text("package=somebody-elses\n")
    elif kind == "link":
        (tmp_path / "elsewhere").mkdir()
        place.symlink_to(tmp_path / "elsewhere")
    elif kind == "file":
        place.write_text("x")
    else:
        (place.parent / ".batch_invariant.0").mkdir()
        place.symlink_to(".batch_invariant.0")
    before = state(tmp_path)
    assert str(place) in said(run_package(packages.first.path, f"--install-path={tmp_path}"))
    assert state(tmp_path) == before


def test_place_that_is_no_directory_is_an_error(packages: Packages, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for name in ("file", "file/below"):
        said(run_package(packages.first.path, f"--install-path={tmp_path}/{name}"))
    assert state(tmp_path).keys() == {"file"}


@as_root
def test_one_who_is_not_root_can_install(packages: Packages, tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    mine = tmp_path / "mine"
    mine.mkdir()
    os.chown(mine, 65534, 65534)
    argument = f"--install-path={mine}/opp"
    for package in (packages.first, packages.second):
        done = run_package(package.path, argument, prefix=NOBODY, umask=0o077)
        assert done.returncode == 0, done.stderr
    assert set(installed(mine / "opp") or {}) == set(packages.second.files)
    assert (mine / "opp" / PLACE / LIBRARY).stat().st_uid == 65534


@as_root
def test_directory_one_may_not_write_to_is_an_error(packages: Packages, tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    for name in ("opp", "opp/vendors"):
        target = tmp_path / name
        target.mkdir()
        line = said(run_package(packages.first.path, f"--install-path={target}", prefix=NOBODY))
        assert "you may write to" in line
    assert run_package(packages.first.path, f"--install-path={tmp_path}/opp").returncode == 0
    before = state(tmp_path)
    said(run_package(packages.second.path, f"--install-path={tmp_path}/opp", prefix=NOBODY))
    assert state(tmp_path) == before


def test_base_tools_are_enough(packages: Packages, tmp_path: Path, base_tools: Path) -> None:
    env = {"PATH": str(base_tools), "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")}
    for package in (packages.first, packages.second):
        done = run_package(package.path, f"--install-path={tmp_path}/opp", env=env)
        assert done.returncode == 0, done.stderr
    assert run_package(packages.first.path, "--check", env=env).returncode == 0
    assert set(installed(tmp_path / "opp") or {}) == set(packages.second.files)
    done = run_package(tmp_path / "opp" / PLACE / "scripts/uninstall.sh", env=env)
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "opp").iterdir()) == []


@pytest.mark.parametrize("shell", ["dash", "bash", "bash --posix", "busybox sh", "mksh"])
def test_any_posix_shell_will_do(packages: Packages, tmp_path: Path, shell: str) -> None:
    command = tuple(shell.split())
    if shutil.which(command[0]) is None:
        pytest.skip(f"skipped: no {command[0]}")
    for package in (packages.first, packages.second):
        done = run_package(package.path, f"--install-path={tmp_path}/o p", prefix=command)
        assert done.returncode == 0, done.stderr
    assert set(installed(tmp_path / "o p") or {}) == set(packages.second.files)
    uninstaller = tmp_path / "o p" / PLACE / "scripts/uninstall.sh"
    assert run_package(uninstaller, prefix=command).returncode == 0
    assert list((tmp_path / "o p").iterdir()) == []


@pytest.mark.parametrize("tool", [tool for tool in BASE_TOOLS if tool != "sync"])
def test_a_missing_tool_is_named(
    packages: Packages, tmp_path: Path, base_tools: Path, tool: str
) -> None:
    (base_tools / tool).unlink()
    env = {"PATH": str(base_tools)}
    done = run_package(packages.first.path, f"--install-path={tmp_path}/opp", env=env)
    assert f"needs the command '{tool}'" in said(done)
    assert not (tmp_path / "opp").exists()


def sourced(script: Path, *, times: int = 1, cwd: Path = Path("/"), **env: str) -> str:
    lines = [f"source '{script}'"] * times
    program = "\n".join(["set -euo pipefail", "before=$(declare -F)", *lines])
    program += '\n[[ $(declare -F) == "$before" ]]; printf %s "$ASCEND_CUSTOM_OPP_PATH"'
    done = subprocess.run(
        ["bash", "-c", program],
        env={**clean_environment(), **env},
        cwd=cwd,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return done.stdout


def test_set_env_puts_the_package_first_once(packages: Packages, tmp_path: Path) -> None:
    prefix = tmp_path / "an opp ü"
    assert run_package(packages.first.path, f"--install-path={prefix}").returncode == 0
    place = f"{prefix}/{PLACE}"
    script = Path(place) / "bin/set_env.bash"
    assert sourced(script) == place
    assert sourced(script, times=3) == place
    assert sourced(script, ASCEND_CUSTOM_OPP_PATH="") == place
    assert sourced(script, ASCEND_CUSTOM_OPP_PATH=":/a b::/c:") == f"{place}:/a b:/c"
    assert sourced(script, ASCEND_CUSTOM_OPP_PATH=f"/a:{place}:/b") == f"{place}:/a:/b"
    assert sourced(Path(f"{PLACE}/bin/set_env.bash"), cwd=prefix, CDPATH=str(tmp_path)) == place
    # Through its real directory too: the entry has to survive a replacement.
    assert sourced(script.resolve()) == place
    prefix.rename(tmp_path / "moved")
    moved = f"{tmp_path}/moved/{PLACE}"
    assert sourced(Path(moved) / "bin/set_env.bash") == moved


def test_uninstalling_removes_what_was_installed_and_no_more(
    packages: Packages, tmp_path: Path
) -> None:
    (tmp_path / "vendors/another").mkdir(parents=True)
    (tmp_path / "vendors/another/file").write_text("x")
    before = state(tmp_path)
    for umask in (0o022, 0o077):
        assert run_package(packages.first.path, f"--install-path={tmp_path}").returncode == 0
        done = run_package(tmp_path / PLACE / "scripts/uninstall.sh", umask=umask)
        assert done.returncode == 0, done.stderr
        assert state(tmp_path) == before


def test_uninstalling_keeps_files_of_others(packages: Packages, tmp_path: Path) -> None:
    assert run_package(packages.first.path, f"--install-path={tmp_path}").returncode == 0
    (tmp_path / PLACE / "op_api/mine").write_text("x")
    done = run_package("./uninstall.sh", cwd=tmp_path / PLACE / "scripts")
    assert done.returncode == 0, done.stderr
    assert installed(tmp_path) is None
    (kept,) = (tmp_path / "vendors").glob("batch_invariant.kept.*")
    assert str(kept) in done.stdout
    assert [name for name in state(kept) if "mine" in name] == ["op_api/mine"]
    assert len(state(kept)) == 2
    assert run_package(packages.first.path, f"--install-path={tmp_path}").returncode == 0
    assert (kept / "op_api/mine").read_text() == "x"


def test_uninstaller_of_a_replaced_package_does_nothing(packages: Packages, tmp_path: Path) -> None:
    assert run_package(packages.first.path, f"--install-path={tmp_path}").returncode == 0
    copy = tmp_path / "vendors/copy"
    shutil.copytree(tmp_path / PLACE, copy)
    before = state(tmp_path)
    said(run_package(copy / "scripts/uninstall.sh"))
    said(run_package(tmp_path / PLACE / "scripts/uninstall.sh", "--help"))
    assert state(tmp_path) == before
