# SPDX-License-Identifier: Apache-2.0
"""Whether the program's main module survives being imported by a spawned process.

vLLM on a CPU spawns its engine, and a spawned Python imports the main script again. One that is
written without `if __name__ == "__main__":` would start an engine there too, and Python ends it.
"""

import ast
import sys
from pathlib import Path


def guarded_by_name(source: str) -> bool:
    """Whether the top level of a script has a condition on `__name__`."""
    return any(
        isinstance(node, ast.Name) and node.id == "__name__"
        for statement in ast.parse(source).body
        if isinstance(statement, ast.If)
        for node in ast.walk(statement.test)
    )


def can_be_imported_again() -> bool:
    """False for a main script without the condition; True where Python imports no script again.

    The latter are `python -m package`, whose main module Python does not run twice, `python -c`,
    an interactive session, and a script that cannot be read.
    """
    main = sys.modules["__main__"]
    path = getattr(main, "__file__", None)
    if getattr(main, "__spec__", None) is not None or path is None:
        return True
    try:
        return guarded_by_name(Path(path).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, UnicodeDecodeError):
        return True
