# SPDX-License-Identifier: Apache-2.0
"""The second half of ``scripts/channel``: download, repackage, index."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from provision.ending import leave
from provision.first_half import ERROR, INTERRUPTED
from provision.preflight import one_line
from provision.progress import Progress
from provision.quickstart_stages import EXPECTED, make_standin
from provision.state import State, exclusive


def main(arguments: Sequence[str]) -> int:
    """``STATE json|text``."""
    folder, form = arguments
    state = State(Path(folder))
    progress = Progress()
    try:
        with exclusive(state.lock, lambda: progress("start", "waiting for another run here")):
            packages, _ = make_standin(state, dict(os.environ), progress)
    except EXPECTED as error:
        print(f"channel: {one_line(error)}", file=sys.stderr)
        return ERROR
    except KeyboardInterrupt:
        print("channel: interrupted; run it again to continue", file=sys.stderr)
        return INTERRUPTED
    if form == "json":
        answer = {
            "channel": state.standin.as_uri(),
            "packages": [asdict(package) for package in packages],
        }
        print(json.dumps(answer, indent=2))
    else:
        size = sum(package.size for package in packages) / 1e6
        print(f"channel: ok: {len(packages)} packages, {size:.0f} MB, {state.standin.as_uri()}")
    return 0


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
