# SPDX-License-Identifier: Apache-2.0
"""What a person sees who runs a package, well or badly."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from csrc.run_package.build import LIBRARY, build
from vllm_ascend import soc

from .conftest import (
    ARCH,
    Packages,
    clean_environment,
    installed,
    run_package,
    said,
    stage,
    state,
    without_flock,
)

PLACE = "vendors/batch_invariant"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
PRIVATE_MOUNTS = ("unshare", "--mount", "--propagation=private")

# What the package may rely on besides a POSIX shell: coreutils, tar and gzip.
BASE_TOOLS = [
    "cat",
    "df",
    "dirname",
    "head",
    "ln",
    "ls",
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


@pytest.mark.parametrize("shell", ["dash", "bash", "zsh"])
def test_a_relative_path_needs_a_directory_that_is_there(
    packages: Packages, tmp_path: Path, shell: str
) -> None:
    command = f'mkdir gone; cd gone; rmdir ../gone; exec {shell} "$@"'
    done = run_package(
        packages.first.path,
        f"--install-path=relative-{tmp_path.name}",
        cwd=tmp_path,
        prefix=("sh", "-c", command, "sh"),
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith(
        "the current directory is gone: give an absolute path"
    )
    assert not Path(f"/relative-{tmp_path.name}").exists()


def test_the_current_directorys_name_may_end_in_a_newline(
    packages: Packages, tmp_path: Path
) -> None:
    here = tmp_path / "here\n"
    here.mkdir()
    assert run_package(packages.first.path, "--install-path=opp", cwd=here).returncode == 0
    assert installed(here / "opp") and list(tmp_path.iterdir()) == [here]


def test_what_cannot_be_told_is_done_all_the_same(packages: Packages, tmp_path: Path) -> None:
    for stream in (">&-", ">/dev/full"):
        for options in ([], ["--uninstall"]):
            done = run_package(
                packages.first.path,
                *options,
                f"--install-path={tmp_path}/opp",
                prefix=("sh", "-c", f'exec "$@" {stream}', "sh"),
            )
            assert (done.returncode, done.stderr) == (0, "")
            assert bool(installed(tmp_path / "opp")) == (not options)


@pytest.mark.parametrize(("name", "hint"), [("it's", "source its bin/"), ("a:b", "elsewhere")])
def test_how_to_use_it_is_said_as_it_can_be_typed(
    packages: Packages, tmp_path: Path, name: str, hint: str
) -> None:
    done = run_package(packages.first.path, f"--install-path={tmp_path}/{name}")
    assert hint in done.stdout.splitlines()[-1]


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
        (["--upgrade", "--uninstall"], "--upgrade and --uninstall"),
        (["--list", "--force"], "--list installs nothing"),
        (["--version", "--install-for-all"], "--version installs nothing"),
        (["--uninstall", "--install-for-all"], "--uninstall installs nothing"),
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


@pytest.mark.parametrize(
    ("custom", "opp", "place"),
    [
        ("{}/a", None, "a"),
        ("{}/a/", None, "a"),
        ("{}/a/vendors/batch_invariant/", None, "a"),  # as set_env.bash leaves it
        ("{}/a/vendors/vendors/more", None, "a/vendors"),
        (":{}/a/vendors/another:{}/d/vendors/more", "{}/e", "a"),
        ("::{}/missing/vendors/gone:{}/there", None, "missing"),
        ("{}/there:{}/missing", None, "there"),
        ("a b/vendors/ü", None, "a b"),
        (":", "{}/f", "f"),
        ("", "{}/f//", "f"),
        (None, "f", "f"),
    ],
)
def test_without_a_path_it_goes_beside_the_first_custom_entry(
    packages: Packages, tmp_path: Path, custom: str | None, opp: str | None, place: str
) -> None:
    (tmp_path / "there").mkdir()
    variables = {"ASCEND_CUSTOM_OPP_PATH": custom, "ASCEND_OPP_PATH": opp}
    env = {name: text.replace("{}", str(tmp_path)) for name, text in variables.items() if text}
    for action in ((), ("--upgrade",)):
        done = run_package(packages.first.path, *action, cwd=tmp_path, env=env)
        assert done.returncode == 0, done.stderr
    assert installed(tmp_path / place)
    assert {path.name for path in tmp_path.iterdir()} == {"there", place.split("/")[0]}
    assert run_package(packages.second.path, "--uninstall", cwd=tmp_path, env=env).returncode == 0
    assert installed(tmp_path / place) is None


@as_root
@pytest.mark.parametrize(
    ("arguments", "env"),
    [
        (("--install-path=/",), {}),
        ((), {"ASCEND_OPP_PATH": "/"}),
        ((), {"ASCEND_CUSTOM_OPP_PATH": "//"}),
        ((), {"ASCEND_CUSTOM_OPP_PATH": "/vendors/another"}),
    ],
)
def test_the_root_directory_is_a_place_like_any_other(
    packages: Packages, tmp_path: Path, arguments: tuple[str, ...], env: dict[str, str]
) -> None:
    """That of a file system made here, with the machine's programs in it."""
    for name in ("usr", "bin", "lib", "lib64", "proc", "dev"):
        if Path("/", name).exists():
            (tmp_path / name).mkdir()
    binds = [f"mount --rbind /{path.name} '{path}'" for path in sorted(tmp_path.iterdir())]
    shutil.copy(packages.first.path, tmp_path / "package.run")
    script = "\n".join([*binds, f"exec chroot '{tmp_path}' /bin/sh /package.run \"$@\""])
    command = ("sh", "-euc", script, "sh", *arguments)
    done = run_package(*command, env=env, prefix=PRIVATE_MOUNTS)
    assert done.returncode == 0, done.stderr
    assert " '/vendors/batch_invariant/bin/set_env.bash'\n" in done.stdout
    assert set(installed(tmp_path) or {}) == set(packages.first.files)


