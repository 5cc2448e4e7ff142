# SPDX-License-Identifier: Apache-2.0
"""The second half of ``scripts/bundle``: channel, recipes, closure, bill of materials, archive."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import sys
import tomllib
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from provision import (
    bundle_archive,
    bundle_sources,
    bundle_spack,
    conda_archive,
    download,
    lockfile,
    official_artifact,
    prefix,
    recipes,
)
from provision import sbom as bill
from provision.bundle import Options
from provision.bundle_archive import SUMS, Member
from provision.bundle_verify import ABOUT, SBOM, SCHEMA, SECTIONS, BundleError, verify
from provision.ending import end_as_interrupted, leave
from provision.first_half import ERROR, INTERRUPTED, TREE
from provision.preflight import one_line
from provision.progress import Progress
from provision.quickstart_stages import (
    EXPECTED,
    PACKAGE,
    build_recipes,
    locked_pins,
    make_standin,
)
from provision.sbom import Item
from provision.standin import native_subdir
from provision.state import State, exclusive, file_sha256, write_json

# Of locks/channel-tools.txt: what solves and installs on the other machine.
INSTALLER = ("py-rattler",)


@dataclass(frozen=True)
class Content:
    """What makes a bundle: its own name and version, what is asked of it, and its parts."""

    about: Mapping[str, Any]
    members: Sequence[Member]
    items: Sequence[Item]
    # Names of the items that are asked for; the others are what these need.
    roots: tuple[str, ...]

    @property
    def name(self) -> str:
        """The archive's name less its suffix, and that of the folder in it."""
        about = self.about
        return "-".join(about[key] for key in ("name", "version", "soc", "kind", "subdir"))


def version_of(tree: Path) -> str:
    """The version that the tree's packages have."""
    with (tree / "pyproject.toml").open("rb") as file:
        return str(tomllib.load(file)["project"]["version"])


def _local(url: str) -> Path:
    parts = urllib.parse.urlsplit(url)
    if parts.scheme != "file":
        raise BundleError(f"{url} lies on no local channel")
    return Path(urllib.parse.unquote(parts.path))


def channel_parts(files: Sequence[Path]) -> tuple[list[Member], list[Item], int]:
    """A channel of the packages ``files``: its members, their items, the size when installed.

    Each file lies in a folder of its platform's name, in a channel with an index.
    """
    indexes: dict[str, dict[str, dict[str, Any]]] = {
        subdir: {section: {} for section in SECTIONS} for subdir in ("noarch", native_subdir())
    }
    members, size = [], 0
    for path in sorted(files):
        repodata = json.loads(path.with_name("repodata.json").read_text(encoding="utf-8"))
        subdir = path.parent.name
        [section] = [name for name in SECTIONS if path.name in repodata.get(name, {})]
        indexes[subdir][section][path.name] = repodata[section][path.name]
        members.append(Member(f"channel/{subdir}/{path.name}", path))
        size += conda_archive.installed_size(path)
    items: list[Item] = []
    for subdir, found in indexes.items():
        repodata = {"info": {"subdir": subdir}, **found, "removed": [], "repodata_version": 1}
        text = json.dumps(repodata, indent=1, sort_keys=True) + "\n"
        members.append(Member(f"channel/{subdir}/repodata.json", text.encode()))
        items += bill.conda_items(subdir, repodata)
    return members, items, size


def wheel_parts(files: Sequence[Path]) -> tuple[list[Member], list[Item]]:
    """The installer's wheels: members and items."""
    ordered = sorted(files)
    members = [Member(f"wheels/{path.name}", path) for path in ordered]
    return members, list(map(bill.wheel_item, ordered))


def complete(content: Content, clock: int) -> list[Member]:
    """Every file of the bundle: the parts, its description, its bill of materials, the sums."""
    about = dict(content.about)
    own = Item(
        name=content.name,
        version=about["version"],
        purl=f"pkg:generic/{content.name}@{about['version']}",
        licence="Apache-2.0",
        needs=content.roots,
    )
    members = [
        *content.members,
        Member(ABOUT, (json.dumps(about, indent=1, sort_keys=True) + "\n").encode()),
        Member(SBOM, bill.document(own, content.items, clock)),
    ]
    text = bundle_archive.sums((member.path, member.sha256()) for member in members)
    return [*members, Member(SUMS, text)]


@contextlib.contextmanager
def _written(target: Path) -> Iterator[Path]:
    """A file beside ``target`` that takes its name when it is complete; else nothing is left."""
    partial = target.with_name(f".{target.name}.partial")
    try:
        yield partial
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def write(content: Content, clock: int, target: Path, progress: Progress) -> str:
    """Write the archive, verify it, and give it its name; its sha256.

    The caller keeps others out.

    Raises:
        BundleError: it is not what it ought to be; a file changed meanwhile.
    """
    members = complete(content, clock)
    progress("bundle", f"{len(members)} files into {target}")
    with _written(target) as partial:
        with partial.open("wb") as file:
            bundle_archive.write(members, content.name, file, clock)
            # A full disk may say so only here.
            file.flush()
            os.fsync(file.fileno())
        progress("verify", "every file of the archive")
        faults = verify(partial).faults
        if faults:
            raise BundleError(f"{faults[0]}: something changed meanwhile; run it again")
        digest = file_sha256(partial)
    return digest


def npu_downloads(folder: Path, soc: str) -> str:
    """A digest of what the recipes of an NPU take from the folder of the downloads.

    Huawei's artifacts are compared with the sha256 that are known or given; the others' are in
    their recipes.

    Raises:
        ArtifactError: one of Huawei's is not there, or another.
    """
    lock = official_artifact.read_lock()
    names = [lock.run_package(official_artifact.label_of(soc), platform.machine()), lock.extension]
    found = [official_artifact.find(name, folder, lock) for name in names]
    return hashlib.sha256("".join(map(file_sha256, found)).encode()).hexdigest()


