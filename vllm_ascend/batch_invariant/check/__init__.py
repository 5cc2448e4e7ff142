# SPDX-License-Identifier: Apache-2.0
"""`python -m vllm_ascend.batch_invariant check`: is a model's output independent of the batch?

command        the arguments, what runs in which order, the exit code
configuration  one engine start: model, dtype, threads, and whether the mode is on
workload       the prompts, their sampling parameters, and the shuffled batches
engine         runs a workload in a vLLM engine; a program that runs in a process of its own
engine_process starts that program in a clean environment and follows it
occupancy      how many requests shared each step of the model
comparison     bit for bit
plot           draws it; the only place that takes matplotlib
verdict        from what was compared to the answer, its table and its JSON document
"""