def test_without_any_place_it_asks_for_one(packages: Packages, tmp_path: Path) -> None:
    assert "--install-path=DIR" in said(run_package(packages.first.path, cwd=tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_package_for_another_processor_is_refused(packages: Packages, tmp_path: Path) -> None:
    line = said(run_package(packages.other_arch.path, f"--install-path={tmp_path}/x"))
    assert "this machine is" in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("action", ["install", "--upgrade", "--uninstall"])
def test_another_socs_package_is_left_alone_unless_forced(
    packages: Packages, tmp_path: Path, action: str
) -> None:
    assert run_package(packages.other_soc.path, f"--install-path={tmp_path}").returncode == 0
    before = state(tmp_path)
    arguments = [f"--install-path={tmp_path}", *([] if action == "install" else [action])]
    line = said(run_package(packages.second.path, *arguments))
    assert "soc=ascend910b" in line and "soc=cpu" in line and "--force" in line
    assert state(tmp_path) == before
    done = run_package(packages.second.path, "--force", *arguments)
    assert done.returncode == 0, done.stderr
    found = installed(tmp_path)
    assert (
        found is None if action == "--uninstall" else set(found or {}) == set(packages.first.files)
    )


@pytest.mark.parametrize("slot", ["directory", "file", "dangling link"])
def test_what_lies_in_a_slot_is_not_in_the_way(
    packages: Packages, tmp_path: Path, slot: str
) -> None:
    place = tmp_path / "vendors/.batch_invariant.0"
    place.parent.mkdir()
    if slot == "directory":
        place.mkdir()
        (place / "mine").write_text("x")
    elif slot == "file":
        place.write_text("x")
    else:
        place.symlink_to("nowhere")
    done = run_package(packages.first.path, f"--install-path={tmp_path}")
    assert done.returncode == 0, done.stderr
    assert set(installed(tmp_path) or {}) == set(packages.first.files)
    if slot == "directory":
        assert (tmp_path / "vendors/batch_invariant.kept.1/mine").read_text() == "x"
    else:
        assert os.path.lexists(place)


@pytest.mark.parametrize("name", [".batch_invariant.link", ".batch_invariant.lock"])
def test_what_has_a_name_of_the_installers_own_is_named(
    packages: Packages, tmp_path: Path, name: str
) -> None:
    place = tmp_path / "vendors" / name
    place.parent.mkdir()
    if name.endswith("link"):
        place.mkdir()
    else:
        place.write_text("x")
    before = state(tmp_path)
    env = without_flock(tmp_path.with_name(f"{tmp_path.name} shims"))
    line = said(run_package(packages.first.path, f"--install-path={tmp_path}", env=env))
    assert f"{place} is in the way" in line and "remove it" in line
    assert state(tmp_path) == before


def test_upgrade_replaces_an_older_version_only(packages: Packages, tmp_path: Path) -> None:
    argument = f"--install-path={tmp_path}"
    line = said(run_package(packages.second.path, "--upgrade", argument))
    assert "nothing is installed" in line and "leave out --upgrade" in line
    assert list(tmp_path.iterdir()) == []
    assert run_package(packages.first.path, argument).returncode == 0
    done = run_package(packages.second.path, "--upgrade", argument)
    assert done.returncode == 0, done.stderr
    assert "version=0.2.0" in (tmp_path / PLACE / "version.info").read_text()
    before = state(tmp_path)
    again = run_package(packages.second.path, "--upgrade", argument)
    assert again.returncode == 0 and "already" in again.stdout
    line = said(run_package(packages.first.path, "--upgrade", argument))
    assert "holds version 0.2.0, this is 0.1.0" in line
    assert state(tmp_path) == before
    assert run_package(packages.first.path, argument).returncode == 0
    assert "version=0.1.0" in (tmp_path / PLACE / "version.info").read_text()


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("0.9", "0.10"),
        ("0.1.0", "0.1.0.1"),
        ("0.08", "0.9"),
        ("1.0rc9", "1.0"),
        ("1.0rc2", "1.0rc10"),
        ("0.9", "1.0rc1"),
        ("1", "2"),
    ],
)
def test_versions_are_compared_as_numbers(tmp_path: Path, older: str, newer: str) -> None:
    tree = stage(tmp_path / "tree", size=100)
    made = {
        version: build(tree, soc.resolve("cpu"), tmp_path, version=version).path
        for version in (older, newer)
    }
    argument = f"--install-path={tmp_path}/opp"
    assert run_package(made[older], argument).returncode == 0
    assert run_package(made[newer], "--upgrade", argument).returncode == 0
    said(run_package(made[older], "--upgrade", argument))


