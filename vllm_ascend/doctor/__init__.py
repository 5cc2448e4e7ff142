# SPDX-License-Identifier: Apache-2.0
"""`scripts/doctor`, `python -m vllm_ascend.doctor`: what is installed, what is wrong, what to type.

system     what is looked at: an environment, a Python's packages, a root directory
stage_one  the operator libraries that are found, in the order of the search, and their files
operators  the operators tried in a process of their own, where torch may be missing or broken
rules      one function for each thing that can be wrong
command    the arguments, the tables, the JSON document, the exit code

The standard library is enough. Nothing is changed, and nothing is asked of a network.
"""
