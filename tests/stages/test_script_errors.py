# SPDX-License-Identifier: Apache-2.0
"""The build script stops at what is missing, with one line that says what to do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from csrc import stages
from csrc.run_package.build import LIBRARY, build
from tests.run_package.conftest import stage as staged
from tests.small_disk import disk_of
from vllm_ascend import soc

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "csrc/build_batch_invariant_ops.sh"
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


def script(
    *arguments: str, prefix: tuple[str, ...] = (), cwd: Path | str = "/", **env: str
) -> subprocess.CompletedProcess[str]:
    unwanted = {
        "ASCEND_CUSTOM_OPP_PATH",
        "ASCEND_HOME_PATH",
        "ASCEND_TOOLKIT_HOME",
        "CXX",
        "PYTHONPATH",
    }
    environ = {key: value for key, value in os.environ.items() if key not in unwanted}
    return subprocess.run(
        [*prefix, shutil.which("bash") or "bash", str(SCRIPT), *arguments],
        cwd=cwd,
        env={**environ, "PYTHON": sys.executable, **env},
        capture_output=True,
        text=True,
    )


def said(done: subprocess.CompletedProcess[str], status: int = 1) -> str:
    """The last line of a failed run, which is the script's own."""
    assert done.returncode == status, done.stdout + done.stderr
    line = done.stderr.splitlines()[-1]
    assert line.startswith("build_batch_invariant_ops: ")
    return line


def only(done: subprocess.CompletedProcess[str], status: int = 1) -> str:
    """As said(), where there is nothing else to show."""
    assert done.stderr.count("\n") == 1, done.stderr
    return said(done, status)


@pytest.fixture
def few_tools(tmp_path: Path) -> Path:
    """A PATH on which a test puts what it wants to be found."""
    folder = tmp_path / "few tools"
    folder.mkdir()
    for tool in ("bash", "sh", "dirname", "env"):
        (folder / tool).symlink_to(shutil.which(tool) or tool)
    return folder


