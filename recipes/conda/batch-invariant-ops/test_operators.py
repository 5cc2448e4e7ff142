# SPDX-License-Identifier: Apache-2.0
"""The installed operators load, run, and give a row the same bits alone and among others."""

import batch_invariant_ops  # noqa: F401
import torch

op = torch.ops.batch_invariant_ops.npu_matmul_batch_invariant
print(op)
assert "npu_matmul_batch_invariant" in str(op)

torch.manual_seed(0)
for dtype, bits in ((torch.float32, torch.int32), (torch.bfloat16, torch.int16)):
    rows, weight = torch.randn(67, 515).to(dtype), torch.randn(515, 129).to(dtype)
    together = op(rows, weight)
    for index in (0, 31, 66):
        alone = op(rows[index : index + 1], weight)
        assert torch.equal(alone[0].view(bits), together[index].view(bits)), (dtype, index)
    exact = rows.double() @ weight.double()
    # Rounding of the result to 8 bits of mantissa at worst, of a sum of size about sqrt(515).
    assert (together.double() - exact).abs().max() < (1e-3 if dtype == torch.float32 else 0.6)
print("rows alone and among 66 others: the same bits")
