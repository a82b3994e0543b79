"""A model and its tokenizer as training wants them: dtype, attention for the device, a pad token of its own, LoRA."""

import re
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging as transformers_logging

from pmem.errors import UserError
from serve.dtype import compute_dtype
from serve.model_folder import check_model_folder, loading
from train.shared_prefix import FOLDED


def device_name() -> str:
    """`cuda` when a GPU is there, else `cpu`."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer of `folder`, with a pad token that is not the end token (equal ones gave empty answers in serving)."""
    from transformers import AutoTokenizer

    check_model_folder(folder)
    with loading(folder):
        tokenizer = AutoTokenizer.from_pretrained(folder)
    if tokenizer.pad_token_id is None or tokenizer.pad_token_id == tokenizer.eos_token_id:
        ends = (tokenizer.eos_token, None)
        spare = [token for token in ("<|endoftext|>", "<pad>", "<|pad|>") if token in tokenizer.get_vocab()]
        choices = [token for token in (*spare, tokenizer.unk_token, tokenizer.bos_token) if token not in ends]
        if not choices:
            raise UserError(f"{folder}: the tokenizer has no token to pad with besides the end token; set pad_token in it")
        tokenizer.pad_token = choices[0]
    return tokenizer


def load_model(folder: Path, tokenizer: Any, *, dtype: str, shares_prefix: bool) -> Any:
    """The causal model of `folder`. On a CPU that shares prefixes it attends with `folded_attention`, elsewhere with SDPA."""
    from transformers import AutoModelForCausalLM

    transformers_logging.disable_progress_bar()
    folded = shares_prefix and device_name() == "cpu"
    with loading(folder):
        model: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=compute_dtype(dtype, device_name()), attn_implementation=FOLDED if folded else "sdpa"
        )
    model.config.pad_token_id = tokenizer.pad_token_id
    model.config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    return model.to(device_name())


def lora_config(*, rank: int, alpha: float, dropout: float) -> Any:
    """A LoRA adapter on all linear layers but the head."""
    from peft import LoraConfig

    scale: Any = alpha
    return LoraConfig(
        r=rank,
        lora_alpha=scale,
        lora_dropout=dropout,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )


def lora_on_top(model: Any, num_layers: int, *, rank: int, alpha: float, dropout: float) -> Any:
    """A LoRA adapter on the linear layers of the top `num_layers` decoder layers, each by its name."""
    config = lora_config(rank=rank, alpha=alpha, dropout=dropout)
    first = max(0, model.config.get_text_config().num_hidden_layers - num_layers)
    config.target_modules = {name for name, module in model.named_modules()
                             if isinstance(module, torch.nn.Linear) and _layer_of(name) >= first}  # fmt: skip
    return config


def _layer_of(name: str) -> int:
    """Number of the decoder layer in a module's name, -1 outside of all."""
    found = re.search(r"\.layers\.(\d+)\.", name)
    return int(found[1]) if found else -1


def with_lora(model: Any, *, rank: int, alpha: float, dropout: float, seed: int) -> Any:
    """`model` with a new adapter in the dtype of the weights (PEFT's own choice of float32 is slow on a CPU)."""
    from peft import get_peft_model

    torch.manual_seed(seed)
    return get_peft_model(model, lora_config(rank=rank, alpha=alpha, dropout=dropout), autocast_adapter_dtype=False)


def train_weights(model: Any, *, embeddings: bool) -> Any:
    """`model` with all weights trained; with `embeddings` false, all but the (tied) embedding and head."""
    model.requires_grad_(True)
    if not embeddings:
        model.get_input_embeddings().requires_grad_(False)
        model.get_output_embeddings().requires_grad_(False)
    return model


def base_causal(model: Any) -> Any:
    """The transformers model inside a PEFT wrapper, or the model itself."""
    return model.get_base_model() if hasattr(model, "peft_config") else model
