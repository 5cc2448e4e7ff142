# SPDX-License-Identifier: Apache-2.0
"""Run by `spack python`: concretizes requests and writes what came out as JSON.

spack python concretize.py ANSWER HOST REQUEST...

HOST is a microarchitecture to believe this machine to be, or empty for its own, or `unregistered`
for a Spack in which the SoCs' names cannot be registered as targets. The answer maps
each request to `{"nodes": [...], "order": [...]}` or `{"refused": message}`; `order`
lists our packages, dependencies first.
"""

import json
import pathlib
import sys
from typing import Any

import spack.archspec
import spack.concretize
import spack.error
import spack.platforms
import spack.repo

try:
    import spack.vendor.archspec.cpu as cpu
except ImportError:  # Spack 1.0
    import archspec.cpu as cpu


def believe(name: str) -> None:
    """Every place where Spack asks what machine this is answers `name`."""
    host = cpu.TARGETS[name]
    cpu.host = lambda: host
    spack.archspec.HOST_TARGET_FAMILY = host.family
    spack.platforms.host().default = name


def fail_to_register() -> None:
    """Our repository finds archspec changed beyond recognition."""
    spack.repo.PATH.get_pkg_class("cann")  # makes our repository importable
    from spack_repo.ascend import soc_targets

    def changed(*_: object) -> None:
        raise AttributeError("archspec has changed")

    soc_targets.register = changed


def concretized(request: str) -> dict[str, Any]:
    try:
        spec = spack.concretize.concretize_one(request)
    except spack.error.SpackError as error:
        return {"refused": str(error)}
    nodes = list(spec.traverse(order="post"))
    return {
        "order": [node.name for node in nodes if node.namespace == "ascend"],
        "nodes": [
            {
                "name": node.name,
                "version": str(node.version),
                "target": str(node.target),
                "family": str(node.target.family),
                "external": node.external,
                "namespace": node.namespace,
                "fetched": node.package.has_code,
                # Of an external, some Spacks give a tuple for one value too.
                "variants": {
                    name: ",".join(map(str, v.values)) for name, v in node.variants.items()
                },
                "hash": node.dag_hash(),
            }
            for node in nodes
        ],
    }


answer, host, *requests = sys.argv[1:]
if host == "unregistered":
    fail_to_register()
elif host:
    believe(host)
pathlib.Path(answer).write_text(json.dumps({one: concretized(one) for one in requests}))
