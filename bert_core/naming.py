"""What a family of encoders calls BERT's weights and sizes, turned into our names and back; BERT's old spellings."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

Weight = TypeVar("Weight")  # a tensor or an array: only its name matters here


@dataclass(frozen=True)
class Family:
    """The same encoder under other names; ours are BERT's.

    name: as `model_type` in its config.json. classifier: the architecture of its classifiers of whole texts.
    sign: part of a weight's name by which a file is known to be of this family; None for BERT's.
    beginnings: how names of weights begin, its own and ours; of two of its own for one of ours the first counts.
    inside: parts of the names within a layer, its own and ours, replaced in this order.
    sizes: its own names in config.json, by ours. implied: what its files mean where they do not say it.
    only: what its files may say of a size that is here always the same.
    counts_from_pad: whether positions begin behind the number of the padding token, so that the table has more rows
        than a text has places.
    next_sentences: whether its models were asked in pre-training if one text follows another.
    word_act: the activation of its word head, whatever that of its layers is; None: the same.
    asks_order: whether its head of two texts was trained to say which comes first, not whether B follows A.
    before_choices: what its files may say of the layer before the scores of choices, where they say anything.
    """

    name: str
    classifier: str
    marker: str | None = None
    prefixes: tuple[tuple[str, str], ...] = ()
    layer_names: tuple[tuple[str, str], ...] = ()
    sizes: Mapping[str, str] = field(default_factory=dict)
    default_sizes: Mapping[str, Any] = field(default_factory=dict)
    required_values: Mapping[str, Any] = field(default_factory=dict)
    counts_from_pad: bool = False
    next_sentences: bool = False
    mlm_act: str | None = None
    predicts_order: bool = False
    choice_head_values: Mapping[str, Any] = field(default_factory=dict)

    def to_bert_names(self, weights: Mapping[str, Weight]) -> dict[str, Weight]:
        """Its weights by our names."""
        found: dict[str, Weight] = {}
        for own, _ in (*self.prefixes, ("", "")):  # in their order, so that the first one counts
            for name, weight in weights.items():
                if name.startswith(own):
                    found.setdefault(_replaced(name, self.prefixes, self.layer_names), weight)
        return found

    @property
    def token_classifier(self) -> str:
        """The architecture of its classifiers of single tokens."""
        return self.classifier.replace("ForSequence", "ForToken")

    @property
    def question_answering(self) -> str:
        """The architecture of its readers, which find answers."""
        return self.classifier.replace("ForSequenceClassification", "ForQuestionAnswering")

    @property
    def multiple_choice(self) -> str:
        """The architecture of its choosers, which score answers to choose from."""
        return self.classifier.replace("ForSequenceClassification", "ForMultipleChoice")

    def from_bert_names(self, weights: Mapping[str, Weight], *, pooled: bool = True) -> dict[str, Weight]:
        """Our weights by its own names. What stands before a classifier is called so only where there is one.

        pooled: whether a classifier is one of whole texts; before one of single tokens nothing stands, and before one
        of choices what the family calls its pooler.
        """
        classifies = pooled and any(name.startswith("classifier.") for name in weights)
        beginnings = tuple(
            (ours, own) for own, ours in self.prefixes if classifies or not own.startswith("classifier.")
        )
        inside = tuple((ours, own) for own, ours in self.layer_names)
        return {_replaced(name, beginnings, inside): weight for name, weight in weights.items()}


BERT = Family("bert", "BertForSequenceClassification", default_sizes={"pooler_act": "tanh"}, next_sentences=True)
# Sanh 2019 (arXiv:1910.01108): no segments and no pooler; what stands before the classifier is one with a ReLU.
DISTILBERT = Family(
    "distilbert",
    "DistilBertForSequenceClassification",
    marker=".attention.q_lin.",
    prefixes=(
        ("distilbert.embeddings.", "bert.embeddings."),
        ("distilbert.transformer.layer.", "bert.encoder.layer."),
        ("embeddings.", "bert.embeddings."),
        ("transformer.layer.", "bert.encoder.layer."),
        ("vocab_transform.", "cls.predictions.transform.dense."),
        ("vocab_layer_norm.", "cls.predictions.transform.LayerNorm."),
        ("vocab_projector.bias", "cls.predictions.bias"),
        ("vocab_projector.", "cls.predictions.decoder."),
        ("pre_classifier.", "bert.pooler.dense."),
    ),
    layer_names=(
        (".attention.q_lin.", ".attention.self.query."),
        (".attention.k_lin.", ".attention.self.key."),
        (".attention.v_lin.", ".attention.self.value."),
        (".attention.out_lin.", ".attention.output.dense."),
        (".sa_layer_norm.", ".attention.output.LayerNorm."),
        (".ffn.lin1.", ".intermediate.dense."),
        (".ffn.lin2.", ".output.dense."),
        (".output_layer_norm.", ".output.LayerNorm."),
    ),
    sizes={
        "hidden_size": "dim", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads",
        "intermediate_size": "hidden_dim", "hidden_act": "activation", "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "attention_dropout", "classifier_dropout": "seq_classif_dropout",
    },
    default_sizes={"num_hidden_layers": 6, "classifier_dropout": 0.2, "type_vocab_size": 0, "pooler_act": "relu"},
)  # fmt: skip
# Liu 2019 (arXiv:1907.11692), Conneau 2020 (arXiv:1911.02116), Martin 2020 (arXiv:1911.03894): no next sentences.
ROBERTA = Family(
    "roberta",
    "RobertaForSequenceClassification",
    marker="roberta.",
    prefixes=(
        ("classifier.dense.", "bert.pooler.dense."),
        ("classifier.out_proj.", "classifier."),
        ("lm_head.dense.", "cls.predictions.transform.dense."),
        ("lm_head.layer_norm.", "cls.predictions.transform.LayerNorm."),
        ("lm_head.bias", "cls.predictions.bias"),
        ("lm_head.decoder.", "cls.predictions.decoder."),
        ("roberta.", "bert."),
    ),
    default_sizes={"pad_token_id": 1, "pooler_act": "tanh"},
    mlm_act="gelu",
    counts_from_pad=True,
)
XLM_ROBERTA = replace(ROBERTA, name="xlm-roberta", classifier="XLMRobertaForSequenceClassification")
CAMEMBERT = replace(ROBERTA, name="camembert", classifier="CamembertForSequenceClassification")
# Clark 2020 (arXiv:2003.10555): tables that may be narrower than the layers, no pooler and no next sentences; a
# generator of words, and a discriminator that says of each token whether it was replaced. What stands before a
# classifier is a pooler with a GELU.
ELECTRA = Family(
    "electra",
    "ElectraForSequenceClassification",
    marker="electra.",
    prefixes=(
        ("classifier.dense.", "bert.pooler.dense."),
        ("classifier.out_proj.", "classifier."),
        ("sequence_summary.summary.", "bert.pooler.dense."),
        ("generator_predictions.dense.", "cls.predictions.transform.dense."),
        ("generator_predictions.LayerNorm.", "cls.predictions.transform.LayerNorm."),
        ("generator_lm_head.bias", "cls.predictions.bias"),
        ("generator_lm_head.", "cls.predictions.decoder."),
        ("electra.embeddings_project.", "bert.embeddings.embeddings_project."),
        ("electra.", "bert."),
    ),
    mlm_act="gelu",
    default_sizes={
        "embedding_size": 128, "hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024,
        "pooler_act": "gelu",
    },
    choice_head_values={"summary_type": "first", "summary_use_proj": True, "summary_activation": "gelu"},
)  # fmt: skip
# Lan 2020 (arXiv:1909.11942): the layers of a group share their weights, and two texts are in order or swapped.
ALBERT = Family(
    "albert",
    "AlbertForSequenceClassification",
    marker=".albert_layers.",
    prefixes=(
        ("albert.encoder.embedding_hidden_mapping_in.", "bert.embeddings.embeddings_project."),
        ("albert.encoder.albert_layer_groups.", "bert.encoder.layer."),
        ("albert.embeddings.", "bert.embeddings."),
        ("albert.pooler.", "bert.pooler.dense."),
        ("encoder.embedding_hidden_mapping_in.", "bert.embeddings.embeddings_project."),
        ("encoder.albert_layer_groups.", "bert.encoder.layer."),
        ("embeddings.", "bert.embeddings."),
        ("pooler.", "bert.pooler.dense."),
        ("predictions.dense.", "cls.predictions.transform.dense."),
        ("predictions.LayerNorm.", "cls.predictions.transform.LayerNorm."),
        ("predictions.decoder.", "cls.predictions.decoder."),
        ("predictions.bias", "cls.predictions.bias"),
        ("sop_classifier.classifier.", "cls.seq_relationship."),
    ),
    layer_names=(
        (".albert_layers.0.attention.query.", ".attention.self.query."),
        (".albert_layers.0.attention.key.", ".attention.self.key."),
        (".albert_layers.0.attention.value.", ".attention.self.value."),
        (".albert_layers.0.attention.dense.", ".attention.output.dense."),
        (".albert_layers.0.attention.LayerNorm.", ".attention.output.LayerNorm."),
        (".albert_layers.0.ffn.", ".intermediate.dense."),
        (".albert_layers.0.ffn_output.", ".output.dense."),
        (".albert_layers.0.full_layer_layer_norm.", ".output.LayerNorm."),
    ),
    sizes={"classifier_dropout": "classifier_dropout_prob"},
    default_sizes={
        "embedding_size": 128, "num_hidden_groups": 1, "hidden_act": "gelu_new", "pooler_act": "tanh",
        "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "classifier_dropout": 0.1,
    },
    required_values={"inner_group_num": 1},
    next_sentences=True,
    predicts_order=True,
)  # fmt: skip
# Song 2020 (arXiv:2004.09297): RoBERTa's places and word head, no segments, and one bias for each head and bucket of
# distances, shared by all layers. transformers has 32 buckets and padding token 1, whatever a file says.
MPNET = Family(
    "mpnet",
    "MPNetForSequenceClassification",
    marker=".attention.attn.",
    prefixes=(
        ("classifier.dense.", "bert.pooler.dense."),
        ("classifier.out_proj.", "classifier."),
        ("lm_head.dense.", "cls.predictions.transform.dense."),
        ("lm_head.layer_norm.", "cls.predictions.transform.LayerNorm."),
        ("lm_head.bias", "cls.predictions.bias"),
        ("lm_head.decoder.", "cls.predictions.decoder."),
        ("mpnet.encoder.relative_attention_bias.", "bert.encoder.layer.0.attention.self.relative_attention_bias."),
        ("mpnet.", "bert."),
        ("encoder.relative_attention_bias.", "bert.encoder.layer.0.attention.self.relative_attention_bias."),
        ("embeddings.", "bert.embeddings."),
        ("encoder.", "bert.encoder."),
        ("pooler.", "bert.pooler."),
    ),
    layer_names=(
        (".attention.attn.q.", ".attention.self.query."),
        (".attention.attn.k.", ".attention.self.key."),
        (".attention.attn.v.", ".attention.self.value."),
        (".attention.attn.o.", ".attention.output.dense."),
        (".attention.LayerNorm.", ".attention.output.LayerNorm."),
    ),
    default_sizes={
        "pad_token_id": 1, "type_vocab_size": 0, "pooler_act": "tanh", "position_embedding_type": "relative_bias",
    },
    required_values={"pad_token_id": 1, "position_embedding_type": "relative_bias", "relative_attention_num_buckets": 32},
    mlm_act="gelu",
    counts_from_pad=True,
)  # fmt: skip
FAMILIES = {
    family.name: family for family in (BERT, DISTILBERT, ROBERTA, XLM_ROBERTA, CAMEMBERT, ELECTRA, ALBERT, MPNET)
}
# Models of texts that are built otherwise, by the `model_type` of their files, and how.
UNSUPPORTED_TYPES = {
    "deberta": "whose attention looks at words and places apart",
    "deberta-v2": "whose attention looks at words and places apart",
    "modernbert": "which norms before each part and turns queries and keys by their place",
}


def family_of(model_type: object) -> Family:
    """The family of a `model_type`; BERT where it says nothing, or nothing that is known."""
    return FAMILIES.get(model_type, BERT) if isinstance(model_type, str) else BERT


def renumber_layers(weights: Mapping[str, Weight], number: Callable[[int], int]) -> dict[str, Weight]:
    """The same weights, by our names, each layer under another number: the name of a group is that of a layer."""
    return {
        re.sub(r"(?<=encoder\.layer\.)\d{1,9}(?=\.)", lambda found: str(number(int(found[0]))), name): weight
        for name, weight in weights.items()
    }


def to_current_names(state_dict: Mapping[str, Weight]) -> dict[str, Weight]:
    """The same weights under today's names: `gamma` and `beta` become weight and bias, `bert.` is put in front.

    Those of another family get ours. The decoder of a captioner loses its `text_decoder.`; the captioner's other parts
    keep their names.
    """
    state_dict = _unwrapped(state_dict)
    for family in FAMILIES.values():
        if family.marker is not None and any(family.marker in key for key in state_dict):
            return family.to_bert_names(state_dict)
    inner = "text_decoder." if any(key.startswith("text_decoder.") for key in state_dict) else ""
    prefixed = any(key.removeprefix(inner).startswith(("bert.", "cls.")) for key in state_dict)
    renamed = {}
    for key, value in state_dict.items():
        name = key.removeprefix(inner)
        if name.endswith(".gamma"):
            name = name.removesuffix("gamma") + "weight"
        elif name.endswith(".beta"):
            name = name.removesuffix("beta") + "bias"
        if name.startswith("embeddings_project."):  # of a bare ELECTRA
            name = "embeddings." + name
        if not prefixed and name.startswith(("embeddings.", "encoder.", "pooler.")):
            name = "bert." + name
        renamed[name] = value
    return renamed


def _unwrapped(state_dict: Mapping[str, Weight]) -> dict[str, Weight]:
    """The same weights without the names that wrappers add: DataParallel's, torch.compile's and those of one module."""
    found = {
        re.sub(r"(?<![^.])_orig_mod\.", "", key).removeprefix("module."): value for key, value in state_dict.items()
    }
    if found and all(key.startswith("model.") for key in found):
        found = {key.removeprefix("model."): value for key, value in found.items()}
    return found


def _replaced(name: str, beginnings: tuple[tuple[str, str], ...], inside: tuple[tuple[str, str], ...]) -> str:
    """A name with the first beginning that fits, and every part inside a layer, replaced: old, new."""
    given = name
    for old, new in beginnings:
        if name.startswith(old):
            name = new + name.removeprefix(old)
            break
    if ".layer." in given or ".layer." in name:
        for old, new in inside:
            name = name.replace(old, new)
    return name
