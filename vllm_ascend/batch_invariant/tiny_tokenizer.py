# SPDX-License-Identifier: Apache-2.0
"""A byte-level BPE tokenizer of any vocabulary size, made without a corpus or a network.

Token 0 is the end of text, then come the 256 bytes, then strings of 2, 3, 4 … lower-case letters
and spaces in counting order, each the merge of its prefix with one more letter, until the
vocabulary is full. Every id decodes to text, and every text encodes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

END_OF_TEXT = "<|endoftext|>"
# "Ġ" is what the byte-level pre-tokenizer writes for a space; it leads a word and no more.
FIRST = "Ġabcdefghijklmnopqrstuvwxyz"
NEXT = "abcdefghijklmnopqrstuvwxyz"


def _merges() -> Iterator[tuple[str, str]]:
    prefixes: list[str] = list(FIRST)
    while True:
        longer: list[str] = []
        for prefix in prefixes:
            for letter in NEXT:
                yield prefix, letter
                longer.append(prefix + letter)
        prefixes = longer


def write_tokenizer(directory: Path, vocab_size: int, max_length: int) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json` with exactly `vocab_size` tokens.

    `vocab_size` is at least 257: the end of text and the bytes.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    smallest = len(alphabet) + 1
    if vocab_size < smallest:
        raise ValueError(
            f"a byte-level vocabulary has at least {smallest} tokens, not {vocab_size}"
        )
    vocab = {END_OF_TEXT: 0} | {byte: i for i, byte in enumerate(alphabet, start=1)}
    merges: list[tuple[str, str]] = []
    for left, right in _merges():
        if len(vocab) == vocab_size:
            break
        merges.append((left, right))
        vocab[left + right] = len(vocab)
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([END_OF_TEXT])
    tokenizer.save(str(directory / "tokenizer.json"), pretty=False)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END_OF_TEXT,
        "pad_token": END_OF_TEXT,
        "model_max_length": max_length,
        "clean_up_tokenization_spaces": False,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