@pytest.mark.parametrize("version", ["", "x", "1.0rc", "1rc1rc2", "0.1.0-dirty"])
def test_a_version_nobody_can_compare_is_named(
    packages: Packages, tmp_path: Path, version: str
) -> None:
    assert run_package(packages.first.path, f"--install-path={tmp_path}").returncode == 0
    info = tmp_path / PLACE / "version.info"
    info.write_text(info.read_text().replace("version=0.1.0", f"version={version}"))
    line = said(run_package(packages.second.path, "--upgrade", f"--install-path={tmp_path}"))
    assert "cannot compare" in line


@as_root
def test_install_for_all_refuses_what_others_cannot_reach(
    packages: Packages, tmp_path: Path
) -> None:
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    line = said(
        run_package(packages.first.path, "--install-for-all", f"--install-path={private}/opp")
    )
    assert f"others cannot enter {private}:" in line
    assert list(private.iterdir()) == []
    assert run_package(packages.first.path, f"--install-path={private}/opp").returncode == 0
    argument = f"--install-path={tmp_path}/opp"
    done = run_package(packages.first.path, "--install-for-all", argument, umask=0o077)
    assert done.returncode == 0, done.stderr
    library = tmp_path / "opp" / PLACE / LIBRARY
    subprocess.run([*NOBODY, "cat", str(library)], check=True, stdout=subprocess.DEVNULL)


def test_another_socs_package_of_the_same_version_is_none_of_the_same(
    packages: Packages, tmp_path: Path
) -> None:
    argument = f"--install-path={tmp_path}"
    assert run_package(packages.other_soc.path, argument).returncode == 0
    done = run_package(packages.first.path, "--upgrade", "--force", argument)
    assert done.returncode == 0 and "already" not in done.stdout, done.stdout + done.stderr
    assert "soc=cpu" in (tmp_path / PLACE / "version.info").read_text()


