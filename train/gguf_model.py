"""A Llama GGUF file -> a transformers folder: bfloat16 safetensors, byte-level BPE tokenizer, chat template.

Both halves are done here, not by transformers' own GGUF loader: that one marks the model as quantised, refuses to save it, and
does not read `tokenizer.ggml.pre` (`smollm`: single digits, then byte level). GGUF stores the rows of the query and key
projections in the interleaved order of llama.cpp's rotary embedding; transformers wants the two halves apart.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pmem.errors import UserError

if TYPE_CHECKING:
    import torch

CONTROL_TOKEN = 3
"""`token_type` of a special token in GGUF."""

BLOCK_NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
TOP_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def convert_gguf(gguf: Path, folder: Path) -> None:
    """Write `folder` from `gguf`. The pad token is the first control token that is not the end token."""
    import torch
    from gguf import GGUFReader
    from transformers import LlamaForCausalLM

    reader = GGUFReader(gguf)
    tokenizer = build_tokenizer(reader)
    config = _llama_config(reader, tokenizer)
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    weights = _weights(reader, config)
    if config.tie_word_embeddings:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    model.load_state_dict(weights, assign=True)
    model.tie_weights()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _llama_config(reader: Any, tokenizer: Any) -> Any:
    from transformers import LlamaConfig

    tied = not any(tensor.name == "output.weight" for tensor in reader.tensors)
    return LlamaConfig(
        vocab_size=_field(reader, "llama.vocab_size"),
        hidden_size=_field(reader, "llama.embedding_length"),
        intermediate_size=_field(reader, "llama.feed_forward_length"),
        num_hidden_layers=_field(reader, "llama.block_count"),
        num_attention_heads=_field(reader, "llama.attention.head_count"),
        num_key_value_heads=_field(reader, "llama.attention.head_count_kv"),
        max_position_embeddings=_field(reader, "llama.context_length"),
        rms_norm_eps=round(_field(reader, "llama.attention.layer_norm_rms_epsilon"), 12),
        rope_parameters={"rope_type": "default", "rope_theta": _field(reader, "llama.rope.freq_base")},
        tie_word_embeddings=tied,
        dtype="bfloat16",
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )


def _weights(reader: Any, config: Any) -> "dict[str, torch.Tensor]":
    """Every tensor, dequantised, under the name and in the row order of transformers; bfloat16."""
    import torch
    from gguf import dequantize

    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    weights = {}
    for tensor in reader.tensors:
        values = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy()).to(torch.bfloat16)
        stem = tensor.name.removesuffix(".weight")
        block, _, part = stem.removeprefix("blk.").partition(".")
        if part in heads:
            values = _halves_apart(values, heads[part])
        name = TOP_NAMES.get(stem) or f"model.layers.{block}.{BLOCK_NAMES[part]}"
        weights[f"{name}.weight"] = values
    return weights


def _halves_apart(rows: "torch.Tensor", num_heads: int) -> "torch.Tensor":
    """Undo llama.cpp's interleaving. `rows`: (num_heads * head_dim, hidden)."""
    paired = rows.reshape(num_heads, rows.shape[0] // num_heads // 2, 2, *rows.shape[1:])
    return paired.transpose(1, 2).reshape(rows.shape).contiguous()


def build_tokenizer(reader: Any) -> Any:
    """The `PreTrainedTokenizerFast` of a GGUF file with a `smollm` pre-tokenizer."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    pre = _field(reader, "tokenizer.ggml.pre")
    if pre != "smollm":
        raise UserError(f"the GGUF file asks for pre-tokenizer {pre!r}; only 'smollm' is known here, use a safetensors model")
    tokens: list[str] = _field(reader, "tokenizer.ggml.tokens")
    kinds: list[int] = _field(reader, "tokenizer.ggml.token_type")
    merges = [tuple(merge.split(" ")) for merge in _field(reader, "tokenizer.ggml.merges")]
    special = [token for token, kind in zip(tokens, kinds) if kind == CONTROL_TOKEN]
    inner = Tokenizer(models.BPE(vocab={token: index for index, token in enumerate(tokens)}, merges=merges))
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
    )
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    end = tokens[_field(reader, "tokenizer.ggml.eos_token_id")]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        bos_token=tokens[_field(reader, "tokenizer.ggml.bos_token_id")],
        eos_token=end,
        unk_token=tokens[_field(reader, "tokenizer.ggml.unknown_token_id")],
        pad_token=next(token for token in special if token != end),
        clean_up_tokenization_spaces=False,
        model_max_length=_field(reader, "llama.context_length"),
    )
    tokenizer.chat_template = _field(reader, "tokenizer.chat_template")
    return tokenizer


def _field(reader: Any, name: str) -> Any:
    return reader.fields[name].contents()
