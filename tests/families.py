"""Tiny checkpoints of other families, made by transformers, with tokenizers trained on a text of ten languages."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers.implementations.bert_wordpiece import BertWordPieceTokenizer
from tokenizers.implementations.byte_level_bpe import ByteLevelBPETokenizer

from bert_core.tokenizer import SPECIAL_TOKENS

TEN_LANGUAGES = Path(__file__).parent / "data" / "ten_languages.txt"
FAMILIES = (
    "distilbert", "roberta", "xlm-roberta", "camembert", "bertweet", "electra", "albert", "mpnet", "deberta-v2",
    "modernbert",
)  # fmt: skip
WITHOUT_NUMPY = WITHOUT_DECOMPX = ("modernbert",)  # families that these refuse with the reason
CLASSES = {0: "calm", 1: "glad", 2: "sad"}
OF_ROBERTA = {
    "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48,
    "max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5,
}  # fmt: skip
SIZES: dict[str, dict[str, Any]] = {
    "distilbert": {"dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 48, "seq_classif_dropout": 0.3},
    "roberta": OF_ROBERTA, "xlm-roberta": OF_ROBERTA, "camembert": OF_ROBERTA, "bertweet": OF_ROBERTA,
    "electra": {
        "embedding_size": 24, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
        "intermediate_size": 48,
    },
    "albert": {
        "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48,
        "embedding_size": 24, "max_position_embeddings": 512,
    },
    "mpnet": {
        "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48,
        "max_position_embeddings": 514, "layer_norm_eps": 1e-5,
    },
    "deberta-v2": {
        "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48,
        "relative_attention": True, "position_buckets": 256, "pos_att_type": "p2c|c2p", "share_att_key": True,
        "norm_rel_ebd": "layer_norm", "position_biased_input": False,
    },
    "modernbert": {
        "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48,
        "local_attention": 8, "pad_token_id": 3, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1,
        "sep_token_id": 2,
    },
    "mmbert": {
        "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48,
        "local_attention": 8, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 1, "cls_token_id": 1,
        "sep_token_id": 1, "global_rope_theta": 160_000.0, "local_rope_theta": 160_000.0,
    },
}  # fmt: skip
MODELS = {
    "distilbert": "DistilBert", "roberta": "Roberta", "xlm-roberta": "XLMRoberta", "camembert": "Camembert",
    "bertweet": "Roberta", "electra": "Electra", "albert": "Albert", "mpnet": "MPNet",
    "deberta-v2": "DebertaV2", "modernbert": "ModernBert", "mmbert": "ModernBert",
}  # fmt: skip


# The weights from which queries and keys are made: large ones give maps that are not flat.
PEAKED = (
    ".q_lin.weight",
    ".k_lin.weight",
    ".query.weight",
    ".key.weight",
    ".attn.q.weight",
    ".attn.k.weight",
    ".query_proj.weight",
    ".key_proj.weight",
    ".Wqkv.weight",
)


def sentences() -> list[str]:
    """The sentences of the ten languages."""
    return TEN_LANGUAGES.read_text(encoding="utf-8").splitlines()


def signs(written: Callable[[str], str] = str) -> list[str]:
    """Every character of the sentences but the space, as a tokenizer writes them, in order."""
    return sorted(set("".join(map(written, sentences()))) - {" "})


def save_tokenizer(family: str, folder: Path, *, cased: bool = False) -> int:
    """A tokenizer of the family in a folder, as transformers writes it; how many pieces it has."""
    if family == "bertweet":  # which is always cased
        return save_tweet_pieces(folder)
    fast = _TRAINED[family](cased)
    fast.save_pretrained(folder)
    return len(fast)


def _word_pieces(*inputs: str) -> Callable[[bool], Any]:
    """A tokenizer of word pieces that gives these inputs to its model."""
    return lambda cased: _trained_word_pieces(cased, list(inputs))


def _trained_word_pieces(cased: bool, inputs: list[str]) -> Any:
    made = BertWordPieceTokenizer(lowercase=not cased, strip_accents=None)
    within = [f"##{sign}" for sign in signs(made.normalizer.normalize_str)]
    first = [*SPECIAL_TOKENS, *within]  # else they are numbered in another order each time, and so are ties decided
    often = ["old young sat"] * 40  # one piece each: tests put one of them in the place of another
    made.train_from_iterator([*sentences(), *often], vocab_size=700, min_frequency=1, special_tokens=first)
    made = BertWordPieceTokenizer(made.get_vocab(), lowercase=not cased)
    names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    settings = {**dict(zip(names, SPECIAL_TOKENS, strict=True)), "model_input_names": inputs}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made._tokenizer, **settings)


def _mpnet_pieces(cased: bool) -> Any:
    """Word pieces with RoBERTa's special tokens, as published: those for padding and the like first, [UNK] behind."""
    pieces = list(_trained_word_pieces(cased, []).get_vocab().items())
    own = [piece for piece, _ in sorted(pieces, key=lambda one: one[1]) if piece not in SPECIAL_TOKENS]
    vocabulary = ["<s>", "<pad>", "</s>", "<unk>", "[UNK]", *own, "<mask>"]
    numbers = {piece: number for number, piece in enumerate(vocabulary)}
    return transformers.MPNetTokenizer(vocab=numbers, do_lower_case=not cased)