def test_list_names_what_is_installed(packages: Packages, tmp_path: Path) -> None:
    done = run_package(packages.first.path, "--list", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == list(packages.first.files)
    assert run_package(packages.other_arch.path, "--list").returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_version_says_what_it_is_and_for_what(packages: Packages) -> None:
    for package, expected in (
        (packages.first, f"cann-ops-batch_invariant 0.1.0 (soc=cpu, {ARCH})"),
        (packages.other_soc, f"cann-ops-batch_invariant 0.1.0 (soc=ascend910b, {ARCH})"),
    ):
        done = run_package(package.path, "--version")
        assert (done.returncode, done.stdout) == (0, f"{expected}\n")


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


@pytest.mark.parametrize("shell", ["dash", "bash", "bash --posix", "busybox sh", "mksh", "zsh"])
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


Uninstall = Callable[[Packages, Path], "subprocess.CompletedProcess[str]"]


def by_script(packages: Packages, prefix: Path) -> subprocess.CompletedProcess[str]:
    return run_package(prefix / PLACE / "scripts/uninstall.sh", umask=0o077)


def by_package(packages: Packages, prefix: Path) -> subprocess.CompletedProcess[str]:
    """Of another version than the one installed."""
    return run_package(packages.second.path, "--uninstall", f"--install-path={prefix}")


@pytest.mark.parametrize("uninstall", [by_script, by_package])
def test_uninstalling_removes_what_was_installed_and_no_more(
    packages: Packages, tmp_path: Path, uninstall: Uninstall
) -> None:
    (tmp_path / "vendors/another").mkdir(parents=True)
    (tmp_path / "vendors/another/file").write_text("x")
    before = state(tmp_path)
    for _ in range(2):
        assert run_package(packages.first.path, f"--install-path={tmp_path}").returncode == 0
        done = uninstall(packages, tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stdout == f"removed {tmp_path}/{PLACE}\n"
        assert state(tmp_path) == before


@pytest.mark.parametrize("uninstall", [by_script, by_package])
def test_uninstalling_keeps_files_of_others(
    packages: Packages, tmp_path: Path, uninstall: Uninstall
) -> None:
    for number in ("1", "2"):
        assert run_package(packages.first.path, f"--install-path={tmp_path}").returncode == 0
        (tmp_path / PLACE / "op_api/mine").write_text(number)
        (tmp_path / PLACE / "scripts/.mine").write_text(number)
        done = uninstall(packages, tmp_path)
        assert done.returncode == 0, done.stderr
        assert installed(tmp_path) is None
        kept = tmp_path / f"vendors/batch_invariant.kept.{number}"
        assert str(kept) in done.stdout
        assert set(state(kept)) == {"op_api", "op_api/mine", "scripts", "scripts/.mine"}
        assert (kept / "op_api/mine").read_text() == number


def test_replacing_keeps_files_of_others(packages: Packages, tmp_path: Path) -> None:
    assert run_package(packages.first.path, f"--install-path={tmp_path}").returncode == 0
    (tmp_path / PLACE / "op_api/mine").write_text("x")
    done = run_package(packages.second.path, f"--install-path={tmp_path}")
    assert done.returncode == 0, done.stderr
    assert set(installed(tmp_path) or {}) == set(packages.second.files)
    assert f"{tmp_path}/vendors/batch_invariant.kept.1\n" in done.stdout
    assert set(state(tmp_path / "vendors/batch_invariant.kept.1")) == {"op_api", "op_api/mine"}


def test_uninstalling_removes_nothing_outside_whatever_the_list_says(
    packages: Packages, tmp_path: Path
) -> None:
    assert run_package(packages.first.path, f"--install-path={tmp_path}").returncode == 0
    outside = tmp_path / "vendors/mine"
    outside.write_text("x")
    with (tmp_path / PLACE / "scripts/files.sha256").open("a") as file:
        file.write(f"0  ../mine\n0  op_api/../../mine\n0  {outside}\n")
    assert by_script(packages, tmp_path).returncode == 0
    assert state(tmp_path / "vendors").keys() == {"mine"}


def test_where_nothing_is_installed_nothing_is_uninstalled(
    packages: Packages, tmp_path: Path
) -> None:
    for prefix in (tmp_path, tmp_path / "missing"):
        argument = f"--install-path={prefix}"
        line = said(run_package(packages.first.path, "--uninstall", argument))
        assert f"nothing is installed in {prefix}/{PLACE}" in line
    assert list(tmp_path.iterdir()) == []


@as_root
def test_read_only_target_is_one_line(packages: Packages, tmp_path: Path) -> None:
    target = tmp_path / "a target"
    assert run_package(packages.first.path, f"--install-path={target}").returncode == 0
    before = state(target)
    script = f"mount --bind '{target}' '{target}'; mount -o remount,bind,ro '{target}'; exec \"$@\""
    for arguments in ((), ("--upgrade",), ("--uninstall",)):
        command = (str(packages.second.path), f"--install-path={target}", *arguments)
        done = run_package("sh", "-euc", script, "sh", *command, prefix=PRIVATE_MOUNTS)
        assert f"cannot write to {target}/vendors" in said(done)
    uninstall = f"{target}/{PLACE}/scripts/uninstall.sh"
    said(run_package("sh", "-euc", script, "sh", uninstall, prefix=PRIVATE_MOUNTS))
    new = (str(packages.second.path), f"--install-path={target}/new")
    done = run_package("sh", "-euc", script, "sh", *new, prefix=PRIVATE_MOUNTS)
    assert f"cannot create {target}/new/vendors" in said(done)
    assert state(target) == before


def test_uninstaller_of_a_replaced_package_does_nothing(packages: Packages, tmp_path: Path) -> None:
    assert run_package(packages.first.path, f"--install-path={tmp_path}").returncode == 0
    copy = tmp_path / "vendors/copy"
    shutil.copytree(tmp_path / PLACE, copy)
    before = state(tmp_path)
    said(run_package(copy / "scripts/uninstall.sh"))
    said(run_package(tmp_path / PLACE / "scripts/uninstall.sh", "--help"))
    assert state(tmp_path) == before
