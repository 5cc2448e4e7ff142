# SPDX-License-Identifier: Apache-2.0
"""Is a bundle, packed or unpacked, what was made? The standard library alone.

Damage is found by ``SHA256SUMS``, which lists every file but itself; what the software bill of
materials says is compared with the files and with the channel's index. Who has made the bundle is
not told by what lies in it: for that, compare the archive's own sha256 with the one that its maker
gives.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from provision.bundle_archive import SUMS, Fault, digest_of, in_archive, in_folder, read_sums

SCHEMA = 1
ABOUT = "bundle.json"
SBOM = "sbom.cdx.json"
# What every bundle says of itself in ABOUT, as text.
DESCRIPTION = ("kind", "soc", "name", "version", "subdir", "machine", "libc")
# A component's property that names its file in the bundle.
PATH_PROPERTY = "batch-invariant:path"
# What the software bill of materials lists, file by file.
LISTED = ("channel/", "mirror/", "official/", "wheels/")
# Of an index: packages in conda's old format and in its new one.
SECTIONS = ("packages", "packages.conda")
_INDEX = re.compile(r"channel/([a-z0-9-]+)/repodata\.json")


class BundleError(RuntimeError):
    """There is no bundle to look at; one line says why."""


@dataclass
class Verdict:
    """What was found: the faults, one line each, and the files and their sha256."""

    faults: list[str] = field(default_factory=list)
    sha256: dict[str, str] = field(default_factory=dict)
    documents: dict[str, bytes] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)

    def fault(self, text: str) -> None:
        """Add a line; what a name in a bundle holds is shown without being obeyed by a terminal."""
        self.faults.append(
            "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
        )


def _is_document(path: str) -> bool:
    return path in (ABOUT, SBOM, SUMS) or _INDEX.fullmatch(path) is not None


def verify(place: Path) -> Verdict:
    """Read all of a bundle, an archive or an unpacked folder.

    Raises:
        BundleError: there is nothing of the kind.
    """
    verdict = Verdict()
    fault = verdict.fault
    try:
        if place.is_dir():
            _read(in_folder(place, fault), verdict)
        elif place.is_file():
            _read(in_archive(place, fault), verdict)
        else:
            raise BundleError(f"{place}: there is no such file or folder")
    except OSError as error:
        raise BundleError(f"{place} cannot be read: {error.strerror or error}") from error
    _compare(verdict)
    return verdict


def _read(files: Iterator[tuple[str, Any]], verdict: Verdict) -> None:
    for path, content in files:
        keep = _is_document(path)
        try:
            verdict.sha256[path], text = digest_of(content, keep)
        except ValueError as error:
            verdict.fault(f"{path}: {error}")
            continue
        if keep:
            verdict.documents[path] = text


def _compare(verdict: Verdict) -> None:
    fault = verdict.fault
    if SUMS not in verdict.documents:
        # Of what is no archive at all, that is said already.
        if verdict.sha256 or not verdict.faults:
            fault(f"{SUMS} is missing")
        return
    stated = read_sums(verdict.documents[SUMS], fault)
    for path in sorted(stated.keys() | verdict.sha256.keys() - {SUMS}):
        if path not in verdict.sha256:
            fault(f"{path} is missing")
        elif path not in stated:
            fault(f"{path} is not in {SUMS}")
        elif stated[path] != verdict.sha256[path]:
            fault(f"{path}: expected sha256 {stated[path]}, found {verdict.sha256[path]}")
    about = _object(verdict, ABOUT, fault)
    if about:
        if about.get("schema") != SCHEMA:
            fault(f"{ABOUT}: expected schema {SCHEMA}, found {about.get('schema')!r}")
        elif lacking := [key for key in DESCRIPTION if not isinstance(about.get(key), str)]:
            fault(f"{ABOUT} does not say: {', '.join(lacking)}")
        else:
            verdict.about = about
    document = _object(verdict, SBOM, fault)
    if document:
        try:
            disagreements(document, verdict, fault)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            fault(f"{SBOM} or the channel's index is not laid out as expected: {error!r}")


def _object(verdict: Verdict, name: str, fault: Fault) -> dict[str, Any]:
    if name not in verdict.documents:
        # In SHA256SUMS or not: without it this is no bundle.
        line = f"{name} is missing"
        if line not in verdict.faults:
            fault(line)
        return {}
    try:
        found = json.loads(verdict.documents[name])
        if isinstance(found, dict):
            return found
    except ValueError:
        pass
    fault(f"{name} is no JSON object")
    return {}


def disagreements(document: Mapping[str, Any], verdict: Verdict, fault: Fault) -> None:
    """Say where the bill of materials and the bundle's files and channel are not the same."""
    components: dict[str, Mapping[str, Any]] = {}
    for component in document["components"]:
        properties = {each["name"]: each["value"] for each in component.get("properties", ())}
        path = properties.get(PATH_PROPERTY)
        if path is None or path in components:
            fault(f"{SBOM}: {component['name']} names no file of its own")
            continue
        components[path] = component
    listed = {
        path for path in verdict.sha256 if path.startswith(LISTED) and not _INDEX.fullmatch(path)
    }
    for path in sorted(listed | components.keys()):
        if path not in components:
            fault(f"{path} is not in {SBOM}")
            continue
        stated = {each["alg"]: each["content"] for each in components[path].get("hashes", ())}
        if path not in listed:
            fault(f"{SBOM} lists {path}, which is not there")
        elif stated.get("SHA-256") != verdict.sha256[path]:
            fault(f"{path}: {SBOM} states another sha256, {stated.get('SHA-256')}")
    _index(components, _graph(document, fault), verdict, fault)


