# SPDX-License-Identifier: Apache-2.0
"""`python -m vllm_ascend.batch_invariant report`: what is overridden by what, and what is not.

command       the arguments, the tables, the JSON document, the exit code
engine        runs a model with every operator call traced; a program of its own
trace         sees each call of an operator, also inside overrides and custom operators
classify      ours, independent of the batch by construction, or uncovered
independence  the operators that are independent, each with the reason
"""
