# SPDX-License-Identifier: Apache-2.0
"""The sampler's choices, where a neighbour's sampling parameters would change them.

The sampler serves a whole batch with one call: the largest `logprobs` asked for, and top-p over
all rows as soon as one row wants it. Each function here gives a row the same answer in any batch.
"""

import torch

from vllm_ascend.batch_invariant.overrides import Override


def top_k_top_p(
    logits: torch.Tensor, k: torch.Tensor | None, p: torch.Tensor | None
) -> torch.Tensor:
    """Masks with -inf what top-k and top-p leave out, in place; logits [B, V], k and p [B].

    k = V and p = 1 ask for nothing. vLLM would then still mask tokens whose probability is 0 in
    float32, but only beside a row that does ask for top-p.
    """
    if k is not None:
        from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_only

        logits = apply_top_k_only(logits, k)
    if p is None:
        return logits
    rows = (p < 1.0).nonzero().squeeze(1)
    if rows.numel() == 0:
        return logits
    ascending, index = logits[rows].sort(dim=-1, stable=True)
    # Summed from the least likely token upward, one row by one thread.
    cumulated = ascending.softmax(dim=-1).cumsum(dim=-1)
    masked = cumulated <= 1.0 - p[rows].unsqueeze(1)
    masked[:, -1] = False  # the most likely token always stays
    ascending.masked_fill_(masked, -float("inf"))
    logits[rows] = torch.empty_like(ascending).scatter_(-1, index, ascending)
    return logits


def largest(values: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The k largest of each row of [B, V] and their indices; equal ones in the order of the index.

    torch.topk breaks ties as its algorithm for this k happens to: the first 5 of the 20 largest are
    not always the 5 largest, and bfloat16 logits tie often.
    """
    found, index = torch.topk(values, k, dim=-1)
    if k == 0:
        return found, index
    for row, kth, out in zip(values, found[:, -1], index, strict=True):
        candidates = (row >= kth).nonzero().squeeze(1)
        order = row[candidates].sort(descending=True, stable=True).indices[:k]
        out.copy_(candidates[order])
    return found, index


def _install_top_k_top_p() -> None:
    from vllm.v1.sample.ops import topk_topp_sampler

    topk_topp_sampler.apply_top_k_top_p = top_k_top_p


def _install_gather_logprobs() -> None:
    from vllm.v1.outputs import LogprobsTensors
    from vllm.v1.sample.sampler import Sampler

    def gather_logprobs(
        logprobs: torch.Tensor, num_logprobs: int, token_ids: torch.Tensor
    ) -> LogprobsTensors:
        """The token's own logprob [T] and the num_logprobs largest of each row of [T, V]."""
        values, index = largest(logprobs, num_logprobs)
        own = token_ids.unsqueeze(-1)
        own_value = logprobs.gather(-1, own)
        return LogprobsTensors(
            torch.cat((own, index), dim=1).to(torch.int32),
            torch.cat((own_value, values), dim=1),
            (logprobs >= own_value).sum(-1),  # how many are as likely: its rank
        )

    Sampler.gather_logprobs = staticmethod(gather_logprobs)


OVERRIDES = (
    Override(
        name="vllm::top_k_top_p",
        target="vllm.v1.sample.ops.topk_topp_sampler.apply_top_k_top_p",
        by=("aten::sort", "npu_softmax_batch_invariant", "aten::cumsum"),
        dispatch_key=None,
        reason="a row is masked differently when another row of the batch uses top-p",
        install=_install_top_k_top_p,
    ),
    Override(
        name="vllm::gather_logprobs",
        target="vllm.v1.sample.sampler.Sampler.gather_logprobs",
        by=("aten::topk", "aten::sort"),
        dispatch_key=None,
        reason="ties are broken differently when another request asks for more logprobs",
        install=_install_gather_logprobs,
    ),
)
