// SPDX-License-Identifier: Apache-2.0
//
// Names and schemas of torch.ops.batch_invariant_ops (SCHEMAS.md). The kernels are registered
// beside their code.
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/library.h>

#include <string>
#include <vector>

#include "library.h"

namespace batch_invariant_ops {
namespace {

// Schemas without attention's, whose arguments are put together below.
constexpr const char *kSchemas[] = {
    "npu_mm_batch_invariant(Tensor a, Tensor b) -> Tensor",
    "npu_matmul_batch_invariant(Tensor a, Tensor b) -> Tensor",
    "npu_reduce_sum_batch_invariant(Tensor x, int dim, bool keepdim=False) -> Tensor",
    "npu_reduce_sum_batch_invariant.dims(Tensor x, int[1]? dim=None, bool keepdim=False, *, "
    "ScalarType? dtype=None) -> Tensor",
    "npu_reduce_mean_batch_invariant(Tensor x, int dim, bool keepdim=False) -> Tensor",
    "npu_reduce_mean_batch_invariant.dims(Tensor x, int[1]? dim=None, bool keepdim=False, *, "
    "ScalarType? dtype=None) -> Tensor",
    "npu_softmax_batch_invariant(Tensor x, int dim) -> Tensor",
    "npu_log_softmax_batch_invariant(Tensor x, int dim=-1) -> Tensor",
    "npu_rms_norm_batch_invariant(Tensor x, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor)",
    "npu_add_rms_norm_batch_invariant(Tensor x1, Tensor x2, Tensor gamma, float epsilon=1e-06) -> "
    "(Tensor, Tensor, Tensor)",
    "npu_linear_batch_invariant(Tensor x, Tensor weight, Tensor? bias=None) -> Tensor",
    "npu_weight_pack_batch_invariant(Tensor weight) -> Tensor",
    "npu_linear_packed_batch_invariant(Tensor x, Tensor packed, int n, Tensor? bias=None) -> "
    "Tensor",
    "npu_grouped_matmul_batch_invariant(Tensor x, Tensor weight, Tensor group_list) -> Tensor",
    "npu_grouped_matmul_packed_batch_invariant(Tensor x, Tensor packed, int n, Tensor group_list) "
    "-> Tensor",
    "_npu_fused_infer_attention_score_batch_invariant_infer_output(Tensor query, Tensor value, *, "
    "str input_layout=\"BSH\", Tensor? quant_scale2=None, Tensor? block_table=None, "
    "int num_heads=1, int num_key_value_heads=0, bool softmax_lse_flag=False, "
    "Tensor? query_rope=None) -> (Tensor, Tensor)",
};

// As torch_npu registers npu_fused_infer_attention_score (torch_npu 2.13.0).
const std::string kAttentionArguments =
    "Tensor query, Tensor key, Tensor value, *, Tensor? pse_shift=None, Tensor? atten_mask=None, "
    "SymInt[]? actual_seq_lengths=None, SymInt[]? actual_seq_lengths_kv=None, "
    "Tensor? dequant_scale1=None, Tensor? quant_scale1=None, Tensor? dequant_scale2=None, "
    "Tensor? quant_scale2=None, Tensor? quant_offset2=None, Tensor? antiquant_scale=None, "
    "Tensor? antiquant_offset=None, Tensor? key_antiquant_scale=None, "
    "Tensor? key_antiquant_offset=None, Tensor? value_antiquant_scale=None, "
    "Tensor? value_antiquant_offset=None, Tensor? block_table=None, "
    "Tensor? query_padding_size=None, Tensor? kv_padding_size=None, "
    "Tensor? key_shared_prefix=None, Tensor? value_shared_prefix=None, "
    "SymInt[]? actual_shared_prefix_len=None, Tensor? query_rope=None, Tensor? key_rope=None, "
    "Tensor? key_rope_antiquant_scale=None, int num_heads=1, float scale=1.0, "
    "int pre_tokens=2147483647, int next_tokens=2147483647, str input_layout=\"BSH\", "
    "int num_key_value_heads=0, int sparse_mode=0, int inner_precise=0, int block_size=0, "
    "int antiquant_mode=0, int key_antiquant_mode=0, int value_antiquant_mode=0, "
    "bool softmax_lse_flag=False";

std::vector<std::string> schemas() {
  std::vector<std::string> all(std::begin(kSchemas), std::end(kSchemas));
  const std::string attention = "npu_fused_infer_attention_score_batch_invariant";
  all.push_back(attention + "(" + kAttentionArguments + ") -> (Tensor, Tensor)");
  all.push_back(attention + ".out(" + kAttentionArguments +
                ", Tensor? workspace=None, Tensor[] out) -> (Tensor, Tensor)");
  all.push_back("_" + attention + "_get_max_workspace(" + kAttentionArguments + ") -> Tensor");
  return all;
}

std::vector<std::string> describe_library() {
  const Library &lib = library("batch_invariant_ops.library");
  return {lib.path, lib.bi_version(), lib.bi_cpu_isa(), std::to_string(lib.bi_abi_version())};
}

}  // namespace

TORCH_LIBRARY(batch_invariant_ops, m) {
  for (const std::string &schema : schemas()) m.def(schema.c_str());
  m.def("_library() -> str[]", &describe_library);
  m.def("_set_prefix(str prefix) -> ()", &set_prefix);
}

// These operators have no derivative. Say so when one is asked for, rather than return a result
// that looks like a constant.
TORCH_LIBRARY_IMPL(batch_invariant_ops, Autograd, m) {
  for (const std::string &schema : schemas()) {
    m.impl(schema.substr(0, schema.find('(')).c_str(),
           torch::autograd::autogradNotImplementedFallback());
  }
}

}  // namespace batch_invariant_ops
