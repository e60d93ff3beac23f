"""Writes a tiny language model as a file of GGUF, version 3.

https://github.com/ggml-org/ggml/blob/master/docs/gguf.md describes the format.
"""

import struct
from pathlib import Path

import numpy as np

_ALIGNMENT = 32
_WIDTH, _HEADS, _INNER, _CONTEXT = 64, 4, 128, 512
# The types of values in the head.
_U32, _I32, _F32, _TEXT, _LIST = 4, 5, 6, 8, 9
# The types of tokens: the unknown one, those that control, and single bytes.
_UNKNOWN, _CONTROL, _BYTE = 2, 3, 6
_TOKENS = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]


def write(path: Path, seed: int = 1) -> None:
    """Writes a model of the architecture `llama` with one layer, random weights and a token for
    each byte. Its answers have no meaning, and are the same for the same prompt at temperature 0.
    """
    head, tensors = _head(), _tensors(np.random.default_rng(seed))
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(head))]
    parts += [_text(key) + value for key, value in head.items()]
    offset, data = 0, []
    for name, values in tensors.items():
        sizes = struct.pack(f"<I{values.ndim}Q", values.ndim, *reversed(values.shape))
        parts.append(_text(name) + sizes + struct.pack("<IQ", 0, offset))
        data.append(_padded(values.astype("<f4").tobytes()))
        offset += len(data[-1])
    path.write_bytes(_padded(b"".join(parts)) + b"".join(data))


def _padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % _ALIGNMENT)


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def _number(value: int) -> bytes:
    return struct.pack("<II", _U32, value)


def _items(kind: int, items: list[bytes]) -> bytes:
    return struct.pack("<IIQ", _LIST, kind, len(items)) + b"".join(items)


def _head() -> dict[str, bytes]:
    kinds = [_UNKNOWN, _CONTROL, _CONTROL] + [_BYTE] * 256
    return {
        "general.architecture": struct.pack("<I", _TEXT) + _text("llama"),
        "llama.context_length": _number(_CONTEXT),
        "llama.embedding_length": _number(_WIDTH),
        "llama.block_count": _number(1),
        "llama.feed_forward_length": _number(_INNER),
        "llama.attention.head_count": _number(_HEADS),
        "llama.rope.dimension_count": _number(_WIDTH // _HEADS),
        "llama.attention.layer_norm_rms_epsilon": struct.pack("<If", _F32, 1e-5),
        "tokenizer.ggml.model": struct.pack("<I", _TEXT) + _text("llama"),
        "tokenizer.ggml.tokens": _items(_TEXT, [_text(token) for token in _TOKENS]),
        "tokenizer.ggml.scores": _items(_F32, [struct.pack("<f", 0.0)] * len(_TOKENS)),
        "tokenizer.ggml.token_type": _items(_I32, [struct.pack("<i", kind) for kind in kinds]),
        "tokenizer.ggml.unknown_token_id": _number(0),
        "tokenizer.ggml.bos_token_id": _number(1),
        "tokenizer.ggml.eos_token_id": _number(2),
    }


def _tensors(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """The weights. Letters are far more likely than other bytes, so that answers are text."""

    def weights(*shape: int) -> np.ndarray:
        return rng.normal(0, 0.2, shape)

    def ones() -> np.ndarray:
        return np.ones(_WIDTH)

    output = weights(len(_TOKENS), _WIDTH)
    letters = [_TOKENS.index(f"<0x{letter:02X}>") for letter in range(ord("a"), ord("z") + 1)]
    others = np.setdiff1d(np.arange(len(_TOKENS)), letters)
    output[others] = 0
    output[letters] *= 20
    return {
        "token_embd.weight": weights(len(_TOKENS), _WIDTH),
        "output_norm.weight": ones(),
        "output.weight": output,
        "blk.0.attn_norm.weight": ones(),
        "blk.0.attn_q.weight": weights(_WIDTH, _WIDTH),
        "blk.0.attn_k.weight": weights(_WIDTH, _WIDTH),
        "blk.0.attn_v.weight": weights(_WIDTH, _WIDTH),
        "blk.0.attn_output.weight": weights(_WIDTH, _WIDTH),
        "blk.0.ffn_norm.weight": ones(),
        "blk.0.ffn_gate.weight": weights(_INNER, _WIDTH),
        "blk.0.ffn_up.weight": weights(_INNER, _WIDTH),
        "blk.0.ffn_down.weight": weights(_WIDTH, _INNER),
    }