def fake(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def test_an_unknown_soc_is_an_error_that_lists_the_known_ones() -> None:
    line = only(script("h100"))
    assert "'h100'" in line and all(row.name in line for row in soc.rows())


def test_an_unsupported_chip_is_named() -> None:
    assert "'310P3' is not supported" in only(script("310P3"))


def test_an_npu_is_not_built_here_and_the_script_says_what_is_missing() -> None:
    line = only(script("ascend910_9392"))
    assert "the AscendC sources of the operators for ascend910_93 (Atlas A3) are missing" in line


def spellings(row: soc.Soc) -> Iterator[str]:
    """Every way of the table to write a row, with a number where it leaves one open."""
    yield from (row.name, *row.targets, *row.aliases)
    yield from (f"{prefix}1" for prefix in row.prefixes)
    for chip in row.chips:
        yield from (chip.replace("*", "92"), chip.replace("*", "92").upper())


@pytest.mark.parametrize("row", [row for row in soc.rows() if row.is_npu], ids=lambda row: row.name)
def test_every_spelling_of_an_npu_is_refused_as_its_row_is(row: soc.Soc) -> None:
    with pytest.raises(stages.StageError) as expected:
        stages.check_soc(row)
    for spelling in spellings(row):
        with pytest.raises(stages.StageError) as found:
            stages.execute(stages.parse([spelling]))
        assert str(found.value) == str(expected.value), spelling


def test_on_a_login_node_the_soc_has_to_be_named() -> None:
    assert "name the SoC" in only(script(ASCEND_HOME_PATH="/opt/cann"))


@pytest.mark.parametrize(
    "arguments",
    [("cpu", "--install"), ("cpu", "--stage", "3"), ("cpu", "cpu"), ("cpu", "-j", "0")],
)
def test_an_unknown_option_is_an_error(arguments: tuple[str, ...]) -> None:
    assert "--help" in only(script(*arguments), status=2)


def test_options_that_contradict_each_other_are_refused() -> None:
    assert "--run-package-only" in only(script("cpu", "--run-package-only", "--stage", "2"), 2)


def test_help_names_every_soc() -> None:
    done = script("--help")
    assert done.returncode == 0
    assert all(row.name in done.stdout for row in soc.rows())


def test_python_that_is_missing_or_too_old_is_named(tmp_path: Path) -> None:
    assert "there is no 'no-such-python'" in only(script("cpu", PYTHON="no-such-python"))
    fake(tmp_path, "python", 'case $1 in --version) echo "Python 3.10.4" ;; *) exit 1 ;; esac')
    line = only(script("cpu", PYTHON=str(tmp_path / "python")))
    assert "is Python 3.10.4" in line and "3.11 or newer" in line
    fake(tmp_path, "python", "echo another program; echo its licence; exit 1")
    assert "is another program: set PYTHON to" in only(script("cpu", PYTHON=f"{tmp_path}/python"))


def test_cmake_that_is_missing_or_too_old_is_named(few_tools: Path) -> None:
    assert "there is no cmake" in only(script("cpu", PATH=str(few_tools)))
    fake(few_tools, "cmake", "echo cmake version 3.24.9")
    line = only(script("cpu", PATH=str(few_tools)))
    assert "3.24" in line and "CMake 3.25 or newer" in line
    (few_tools / "cmake").write_text("text without a first line that names an interpreter\n")
    line = only(script("cpu", PATH=str(few_tools)))
    assert f"cannot run {few_tools}/cmake" in line and "CMake 3.25 or newer" in line


def test_a_missing_compiler_is_named(few_tools: Path) -> None:
    fake(few_tools, "cmake", "echo cmake version 3.25.1")
    assert "no C++ compiler" in only(script("cpu", PATH=str(few_tools)))
    line = only(script("cpu", PATH=str(few_tools), CXX="no-such-c++ -O1"))
    assert "CXX is 'no-such-c++ -O1'" in line
    for no_command in (" ", "'g++"):
        line = only(script("cpu", PATH=str(few_tools), CXX=no_command))
        assert f"CXX is {no_command!r}, which is not a command" in line
    fake(few_tools, "g++", "exit 1")
    assert "neither ninja nor make" in only(script("cpu", PATH=str(few_tools)))


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """A virtual environment with what looks like pip and setuptools, and nothing else."""
    environment = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    (site,) = environment.glob("lib/python*/site-packages")
    for module in ("pip", "setuptools"):
        (site / module).mkdir()
        (site / module / "__init__.py").touch()
    setuptools_is(site, "79.0")
    return environment


def setuptools_is(site: Path, version: str) -> None:
    """Lets the environment state a version of setuptools."""
    for old in site.glob("setuptools-*"):
        shutil.rmtree(old)
    information = site / f"setuptools-{version}.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Name: setuptools\nVersion: {version}\n")


def test_python_without_torch_pip_or_setuptools_is_named(bare_python: Path) -> None:
    python = str(bare_python / "bin/python")
    line = only(script("cpu", PYTHON=python))
    assert f"{python} cannot import torch" in line and "No module named 'torch'" in line
    (site,) = bare_python.glob("lib/python*/site-packages")
    (site / "torch.py").write_text("raise ImportError('libgomp.so.1: cannot open')\n")
    assert "libgomp.so.1: cannot open" in only(script("cpu", PYTHON=python))
    setuptools_is(site, "65.5.1")  # what a virtual environment of Python 3.11 begins with
    line = only(script("cpu", PYTHON=python))
    assert "has setuptools 65.5.1" in line and "install 'setuptools>=" in line
    for module in ("pip", "setuptools"):
        shutil.rmtree(site / module)
        assert f"has no {module}" in only(script("cpu", PYTHON=python))
        (site / module).mkdir()
        (site / module / "__init__.py").touch()


def test_python_of_the_operating_system_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "EXTERNALLY-MANAGED").touch()
    monkeypatch.setattr(sysconfig, "get_path", lambda _name: str(tmp_path))
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    with pytest.raises(stages.StageError, match="make a virtual environment"):
        stages.check_python()


