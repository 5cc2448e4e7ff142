# SPDX-License-Identifier: Apache-2.0
"""The installed library loads, says its version, and adds a row of numbers."""

import ctypes
import sys
from pathlib import Path

root = Path(sys.prefix) / "share/ascend/opp/vendors/batch_invariant"
info = dict(line.split("=", 1) for line in (root / "version.info").read_text().split("\n") if line)
library = ctypes.CDLL(str(root / "op_api/lib/libcust_opapi.so"))
library.bi_abi_version.restype = ctypes.c_uint32
library.bi_version.restype = ctypes.c_char_p
library.bi_cpu_isa.restype = ctypes.c_char_p

assert info["soc"] == "cpu", info
assert library.bi_version().decode() == info["version"], info
assert str(library.bi_abi_version()) == info["abi"], info
assert library.bi_cpu_isa() not in (b"", b"invalid")


class Tensor(ctypes.Structure):
    """bi_tensor of batch_invariant.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("stride", ctypes.POINTER(ctypes.c_int64)),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
    )


def row(values: list[float]) -> Tensor:
    """A [1, n] float32 tensor."""
    data = (ctypes.c_float * len(values))(*values)
    pair = ctypes.c_int64 * 2
    tensor = Tensor(ctypes.addressof(data), pair(1, len(values)), pair(len(values), 1), 2, 0)
    tensor.kept = data
    return tensor


total = row([0.0])
status = library.bi_reduce_sum(
    ctypes.byref(row([1.0, 2.0, 4.0])), (ctypes.c_int32 * 1)(1), 1, ctypes.byref(total), 1
)
assert status == 0, status
assert total.kept[0] == 7.0, total.kept[0]
print(f"libcust_opapi.so {info['version']}, {library.bi_cpu_isa().decode()}: ok")
