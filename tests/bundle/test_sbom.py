# SPDX-License-Identifier: Apache-2.0
"""The bill of materials: valid CycloneDX 1.6, and all of the channel in it."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL
from provision.bundle_stages import Content, complete
from provision.sbom import Item, conda_items, document

from tests.bundle.conftest import CLOCK
from tests.bundle.unpacked import unpack


def invalid(text: str) -> bool:
    with warnings.catch_warnings():
        # Formats that the schema names and no installed package knows.
        warnings.simplefilter("ignore")
        return JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is not None


def bill(content: Content) -> bytes:
    [text] = [m.source for m in complete(content, CLOCK) if m.path == "sbom.cdx.json"]
    assert isinstance(text, bytes)
    return text


def test_it_is_valid_by_the_schema_and_what_is_not_is_found(content: Content) -> None:
    text = bill(content).decode()
    assert json.loads(text)["specVersion"] == "1.6"
    assert not invalid(text)
    for change in ({"bomFormat": "SPDX"}, {"version": "one"}, {"more": 1}):
        assert invalid(json.dumps({**json.loads(text), **change})), change
    found = json.loads(text)
    del found["components"][0]["name"]
    assert invalid(json.dumps(found))


def test_every_package_is_in_it_with_what_its_metadata_states(
    content: Content, archive: Path, tmp_path: Path
) -> None:
    root = unpack(archive, tmp_path / "unpacked")
    found = json.loads((root / "sbom.cdx.json").read_text())
    components = {each["name"]: each for each in found["components"]}
    records = {
        record["name"]: (record, path.parent.name)
        for path in root.glob("channel/*/repodata.json")
        for record in json.loads(path.read_text())["packages.conda"].values()
    }
    assert components.keys() == {*records, "solver"}
    for name, (record, subdir) in records.items():
        component = components[name]
        assert component["version"] == record["version"]
        assert component["hashes"] == [{"alg": "SHA-256", "content": record["sha256"]}]
        purl = PackageURL.from_string(component["purl"])
        assert (purl.type, purl.name, purl.version) == ("conda", name, record["version"])
        assert purl.qualifiers == {"build": record["build"], "subdir": subdir}
    licences = {name: each.get("licenses") for name, each in components.items()}
    assert licences == {
        "vllm-ascend": [{"license": {"id": "Apache-2.0"}}],
        "operators": [{"expression": "Apache-2.0 OR MIT"}],
        "python": [{"license": {"name": "A licence of its own"}}],
        "ascend-soc": None,
        "solver": None,
    }
    refs = {each["bom-ref"]: name for name, each in components.items()} | {"bundle": "bundle"}
    graph = {
        refs[each["ref"]]: {refs[to] for to in each.get("dependsOn", ())}
        for each in found["dependencies"]
    }
    assert graph == {
        "bundle": {"vllm-ascend", "ascend-soc", "solver"},
        "vllm-ascend": {"ascend-soc", "operators"},
        "operators": {"python"},
        **{name: set() for name in ("ascend-soc", "python", "solver")},
    }


def test_its_bytes_follow_from_what_is_listed_and_the_clock(content: Content) -> None:
    own = Item("own", "1", "pkg:generic/own@1", needs=("operators",))
    first = document(own, content.items, CLOCK)
    assert document(own, list(reversed(content.items)), CLOCK) == first
    other = document(own, content.items[:-1], CLOCK)
    serial: list[Any] = [json.loads(text)["serialNumber"] for text in (first, other)]
    assert serial[0] != serial[1]
    assert json.loads(first)["metadata"]["timestamp"] == "2023-11-14T22:13:20+00:00"


def test_two_components_of_one_name_are_refused(content: Content) -> None:
    own = Item("own", "1", "pkg:generic/own@1")
    with pytest.raises(ValueError, match="two components of one name"):
        document(own, [*content.items, content.items[0]], CLOCK)


def test_a_version_that_a_purl_must_quote_reads_back() -> None:
    record = {
        **{"name": "demo", "version": "1!2.0+local", "build": "h_0", "sha256": "0" * 64},
        "depends": [],
    }
    [item] = conda_items("noarch", {"packages": {"demo.tar.bz2": record}, "packages.conda": {}})
    assert PackageURL.from_string(item.purl).version == "1!2.0+local"
    written = json.loads(
        document(Item("o", "1", "pkg:generic/o@1", needs=("demo",)), [item], CLOCK)
    )
    # As --verify expects it.
    assert written["components"][0]["purl"] == item.purl