def _byte_pairs(cased: bool) -> Any:
    made = ByteLevelBPETokenizer(lowercase=not cased)
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    made.train_from_iterator(sentences(), vocab_size=700, min_frequency=1, special_tokens=special)
    model = json.loads(made.to_str())["model"]
    mask = transformers.AddedToken("<mask>", lstrip=True, special=True)  # as published
    merges = [tuple(pair) for pair in model["merges"]]
    fast = transformers.RobertaTokenizer(vocab=model["vocab"], merges=merges, mask_token=mask)
    if not cased:
        fast.backend_tokenizer.normalizer = normalizers.Lowercase()
    return fast


def _modern_pieces(cased: bool) -> Any:
    """Byte pairs inside BERT's special tokens, as ModernBERT has them; a mask takes the space before it."""
    made = tokenizers.Tokenizer(models.BPE())
    made.normalizer = normalizers.NFC() if cased else normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    special = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    made.train_from_iterator(sentences(), trainer)
    made.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:0 [SEP]:0",
        special_tokens=[("[CLS]", 1), ("[SEP]", 2)],
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]",
        mask_token=transformers.AddedToken("[MASK]", lstrip=True, special=True),
        model_input_names=["input_ids", "attention_mask"],
    )  # fmt: skip


def _gemma_pieces(split: bool) -> Callable[[bool], Any]:
    """Pairs of characters, and a piece for each byte of other characters, as published for Gemma 2 and mmBERT.

    split: whether the pre-tokenizer is Gemma's, which changes nothing; mmBERT's puts a space before each text.
    """

    def train(cased: bool) -> Any:
        special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
        added = ["<unused0>", "<start_of_turn>", "\n", "\n\n", "▁▁", "▁▁▁", "<table>", "</b>"]
        bytes_of_text = ["\t" if number == 9 else f"<0x{number:02X}>" for number in range(256)]
        made = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
        made.normalizer = normalizers.Replace(" ", "▁")
        made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
        trainer = trainers.BpeTrainer(
            vocab_size=1000, special_tokens=[*special, *added, *bytes_of_text], initial_alphabet=["▁"], min_frequency=2
        )
        made.train_from_iterator([line if cased else line.lower() for line in sentences()], trainer)
        content = json.loads(made.to_str())
        content["model"]["merges"] = [["▁", "▁"], ["▁▁", "▁"], ["\n", "\n"], *content["model"]["merges"]]
        content["added_tokens"] = [
            {**token, "special": text in (*special, "<start_of_turn>"), "lstrip": text == "<mask>"}
            for token in content["added_tokens"] if (text := token["content"]) not in bytes_of_text
        ]  # fmt: skip
        made = tokenizers.Tokenizer.from_str(json.dumps(content))
        if not cased:
            made.normalizer = normalizers.Sequence([normalizers.Lowercase(), made.normalizer])
        if split:
            made.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
        made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
        made.post_processor = processors.TemplateProcessing(
            single="<bos>:0 $A:0 <eos>:0",
            pair="<bos>:0 $A:0 <eos>:0 $B:0 <eos>:0",
            special_tokens=[("<bos>", 2), ("<eos>", 1)],
        )
        return transformers.PreTrainedTokenizerFast(
            tokenizer_object=made, bos_token="<bos>", eos_token="<eos>", unk_token="<unk>", cls_token="<bos>",
            sep_token="<eos>", pad_token="<pad>", mask_token="<mask>",
            model_input_names=["input_ids", "attention_mask"],
        )  # fmt: skip

    return train


