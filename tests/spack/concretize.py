# SPDX-License-Identifier: Apache-2.0
"""Run by `spack python`: concretizes requests and writes what came out as JSON.

spack python concretize.py ANSWER HOST REQUEST...

HOST is a microarchitecture to believe this machine to be, or empty for its own. The answer maps
each request to `{"nodes": [...], "order": [...], "seconds": s}` or `{"refused": message}`; `order`
lists our packages, dependencies first.
"""

import json
import pathlib
import sys
import time
from typing import Any

import spack.archspec
import spack.concretize
import spack.error
import spack.platforms
import spack.vendor.archspec.cpu as cpu


def believe(name: str) -> None:
    """Every place where Spack asks what machine this is answers `name`."""
    host = cpu.TARGETS[name]
    cpu.host = lambda: host
    spack.archspec.HOST_TARGET_FAMILY = host.family
    spack.platforms.host().default = name


def concretized(request: str) -> dict[str, Any]:
    begin = time.monotonic()
    try:
        spec = spack.concretize.concretize_one(request)
    except spack.error.SpackError as error:
        return {"refused": str(error)}
    nodes = list(spec.traverse(order="post"))
    return {
        "seconds": time.monotonic() - begin,
        "order": [node.name for node in nodes if node.namespace == "ascend"],
        "nodes": [
            {
                "name": node.name,
                "version": str(node.version),
                "target": str(node.target),
                "family": str(node.target.family),
                "external": node.external,
                "namespace": node.namespace,
                "variants": {name: str(v.value) for name, v in node.variants.items()},
                "hash": node.dag_hash(),
            }
            for node in nodes
        ],
    }


answer, host, *requests = sys.argv[1:]
if host:
    believe(host)
pathlib.Path(answer).write_text(json.dumps({one: concretized(one) for one in requests}))
