# SPDX-License-Identifier: Apache-2.0
"""Commands whose exit code is their result must not end with one that means something else."""

import os
import sys
from collections.abc import Callable


def written(program: str, failure: int, run: Callable[[], int]) -> int:
    """The exit code of `run`, or `failure` after one line where what it printed cannot be written.

    `run` itself takes care of every other OSError.
    """
    if sys.stdout is None:  # closed by a parent
        print(f"{program}: cannot write the result: standard output is closed", file=sys.stderr)
        return failure
    try:
        code = run()
        sys.stdout.flush()
    except OSError as error:
        # Whoever reads a pipe may leave when it has seen enough, and needs no line about it.
        if not isinstance(error, BrokenPipeError):
            print(f"{program}: cannot write the result: {error.strerror}", file=sys.stderr)
        # Python writes what is left when it ends, and would fail once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return failure
    return code