def save_byte_files(folder: Path) -> None:
    """A RoBERTa's tokenizer as older folders have it: `vocab.json`, `merges.txt`, and how a mask is read."""
    backend = json.loads(_byte_pairs(cased=True).backend_tokenizer.to_str())
    mask = {"__type": "AddedToken", **{k: v for k, v in backend["added_tokens"][-1].items() if k != "id"}}
    settings = {"tokenizer_class": "RobertaTokenizer", "mask_token": mask}
    merges = [" ".join(pair) for pair in backend["model"]["merges"]]
    (folder / "vocab.json").write_text(json.dumps(backend["model"]["vocab"]), encoding="utf-8")
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges, ""]), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


def save_tweet_pieces(folder: Path) -> int:
    """A BERTweet's tokenizer, as it was published: only pieces that a text is cut into are in its vocabulary."""
    made = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    first = ["<unk>", *(f"{sign}</w>" for sign in signs())]  # for the same merges each time, as above
    trainer = trainers.BpeTrainer(vocab_size=900, end_of_word_suffix="</w>", special_tokens=first)
    made.train_from_iterator([line for line in sentences() for _ in range(2)], trainer)
    used = Counter(piece for line in sentences() for piece in made.encode(line).tokens)
    letters = dict.fromkeys((sign + end for sign in signs() for end in ("", "</w>")), 0)
    written = {
        piece.removesuffix("</w>") if piece.endswith("</w>") else piece + "@@": count
        for piece, count in {**letters, **used}.items()
    }  # fmt: skip
    merges = json.loads(made.to_str())["model"]["merges"]
    (folder / "vocab.txt").write_text("".join(f"{p} {n}\n" for p, n in written.items()), encoding="utf-8")
    (folder / "bpe.codes").write_text("".join(f"{a} {b} 1\n" for a, b in merges), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertweetTokenizer"}', encoding="utf-8")
    return len(written) + 5


def _unigrams(kind: str) -> Callable[[bool], Any]:
    def train(cased: bool) -> Any:
        special = {
            "XLMRobertaTokenizer": ["<s>", "<pad>", "</s>", "<unk>"],
            "AlbertTokenizer": ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"],
            "DebertaV2Tokenizer": ["[PAD]", "[CLS]", "[SEP]", "[UNK]"],
            "CamembertTokenizer": ["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<s>", "</s>"],
        }[kind]
        backend = tokenizers.Tokenizer(models.Unigram())
        backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
        unknown = next(token for token in special if token in ("<unk>", "[UNK]"))
        trainer = trainers.UnigramTrainer(vocab_size=600, special_tokens=special, unk_token=unknown)
        backend.train_from_iterator(sentences(), trainer)
        trained = json.loads(backend.to_str())["model"]["vocab"]
        # The rarest signs come out 0.0001 apart, in another order each time: all of them count as the rarest.
        rarest = round(min(score for _, score in trained), 6)
        counted = [(piece, rarest if score < rarest + 0.01 else round(score, 6)) for piece, score in trained]
        behind = sorted(counted[len(special) :], key=lambda one: (-one[1], one[0]))
        vocabulary = [*counted[: len(special)], *behind]
        if kind == "AlbertTokenizer":
            return transformers.AlbertTokenizer(vocab=vocabulary, do_lower_case=not cased, keep_accents=cased)
        if kind == "DebertaV2Tokenizer":
            return transformers.DebertaV2Tokenizer(vocab=[*vocabulary, ("[MASK]", 0.0)], do_lower_case=not cased)
        fast = getattr(transformers, kind)(vocab=[*vocabulary, ("<mask>", 0.0)])
        if not cased:
            fast.backend_tokenizer.normalizer = normalizers.Lowercase()
        return fast

    return train


_TRAINED = {
    "distilbert": _word_pieces("input_ids", "attention_mask"),
    "electra": _word_pieces("input_ids", "token_type_ids", "attention_mask"),
    "roberta": _byte_pairs,
    "xlm-roberta": _unigrams("XLMRobertaTokenizer"),
    "camembert": _unigrams("CamembertTokenizer"),
    "albert": _unigrams("AlbertTokenizer"),
    "mpnet": _mpnet_pieces,
    "deberta-v2": _unigrams("DebertaV2Tokenizer"),
    "modernbert": _modern_pieces,
    "mmbert": _gemma_pieces(split=False),
    "gemma": _gemma_pieces(split=True),
}


def save_family(family: str, folder: Path, head: str = "ForMaskedLM", *, cased: bool = False, **sizes: Any) -> Path:
    """A checkpoint folder of the family with one head, peaked attention, and no parameter at its neutral value."""
    folder.mkdir(parents=True, exist_ok=True)
    vocab_size = save_tokenizer(family, folder, cased=cased)
    prefix = MODELS[family]
    classes = {0: "first", 1: "last"} if head in ("ForQuestionAnswering", "ForPreTraining") else CLASSES
    config = getattr(transformers, f"{prefix}Config")(
        vocab_size=vocab_size, id2label=classes, label2id={name: number for number, name in classes.items()},
        **{**SIZES[family], **sizes},
    )  # fmt: skip
    torch.manual_seed(7)
    model = getattr(transformers, f"{prefix}{head}")(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(std=0.15)
            if name.lower().endswith(("norm.weight",)):
                parameter.add_(1.0)
            if any(part in name for part in PEAKED):
                parameter.normal_(std=(9.0 / config.hidden_size) ** 0.5)
            if ".Wqkv." in name:  # of which the last third is the values
                parameter[-config.hidden_size :].mul_(0.3)
    model.save_pretrained(folder)
    return folder


def save_published_deberta(folder: Path, **sizes: Any) -> Path:
    """A DeBERTa-v3 as published: both heads of its pre-training without the generator, and no architecture."""
    save_family("deberta-v2", folder, legacy=False, **sizes)
    weights, draw = load_file(folder / "model.safetensors"), torch.Generator().manual_seed(5)
    hidden = len(weights["deberta.encoder.LayerNorm.weight"])
    for name, shape in {
        "LayerNorm.weight": (hidden,), "LayerNorm.bias": (hidden,), "dense.weight": (hidden, hidden),
        "dense.bias": (hidden,), "classifier.weight": (1, hidden), "classifier.bias": (1,),
    }.items():  # fmt: skip
        weights[f"mask_predictions.{name}"] = 0.3 * torch.randn(shape, generator=draw) + (name == "LayerNorm.weight")
    save_file(weights, folder / "model.safetensors")
    values = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    del values["architectures"]
    (folder / "config.json").write_text(json.dumps(values), encoding="utf-8")
    return folder


def reference_of(family: str, folder: Path, head: str = "ForMaskedLM") -> Any:
    """The same checkpoint as transformers has it."""
    kind = getattr(transformers, f"{MODELS[family]}{head}")
    return kind.from_pretrained(folder, attn_implementation="eager").eval()
