"""Encoders of a few thousand random weights, in the formats of their libraries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from tacl.embedded import parquet

CORPUS = ["the cat sat on the mat", "a dog ran over the road", "what is in a name"] * 20


def tokenizer(folder: Path, **special: str) -> int:
    """Train a word-piece tokenizer on the corpus, save it to the folder, return its size."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    words.normalizer = normalizers.BertNormalizer(lowercase=True)  # pyright: ignore
    words.pre_tokenizer = pre_tokenizers.BertPreTokenizer()  # pyright: ignore
    trainer = trainers.WordPieceTrainer(
        vocab_size=120, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"], show_progress=False
    )
    words.train_from_iterator(CORPUS, trainer)
    if special:
        ends: Any = [("[CLS]", 2), ("[SEP]", 3)]
        words.post_processor = processors.TemplateProcessing(  # pyright: ignore
            single="[CLS] $A [SEP]", special_tokens=ends
        )
    fast = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]", **special)
    fast.save_pretrained(folder)
    return len(fast)


BERT: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
BERT |= {"intermediate_size": 32}
GPT2: dict[str, Any] = {"n_embd": 16, "n_layer": 2, "n_head": 2}


def bert(folder: Path, layers: int = 2) -> Path:
    """A BERT of some layers, with a pooler."""
    from transformers import BertConfig, BertModel

    ends = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    torch.manual_seed(0)
    size = tokenizer(folder, **ends)
    sizes = {**BERT, "num_hidden_layers": layers}
    config = BertConfig(vocab_size=size, max_position_embeddings=160, **sizes)
    BertModel(config).save_pretrained(folder)
    return folder


def convbert(folder: Path) -> Path:
    """A ConvBERT, whose convolutions read padding, with larger weights than a new one has."""
    from transformers import ConvBertConfig, ConvBertModel

    torch.manual_seed(0)
    size = tokenizer(folder, pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]")
    sizes = {**BERT, "embedding_size": 16, "initializer_range": 0.2}
    ConvBertModel(ConvBertConfig(vocab_size=size, **sizes)).save_pretrained(folder)
    return folder


def bloom(folder: Path) -> Path:
    """A BLOOM of two layers, saved with its language head."""
    from transformers import BloomConfig, BloomForCausalLM

    torch.manual_seed(0)
    size = tokenizer(folder)
    config = BloomConfig(vocab_size=size, hidden_size=16, n_layer=2, n_head=2)
    BloomForCausalLM(config).save_pretrained(folder)
    return folder


def gpt2(folder: Path) -> Path:
    """A GPT-2 of two layers, saved with its language head."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    size = tokenizer(folder)
    config = GPT2Config(vocab_size=size, n_positions=128, **GPT2)
    GPT2LMHeadModel(config).save_pretrained(folder)
    return folder


VISION = {"image_size": 32, "layers": 2, "width": 32, "head_width": 16, "patch_size": 8}
TEXT = {"context_length": 16, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1}


def clip(folder: Path, vision: dict[str, Any] = VISION) -> Path:
    """Both towers of a CLIP."""
    import open_clip

    torch.manual_seed(0)
    settings = {"embed_dim": 12, "vision_cfg": vision, "text_cfg": TEXT}
    preprocessing = {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.2, 0.1]}
    config = {"model_cfg": settings, "preprocess_cfg": preprocessing}
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    model = open_clip.CLIP(**settings)
    save_file(model.state_dict(), folder / "open_clip_model.safetensors")
    return folder


def png(array: np.ndarray | None = None, width: int = 40, height: int = 32) -> bytes:
    if array is None:
        array = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return parquet.png(array)
