# SPDX-License-Identifier: Apache-2.0
"""The tree is clean under its linters, and says nothing it must not say."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def tracked() -> list[Path]:
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    paths = (ROOT / name for name in listing.split("\0") if name)
    return sorted(path for path in paths if path.is_file() and not path.is_symlink())


def first_line(path: Path) -> str:
    with path.open("rb") as file:
        return file.readline(200).decode("utf-8", "replace")


def with_suffix(*suffixes: str) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in tracked() if path.suffix in suffixes]


def python_files() -> list[str]:
    scripts = [
        str(path.relative_to(ROOT))
        for path in tracked()
        if path.suffix == "" and re.match(r"#!.*\bpython", first_line(path))
    ]
    return with_suffix(".py", ".pyi") + scripts


def shell_files() -> list[str]:
    return [
        str(path.relative_to(ROOT))
        for path in tracked()
        if path.suffix in {".sh", ".bash"} or re.match(r"#!.*\b(ba|da)?sh\b", first_line(path))
    ]


def clean(*command: str) -> None:
    """Fails with the tool's own output unless it exits 0."""
    tool = shutil.which(command[0], path=str(Path(sys.executable).parent)) or shutil.which(
        command[0]
    )
    assert tool, f"{command[0]} is not installed; ./scripts/test installs it"
    result = subprocess.run([tool, *command[1:]], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_ruff_finds_nothing() -> None:
    clean("ruff", "check", "--no-cache", *python_files())


def test_python_is_formatted() -> None:
    clean("ruff", "format", "--no-cache", "--check", *python_files())


def test_types_are_strict(tmp_path: Path) -> None:
    # `strict` is set in pyproject.toml; on the command line it would undo the exception made there.
    clean("mypy", "--explicit-package-bases", f"--cache-dir={tmp_path}", *python_files())


def test_shell_is_clean() -> None:
    assert shell_files(), "no shell file found: the search is broken"
    clean("shellcheck", "--external-sources", *shell_files())


def test_cpp_is_formatted() -> None:
    sources = with_suffix(".h", ".cpp", ".cc")
    assert sources, "no C++ file found: the search is broken"
    clean("clang-format", "--dry-run", "--Werror", *sources)


def test_every_source_names_its_licence() -> None:
    sources = {*python_files(), *shell_files(), *with_suffix(".h", ".cpp", ".cc", ".cmake")}
    missing = [
        name
        for name in sorted(sources)
        if (ROOT / name).stat().st_size
        and "SPDX-License-Identifier: Apache-2.0" not in (ROOT / name).read_text()[:400]
    ]
    assert missing == []


def registry_hosts() -> set[str]:
    """Hosts that this machine's own package clients would ask."""
    # In its own process: where pip was imported, setuptools cannot be.
    asked = (
        "from pip._internal.models.index import PyPI; print(PyPI.netloc, PyPI.file_storage_domain)"
    )
    command = [sys.executable, "-c", asked]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    hosts = set(printed.split())
    assert len(hosts) == 2
    apt = Path("/etc/apt")
    lists = [apt / "sources.list", *apt.glob("sources.list.d/*")] if apt.is_dir() else []
    for path in lists:
        if path.is_file():
            hosts |= set(re.findall(r"https?://([a-z0-9.-]+)", path.read_text()))
    return {host for host in hosts if host and "." in host}


def test_no_package_registry_is_named() -> None:
    hosts = registry_hosts()
    named = [
        f"{path.relative_to(ROOT)}: {host}"
        for path in tracked()
        for host in hosts
        if host in path.read_text(errors="replace")
    ]
    assert named == [], "which registry to ask is the user's configuration"


@pytest.mark.parametrize("name", ["LICENSE", "README.md", "soc.toml", "csrc/VERSION"])
def test_the_tree_has_what_its_readers_expect(name: str) -> None:
    assert (ROOT / name).stat().st_size > 0


def test_no_test_imports_pip() -> None:
    # It takes setuptools' distutils away from whatever runs behind it in the same process.
    modules = (path for path in ROOT.glob("tests/**/*.py"))
    importing = re.compile(r"^ *(?:import|from) pip\b", re.MULTILINE)
    outside_strings = re.compile(r'"""(?:.|\n)*?"""')
    found = [p for p in modules if importing.search(outside_strings.sub("", p.read_text()))]
    assert found == []
