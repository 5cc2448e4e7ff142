# SPDX-License-Identifier: Apache-2.0
"""A bundle's software bill of materials, CycloneDX 1.6, as JSON.

The same bytes for the same bundle: the time is given, and the serial number follows from what is
listed.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

from provision.bundle_verify import PATH_PROPERTY, SECTIONS, purl
from provision.state import file_sha256
from provision.wheel import Wheel

# Any fixed one: the namespace of the serial numbers.
_NAMESPACE = uuid.UUID("6d1ad1c5-37ab-5a0a-8f5c-3a5b2a9a4f10")


@dataclass(frozen=True)
class Item:
    """One component: a file of the bundle, or (without ``path``) the bundle itself."""

    name: str
    version: str
    purl: str
    path: str = ""
    sha256: str = ""
    # As the package's metadata states it; "" for nothing.
    licence: str = ""
    # Names of the components that it needs; names that are not listed are passed over.
    needs: tuple[str, ...] = ()


def conda_items(subdir: str, repodata: Mapping[str, Any]) -> Iterable[Item]:
    """The packages of one platform of a channel, from its index."""
    for file, record in sorted(pair for name in SECTIONS for pair in repodata[name].items()):
        yield Item(
            name=record["name"],
            version=record["version"],
            purl=purl(record, subdir),
            path=f"channel/{subdir}/{file}",
            sha256=record["sha256"],
            licence=record.get("license") or "",
            needs=tuple(spec.split()[0] for spec in record["depends"]),
        )


def wheel_item(path: Path, needs: Iterable[str] = ()) -> Item:
    """A wheel that lies in the bundle's ``wheels/``."""
    wheel = Wheel(path)
    return Item(
        name=wheel.name,
        version=wheel.version,
        purl=f"pkg:pypi/{wheel.name}@{wheel.version}",
        path=f"wheels/{path.name}",
        sha256=file_sha256(path),
        licence=wheel.licence,
        needs=tuple(needs),
    )


def _component(item: Item, kind: ComponentType) -> Component:
    return Component(
        name=item.name,
        version=item.version,
        type=kind,
        bom_ref=item.path or "bundle",
        purl=PackageURL.from_string(item.purl),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=item.sha256)] if item.sha256 else [],
        licenses=[LicenseFactory().make_from_string(item.licence)] if item.licence else [],
        properties=[Property(name=PATH_PROPERTY, value=item.path)] if item.path else [],
    )


def document(bundle: Item, items: Sequence[Item], clock: int) -> bytes:
    """The bill of materials of ``bundle``, which holds ``items``.

    clock   seconds since 1970, the document's time

    Raises:
        ValueError: two items have one name; a bundle holds one version of each.
    """
    components = {item.name: _component(item, ComponentType.LIBRARY) for item in items}
    if len(components) != len(items):
        raise ValueError("two components of one name")
    bom = Bom(components=components.values())
    bom.metadata.component = _component(bundle, ComponentType.APPLICATION)
    bom.metadata.timestamp = datetime.fromtimestamp(clock, UTC)
    listed = "".join(sorted(f"{item.purl} {item.sha256}\n" for item in (bundle, *items)))
    bom.serial_number = uuid.uuid5(_NAMESPACE, listed)
    for item in items:
        needs = [components[name] for name in item.needs if name in components]
        bom.register_dependency(components[item.name], needs)
    roots = [components[name] for name in bundle.needs]
    bom.register_dependency(bom.metadata.component, roots)
    text: str = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(
        indent=2
    )
    return text.encode() + b"\n"
