# SPDX-License-Identifier: Apache-2.0
"""What is known about SoCs: the table, and which row of it this machine is.

Neither torch nor vLLM is needed.

    python -m vllm_ascend.soc resolve 910b    what a name stands for
    python -m vllm_ascend.soc identify        what this machine's npu-smi, or a text of one, names
    python -m vllm_ascend.soc cann            which CANN is set up
"""

from .machine import default as default
from .soc_table import SCHEMA as SCHEMA
from .soc_table import Soc as Soc
from .soc_table import SocError as SocError
from .soc_table import Table as Table
from .soc_table import UndecidedSocError as UndecidedSocError
from .soc_table import UnknownSocError as UnknownSocError
from .soc_table import Unsupported as Unsupported
from .soc_table import UnsupportedSocError as UnsupportedSocError
from .soc_table import parse as parse
from .soc_table import resolve as resolve
from .soc_table import rows as rows
from .soc_table import table as table
from .soc_table import table_path as table_path