def test_a_broken_compiler_leaves_a_log_and_nothing_installed(tmp_path: Path) -> None:
    fake(tmp_path, "broken c++", "echo the compiler is broken >&2; exit 1")
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    done = script(
        *("cpu", "--stage", "1", "--install-path", str(tmp_path / "opp")),
        CXX=str(tmp_path / "broken c++").replace(" ", "\\ "),
        TMPDIR=str(temporary),
    )
    line = said(done)
    log = Path(line.rpartition("see ")[2])
    assert "stage 1 configure failed" in line
    assert log.parent == temporary and "the compiler is broken" in log.read_text()
    assert [path.name for path in temporary.iterdir()] == [log.name]
    assert not (tmp_path / "opp").exists()


@pytest.mark.parametrize(("prints", "count"), [("[3/32] a.cc", ", 3/32"), ("a.cc", "")])
def test_a_long_step_says_how_far_it_is(
    prints: str,
    count: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(stages, "PROGRESS_SECONDS", 0.2)
    shop = stages.Workshop(tmp_path, temporary=False, environ=os.environ)
    shop.run("a step", ["sh", "-c", f"echo '{prints}'; sleep 1"])
    first, *between, last = capsys.readouterr().out.splitlines()
    assert first == "  a step ..." and re.fullmatch(r"  a step: \d+ s", last)
    assert re.fullmatch(rf"  a step: \d+ s{count} \.\.\.", between[-1])


def test_stage_2_alone_asks_for_stage_1(tmp_path: Path) -> None:
    line = said(script("cpu", "--stage", "2", "--install-path", str(tmp_path)))
    assert "--stage 1" in line and f"{tmp_path}/vendors/batch_invariant" in line


def test_stage_1_is_removed_with_the_folders_that_were_its(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = build(staged(tmp_path / "tree"), soc.resolve("cpu"), tmp_path, version="0.1.0").path
    prefix = tmp_path / "prefix"
    prefix.mkdir()
    monkeypatch.setattr(sys, "prefix", str(prefix))
    for others in ([], ["share/doc"]):
        for other in others:
            (prefix / other).mkdir(parents=True)
        stages.install_run_package(package, stages.default_install_path())
        stages.remove((1,), stages.default_install_path())
        left = [path.relative_to(prefix).as_posix() for path in prefix.rglob("*")]
        assert left == (["share", "share/doc"] if others else [])


def test_what_is_not_installed_cannot_be_removed(bare_python: Path, tmp_path: Path) -> None:
    python, elsewhere = str(bare_python / "bin/python"), ("--install-path", str(tmp_path))
    line = only(script("--uninstall", PYTHON=python))
    assert "no stage 1 in " in line and f" and no batch_invariant_ops in {python}" in line
    assert f"no stage 1 in {tmp_path}" in only(script("--uninstall", "--stage=1", *elsewhere))
    assert "--uninstall builds nothing" in only(script("--uninstall", "-o", str(tmp_path)), 2)


@pytest.mark.parametrize(
    ("variable", "entry", "found"),
    [
        ("ASCEND_CUSTOM_OPP_PATH", "{root}/vendors/batch_invariant", True),
        ("ASCEND_CUSTOM_OPP_PATH", ":/elsewhere:{root}/vendors/batch_invariant//", True),
        ("ASCEND_CUSTOM_OPP_PATH", "{root}", True),
        ("ASCEND_OPP_PATH", "{root}", True),
        ("ASCEND_CUSTOM_OPP_PATH", "{root}/another_name", False),
        ("ASCEND_CUSTOM_OPP_PATH", "{root}/vendors/batch_invariant/.", False),
        ("ASCEND_CUSTOM_OPP_PATH", "{root}/vendors", False),
        ("ASCEND_OPP_PATH", "{root}/vendors/batch_invariant", False),
    ],
)
def test_stage_2_accepts_the_stage_1_that_the_wheel_finds(
    tmp_path: Path, variable: str, entry: str, found: bool
) -> None:
    root = tmp_path / "opp"
    place = root / "vendors/batch_invariant"
    (place / LIBRARY).parent.mkdir(parents=True)
    (place / LIBRARY).touch()
    (root / "another_name").symlink_to(place)
    plan = stages.parse(["cpu", "--stage", "2", "--install-path", str(tmp_path / "none")])
    environ = {variable: entry.format(root=root)}
    if found:
        assert stages.installed_stage1(plan, environ) == place
    else:
        with pytest.raises(stages.StageError, match="stage 2 needs stage 1"):
            stages.installed_stage1(plan, environ)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_prefix_one_may_not_write_to_is_an_error_before_anything_is_built() -> None:
    for arguments in (("--stage=1", "--install-path=/opp/x"), ("--run-package-only", "-o/out")):
        # The interpreter of the tests may lie where only root looks: the script's functions do.
        program = "import sys; sys.path[:0] = sys.argv.pop(1).split(':'); "
        program += "from csrc import stages; sys.exit(stages.main(sys.argv[1:]))"
        python = "/usr/bin/python3"
        if not Path(python).exists():
            pytest.skip(f"skipped: no {python} that another user can run")
        done = subprocess.run(
            [*NOBODY, python, "-B", "-c", program, str(ROOT), "cpu", *arguments],
            cwd="/",
            capture_output=True,
            text=True,
        )
        assert "cannot write to /: choose another place with --" in only(done)


def test_a_place_that_is_no_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for option in ("--install-path", "--output"):
        done = script("cpu", "--stage", "1", option, str(tmp_path / "file/below"))
        assert "is not a directory" in only(done)


def test_a_place_that_no_list_of_paths_can_hold_is_refused(tmp_path: Path) -> None:
    assert "colon" in only(script("cpu", "--stage", "1", "--install-path", f"{tmp_path}/a:b"))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with disk_of(tmp_path / "small disk", kib=64) as place:
        yield place


@pytest.mark.parametrize("option", ["TMPDIR", "--build-dir"])
def test_no_disk_space_is_one_line(small_disk: Path, tmp_path: Path, option: str) -> None:
    install = ("--install-path", str(tmp_path / "opp"))
    if option == "TMPDIR":
        done = script("cpu", "--stage", "1", *install, TMPDIR=str(small_disk))
        assert list(small_disk.iterdir()) == []
    else:
        done = script("cpu", "--stage", "1", *install, "--build-dir", str(small_disk / "b"))
    line = said(done)
    assert "no space left" in line.lower() and "--build-dir or TMPDIR" in line
    assert not (tmp_path / "opp").exists()


def plugin(folder: Path, version: str, *, entry_point: str, files: tuple[str, ...] = ()) -> None:
    """Lets `folder` state that a vllm-ascend is installed in it."""
    information = folder / f"vllm_ascend-{version}.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(f"Name: vllm-ascend\nVersion: {version}\n")
    (information / "entry_points.txt").write_text(f"[vllm.general_plugins]\na = {entry_point}\n")
    (information / "RECORD").write_text("".join(f"{name},,\n" for name in files))


OURS, UPSTREAM = "vllm_ascend:verify_platform", "vllm_ascend:register_model"


def test_a_plugin_that_goes_with_the_tree_is_passed_in_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, entry_point in (("ours", OURS), ("upstream", UPSTREAM)):
        plugin(tmp_path / name, "0.32.0", entry_point=entry_point)
        monkeypatch.setattr(sys, "path", [str(tmp_path / name)])
        stages.check_plugin()
        assert capsys.readouterr().err == ""


def test_another_version_of_upstreams_plugin_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin(tmp_path, "0.23.0", entry_point=UPSTREAM)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    stages.check_plugin()
    shown = capsys.readouterr().err
    assert "warning: vllm-ascend 0.23.0 is installed, this tree goes with 0.32.0" in shown
    assert shown.count("\n") == 1


def test_another_version_of_our_plugin_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin(tmp_path, "0.31.0", entry_point=OURS)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(stages.StageError, match=r"take the source tree of 0\.31\.0, or install"):
        stages.check_plugin()


def test_operators_that_the_plugin_brought_are_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = ("vllm_ascend/__init__.py", "batch_invariant_ops/__init__.py")
    plugin(tmp_path, "0.32.0", entry_point=OURS, files=files)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(stages.StageError, match="pip uninstall vllm-ascend, or"):
        stages.check_plugin()