def _graph(document: Mapping[str, Any], fault: Fault) -> dict[str, set[str]]:
    """The graph's edges; each leads to a component, and each component can be reached."""
    known = {component["bom-ref"] for component in document["components"]}
    root = document["metadata"]["component"]["bom-ref"]
    edges = {each["ref"]: set(each.get("dependsOn", ())) for each in document["dependencies"]}
    for ref in sorted({*edges, *(to for found in edges.values() for to in found)} - known - {root}):
        fault(f"{SBOM}: its graph names {ref}, which is no component")
    reached, waiting = set(), [root]
    while waiting:
        ref = waiting.pop()
        if ref not in reached:
            reached.add(ref)
            waiting += edges.get(ref, ())
    for ref in sorted(known - reached):
        fault(f"{SBOM}: nothing in its graph leads to {ref}")
    return edges


def _index(
    components: Mapping[str, Mapping[str, Any]],
    edges: Mapping[str, set[str]],
    verdict: Verdict,
    fault: Fault,
) -> None:
    """Compare the channel's index with its files and with the bill of materials."""
    packages = {path: each for path, each in components.items() if path.startswith("channel/")}
    refs = {component["name"]: component["bom-ref"] for component in packages.values()}
    indexed = set()
    for document, text in verdict.documents.items():
        match = _INDEX.fullmatch(document)
        if match is None:
            continue
        repodata = json.loads(text)
        for file, record in (pair for name in SECTIONS for pair in repodata[name].items()):
            path = f"channel/{match[1]}/{file}"
            indexed.add(path)
            if path not in verdict.sha256:
                fault(f"{document} lists {file}, which is not there")
            elif record["sha256"] != verdict.sha256[path]:
                fault(f"{path}: {document} states another sha256, {record['sha256']}")
            component = packages.get(path)
            if component is None:
                continue  # told above
            expected = (record["name"], record["version"], purl(record, match[1]))
            found = tuple(component.get(key) for key in ("name", "version", "purl"))
            if found != expected:
                fault(f"{path}: the index has {expected}, {SBOM} {found}")
            for need in record["depends"]:
                ref = refs.get(need.split()[0])
                if ref is not None and ref not in edges.get(component["bom-ref"], ()):
                    fault(f"{SBOM}: {record['name']} needs {need}, which its graph does not say")
    for path in sorted(packages.keys() - indexed):
        fault(f"{path} is in no index of the channel")


def purl(record: Mapping[str, Any], subdir: str) -> str:
    """A conda package's package URL, from its entry in a channel's index."""
    name, version, build = (quote(str(record[key])) for key in ("name", "version", "build"))
    return f"pkg:conda/{name}@{version}?build={build}&subdir={subdir}"