def conda_content(options: Options, progress: Progress) -> Content:
    """Build what the SoC takes, and find its closure; the caller holds the state's lock."""
    state = State(Path(options.state))
    environment = dict(os.environ)
    more, digest = [], ""
    if options.downloads:
        digest = npu_downloads(Path(options.downloads), options.soc)
        environment[recipes.DOWNLOADS] = options.downloads
        more = [Path(options.cann).as_uri()]
    make_standin(state, environment, progress)
    third_party = state.standin.as_uri()
    build_recipes(state, third_party, environment, progress, options.soc, more, digest)
    specs = [PACKAGE, f"ascend-soc * {options.soc}"]
    channels = [state.stages_for(options.soc).as_uri(), third_party, *more]
    records = prefix.solve_for(channels, specs)
    prefix.check_archives(records)
    members, items, size = channel_parts([_local(str(record.url)) for record in records])
    pins = [
        pin for pin in lockfile.read(TREE / "locks" / "channel-tools.txt") if pin.name in INSTALLER
    ]
    wheels = download.download(
        pins, state.root / "installer", lambda text: progress("installer", text)
    )
    installer, tools = wheel_parts(list(wheels.values()))
    about = {**described(options), "specs": specs, "installed_bytes": size}
    return Content(
        about=about,
        members=[*members, *installer, *own_members()],
        items=[*items, *tools],
        roots=(*(spec.split()[0] for spec in specs), *INSTALLER),
    )


def spack_content(options: Options, progress: Progress) -> Content:
    """What Spack takes; the caller holds the state's lock."""
    state = State(Path(options.state))
    locks = TREE / "locks"
    # What was given comes first: it is refused before anything is downloaded.
    parts = [*bundle_spack.mirrored(Path(options.mirror))] if options.mirror else []
    official = {}
    if options.downloads:
        parts += bundle_spack.npu_archives(Path(options.downloads), locks)
        official = dict(bundle_spack.official_parts(Path(options.downloads), options.soc))
    # All that is locked: what is left out of a folder of wheels is removed from it.
    files = download.download(locked_pins(), state.wheels, lambda text: progress("wheels", text))
    wheels = [files[pin.name] for pin in bundle_spack.pins_of(locks, options.soc)]
    items = list(bundle_spack.wheel_items(wheels))
    members = [Member(f"wheels/{path.name}", path) for path in wheels]
    # Both may have one: by their place.
    more = {member.path: (member, item) for member, item in (*parts, *official.values())}
    members += [member for member, _ in more.values()]
    items += [item for _, item in more.values()]
    about = {
        **described(options),
        "locks": list(bundle_spack.locks_of(options.soc)),
        "official": {name: (item.path, item.sha256) for name, (_, item) in official.items()},
        # A wheel is about a third of what it unpacks to.
        "installed_bytes": 3 * sum(path.stat().st_size for path in wheels),
    }
    return Content(about, [*members, *own_members()], items, tuple(item.name for item in items))


def described(options: Options) -> dict[str, Any]:
    """What every bundle says of itself."""
    return {
        "schema": SCHEMA,
        "kind": options.kind,
        "soc": options.soc,
        "name": PACKAGE,
        "version": version_of(TREE),
        "subdir": native_subdir(),
        "machine": platform.machine(),
        "libc": platform.libc_ver()[1],
    }


def own_members() -> list[Member]:
    """What every bundle holds of this tree."""
    install = Member("install", TREE / "tools" / "bundle-install", executable=True)
    return [*bundle_sources.source_members(TREE), install]


def run(options: Options) -> int:
    """Everything; returns the exit code."""
    progress = Progress(options.started)
    state = State(Path(options.state))
    waiting = "waiting for another run that uses "
    with contextlib.ExitStack() as held:
        held.enter_context(
            exclusive(state.lock, lambda: progress("start", f"{waiting}{state.root}"))
        )
        make = conda_content if options.kind == "conda" else spack_content
        content = make(options, progress)
        target = Path(options.output or state.root / f"{content.name}.tar")
        held.enter_context(
            exclusive(
                target.with_name(f".{target.name}.lock"),
                lambda: progress("bundle", f"{waiting}{target}"),
            )
        )
        clock = conda_archive.EPOCH if options.clock is None else options.clock
        digest = write(content, clock, target, progress)
        size = target.stat().st_size
        if options.json:
            result = {
                "bundle": str(target),
                "sha256": digest,
                "size": size,
                "soc": options.soc,
                "kind": options.kind,
                "packages": [
                    {"name": item.name, "version": item.version, "sha256": item.sha256}
                    for item in content.items
                ],
            }
            write_json(Path(options.json), result)
    print(
        f"bundle: ok: {target}, {len(content.items)} packages, {size / 1e6:.0f} MB, sha256 {digest}"
    )
    print(f"to install: tar -xf {target.name} && bash {content.name}/install --prefix DIR")
    return 0


def main(arguments: Sequence[str]) -> int:
    """Run with the first half's options; every expected failure is one line."""
    end_as_interrupted()
    try:
        return run(Options(**json.loads(arguments[0])))
    except (*EXPECTED, BundleError, official_artifact.ArtifactError) as error:
        print(f"bundle: {one_line(error)}", file=sys.stderr)
        return ERROR
    except KeyboardInterrupt:
        print("bundle: interrupted; run it again to continue", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
