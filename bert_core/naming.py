"""Names of the weights and configuration fields of each family of encoders, translated to and from those of BERT.

BERT's own older names of weights are translated too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

from bert_core.layer_design import POST_NORM, PRE_NORM_GATED, LayerDesign

Weight = TypeVar("Weight")  # a tensor or an array: this module uses only its name
WORD_TRANSFORM = "cls.predictions.transform."  # the layers before the scores of word pieces, by BERT's names
# Those before a classifier of texts and one of tokens, which have the same parts if all heads have one design.
HEAD_TRANSFORMS = ("bert.pooler.", "transform.")


@dataclass(frozen=True)
class Family:
    """A family of encoders with BERT's architecture, and its names for weights and configuration fields.

    name: `model_type` in its config.json.
    classifier: class name of its sequence classifiers in transformers.
    marker: part of a weight's name that identifies a file as one of this family; None for BERT.
    prefixes: (family's, BERT's) beginnings of weight names. If several of the family stand for one of BERT, the first
        has precedence.
    layer_names: (family's, BERT's) parts of weight names within a layer, replaced in this order.
    sizes: BERT's name of a config.json field -> the family's name.
    default_sizes: BERT's name of a field -> its value if the family's file does not state it.
    required_values: fields that the family's file may state, but only with this value.
    counts_from_pad: whether position numbers start after the padding token's number. The position table then has more
        rows than a text can have tokens.
    next_sentences: whether pre-training included next-sentence or sentence-order prediction.
    mlm_act: activation of the MLM head; None for that of the layers.
    predicts_order: whether the head for two texts predicts which comes first, instead of whether B follows A.
    choice_head_values: fields about the layer before the scores of a multiple-choice model, with the only values
        that the family's file may state.
    fixed_values: fields with one value in the family, whatever its file states.
    fused_layers: linear layers whose weights the family's files contain as one, with the rows of each in turn.
    final_norm: (family's, BERT's) names of the layer norm of the final hidden states, of which BERT's belongs to the
        last layer; None for families without one.
    layer_design: where the layer norms of a layer are, and which parts have biases.
    one_head_design: whether the MLM head and all classifiers have the same layers before their outputs: a dense layer,
        an activation function and a layer norm. The family's files name them alike, so one file can hold only one head.
    detector_adds_first_token: whether the head that detects replaced tokens reads the sum of the hidden states of a
        token and of the first token, after a layer norm.
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
    detector_adds_first_token: bool = False
    fixed_values: Mapping[str, Any] = field(default_factory=dict)
    fused_layers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    final_norm: tuple[str, str] | None = None
    layer_design: LayerDesign = POST_NORM
    one_head_design: bool = False

    def to_bert_names(self, weights: Mapping[str, Weight]) -> dict[str, Weight]:
        """Return weights with the family's names under BERT's names, and fused ones as one weight for each layer."""
        part = "bert.pooler." if any(name.startswith("classifier.") for name in weights) else WORD_TRANSFORM
        renamed = self._split(self._renamed(weights, self._prefixes_for(part)))
        if self.final_norm is not None:
            layer = max((number for name in renamed if (number := _layer_number(name)) is not None), default=0)
            family_name, bert_name = self.final_norm
            prefix = f"bert.encoder.layer.{layer}.{bert_name}"
            renamed = {_replace_start(name, family_name, prefix): weight for name, weight in renamed.items()}
        return renamed

    def _prefixes_for(self, part: str) -> tuple[tuple[str, str], ...]:
        """Return `prefixes` for a file with one head of `one_head_design`, whose layers are this part of the model."""
        if not self.one_head_design:
            return self.prefixes
        return tuple((old, _replace_start(new, WORD_TRANSFORM, part)) for old, new in self.prefixes)

    def _renamed(self, weights: Mapping[str, Weight], prefixes: tuple[tuple[str, str], ...]) -> dict[str, Weight]:
        """Return weights with the family's names under BERT's names, fused ones under the names of `fused_layers`."""
        renamed: dict[str, Weight] = {}
        for family_prefix, _ in (*prefixes, ("", "")):  # in the order of precedence
            for name, weight in weights.items():
                if name.startswith(family_prefix):
                    renamed.setdefault(_replace_parts(name, prefixes, self.layer_names), weight)
        return renamed

    def with_token_head(self, weights: Mapping[str, Weight], *, answers: bool) -> dict[str, Weight]:
        """Return weights of a family with `one_head_design` under BERT's names, whose head reads single tokens.

        `to_bert_names` returns the layers of such a head as those of a classifier of texts, which the files do not
        distinguish. answers: whether the outputs are the start and the end of an answer.
        """
        renamed = {_replace_start(name, "bert.pooler.", "transform."): weight for name, weight in weights.items()}
        outputs = "qa_outputs." if answers else "classifier."
        return {_replace_start(name, "classifier.", outputs): weight for name, weight in renamed.items()}

    def _split(self, weights: Mapping[str, Weight]) -> dict[str, Weight]:
        """Return weights with fused ones split into those of `fused_layers`."""
        split: dict[str, Weight] = {}
        for name, weight in weights.items():
            fused = next((fused for fused in self.fused_layers if fused in name), None)
            if fused is None:
                split[name] = weight
                continue
            parts, array = self.fused_layers[fused], cast("Any", weight)
            for number, part in enumerate(parts):
                # A weight of another shape is left as it is, and refused with the shape that is required.
                rows = len(array) // len(parts) if array.ndim else 0
                split[name.replace(fused, part)] = array[number * rows : (number + 1) * rows] if rows else weight
        return split

    def _merge(self, weights: Mapping[str, Weight], concatenate: Callable[[list[Weight]], Weight]) -> dict[str, Weight]:
        """Return weights with those of `fused_layers` concatenated; it reverses `_split`."""
        merged: dict[str, Weight] = {}
        for name, weight in weights.items():
            fused = next((fused for fused, parts in self.fused_layers.items() if parts[0] in name), None)
            if fused is not None:
                parts = self.fused_layers[fused]
                merged[name.replace(parts[0], fused)] = concatenate([weights[name.replace(parts[0], p)] for p in parts])
            elif not any(part in name for parts in self.fused_layers.values() for part in parts):
                merged[name] = weight
        return merged

    @property
    def token_classifier(self) -> str:
        """Class name of its token classifiers in transformers."""
        return self.classifier.replace("ForSequence", "ForToken")

    @property
    def question_answering(self) -> str:
        """Class name of its extractive question-answering models in transformers."""
        return self.classifier.replace("ForSequenceClassification", "ForQuestionAnswering")

    @property
    def multiple_choice(self) -> str:
        """Class name of its multiple-choice models in transformers."""
        return self.classifier.replace("ForSequenceClassification", "ForMultipleChoice")

    def from_bert_names(
        self,
        weights: Mapping[str, Weight],
        concatenate: Callable[[list[Weight]], Weight] | None = None,
        *,
        pooled: bool = True,
    ) -> dict[str, Weight]:
        """Return weights with BERT's names under the family's names, those of `fused_layers` as one.

        concatenate: joins tensors along their first axis. Only families with `fused_layers` need it.

        pooled: whether a classifier among the weights is a sequence classifier, whose dense layer some families name
            as part of the classifier. Token classifiers have no such layer, and multiple-choice models name it as
            the pooler.
        """
        has_classifier = any(name.startswith("classifier.") for name in weights)
        reads_tokens = any(name.startswith("transform.") for name in weights)
        part = "transform." if reads_tokens else "bert.pooler." if has_classifier else WORD_TRANSFORM
        classifies = pooled and has_classifier
        prefixes = (
            tuple(
                (bert_prefix, family_prefix)
                for family_prefix, bert_prefix in self._prefixes_for(part)
                if classifies or not family_prefix.startswith("classifier.")
            )
            + (("qa_outputs.", "classifier."),) * self.one_head_design
        )
        layer_names = tuple((bert_name, family_name) for family_name, bert_name in self.layer_names)
        if self.final_norm is not None:
            family_name, bert_name = self.final_norm
            last = rf"bert\.encoder\.layer\.\d+\.{re.escape(bert_name)}"
            weights = {re.sub(f"^{last}", family_name, name): weight for name, weight in weights.items()}
        if concatenate is not None:
            weights = self._merge(weights, concatenate)
        return {_replace_parts(name, prefixes, layer_names): weight for name, weight in weights.items()}


BERT = Family("bert", "BertForSequenceClassification", default_sizes={"pooler_act": "tanh"}, next_sentences=True)
# Sanh 2019 (arXiv:1910.01108): no segments and no pooler. The layer before the classifier is equivalent to a pooler
# with ReLU.
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
# Liu 2019 (arXiv:1907.11692), Conneau 2020 (arXiv:1911.02116), Martin 2020 (arXiv:1911.03894): no next-sentence
# prediction.
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
# Clark 2020 (arXiv:2003.10555): embedding tables that may be narrower than the layers, no pooler and no next-sentence
# prediction. A generator predicts masked tokens, and a discriminator predicts which tokens were replaced. The layer
# before a classifier is equivalent to a pooler with GELU.
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
# Lan 2020 (arXiv:1909.11942): the layers of a group share their weights. The head for two texts predicts whether they
# are in their original order or swapped.
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
# Song 2020 (arXiv:2004.09297): positions and MLM head of RoBERTa, no segments, and one bias for each head and bucket of
# distances, shared by all layers. transformers uses 32 buckets and padding token 1, whatever a file states.
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
    required_values={
        "pad_token_id": 1, "position_embedding_type": "relative_bias", "relative_attention_num_buckets": 32,
    },
    mlm_act="gelu",
    counts_from_pad=True,
)  # fmt: skip
# He 2021 (arXiv:2006.03654, arXiv:2111.09543): no absolute positions and no segments; queries and keys of contents and
# of distances, from one table of all layers. The head that detects replaced tokens is that of the published files.
# Their `lm_predictions` belong to a generator that is not published, so they are not read.
DEBERTA_V2 = Family(
    "deberta-v2",
    "DebertaV2ForSequenceClassification",
    marker=".attention.self.query_proj.",
    prefixes=(
        ("mask_predictions.classifier.", "discriminator_predictions.dense_prediction."),
        ("mask_predictions.", "discriminator_predictions."),
        ("pooler.", "bert.pooler."),
        ("deberta.encoder.rel_embeddings.", "bert.encoder.layer.0.attention.self.rel_embeddings."),
        ("deberta.encoder.LayerNorm.", "bert.encoder.layer.0.attention.self.rel_LayerNorm."),
        ("deberta.", "bert."),
        ("encoder.rel_embeddings.", "bert.encoder.layer.0.attention.self.rel_embeddings."),
        ("encoder.LayerNorm.", "bert.encoder.layer.0.attention.self.rel_LayerNorm."),
        ("embeddings.", "bert.embeddings."),
        ("encoder.", "bert.encoder."),
    ),
    layer_names=(
        (".attention.self.query_proj.", ".attention.self.query."),
        (".attention.self.key_proj.", ".attention.self.key."),
        (".attention.self.value_proj.", ".attention.self.value."),
    ),
    sizes={"pooler_act": "pooler_hidden_act", "classifier_dropout": "cls_dropout"},
    default_sizes={
        "vocab_size": 128100, "hidden_size": 1536, "num_hidden_layers": 24, "num_attention_heads": 24,
        "intermediate_size": 6144, "layer_norm_eps": 1e-7, "type_vocab_size": 0, "pooler_act": "gelu",
        "position_embedding_type": "disentangled", "relative_attention": False, "position_biased_input": True,
        "position_buckets": -1, "max_relative_positions": -1, "pos_att_type": None, "share_att_key": False,
        "norm_rel_ebd": "none", "embedding_size": None,
    },
    required_values={
        "position_embedding_type": "disentangled", "relative_attention": True, "position_biased_input": False,
        "conv_kernel_size": 0, "embedding_size": None,
    },
    detector_adds_first_token=True,
)  # fmt: skip
# Warner 2024 (arXiv:2412.13663), also Ettin (arXiv:2507.11412) and mmBERT (arXiv:2509.06888): layer norms before
# attention and the feed-forward network, rotary positions, local layers, gated neurons and no segments. The MLM head
# and the classifiers have the same layers. Some files state fields of BERT that transformers does not read.
MODERNBERT = Family(
    "modernbert",
    "ModernBertForSequenceClassification",
    marker=".attn.Wqkv.",
    prefixes=(
        ("model.embeddings.tok_embeddings.", "bert.embeddings.word_embeddings."),
        ("model.embeddings.norm.", "bert.embeddings.LayerNorm."),
        ("model.layers.", "bert.encoder.layer."),
        ("model.final_norm.", "final_norm."),
        ("embeddings.tok_embeddings.", "bert.embeddings.word_embeddings."),
        ("embeddings.norm.", "bert.embeddings.LayerNorm."),
        ("layers.", "bert.encoder.layer."),
        ("head.dense.", "cls.predictions.transform.dense."),
        ("head.norm.", "cls.predictions.transform.LayerNorm."),
        ("decoder.bias", "cls.predictions.bias"),
        ("decoder.", "cls.predictions.decoder."),
    ),
    layer_names=(
        (".attn.Wqkv.", ".attention.self.Wqkv."),
        (".attn.Wo.", ".attention.output.dense."),
        (".attn_norm.", ".attention.input_norm."),
        (".mlp.Wi.", ".intermediate.Wi."),
        (".mlp.Wo.", ".output.dense."),
        (".mlp_norm.", ".intermediate.input_norm."),
    ),
    sizes={
        "hidden_act": "hidden_activation", "layer_norm_eps": "norm_eps", "hidden_dropout_prob": "mlp_dropout",
        "attention_probs_dropout_prob": "attention_dropout", "pooler_act": "classifier_activation",
    },
    default_sizes={
        "vocab_size": 50368, "num_hidden_layers": 22, "intermediate_size": 1152, "layer_norm_eps": 1e-5,
        "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "classifier_dropout": 0.0,
        "max_position_embeddings": 8192, "type_vocab_size": 0, "pad_token_id": 50283, "pooler_act": "gelu",
        "position_embedding_type": "rotary",
    },
    required_values={"embedding_dropout": 0.0, "decoder_bias": True},
    fixed_values={"position_embedding_type": "rotary", "type_vocab_size": 0, "embedding_size": None},
    fused_layers={
        ".attention.self.Wqkv.": (".attention.self.query.", ".attention.self.key.", ".attention.self.value."),
        ".intermediate.Wi.": (".intermediate.dense.", ".intermediate.gate."),
    },
    final_norm=("final_norm.", "output.LayerNorm."),
    layer_design=PRE_NORM_GATED,
    one_head_design=True,
)  # fmt: skip
FAMILIES = {
    family.name: family
    for family in (BERT, DISTILBERT, ROBERTA, XLM_ROBERTA, CAMEMBERT, ELECTRA, ALBERT, MPNET, DEBERTA_V2, MODERNBERT)
}
# Text encoders with an unsupported architecture: their `model_type` and the difference, for a message.
UNSUPPORTED_TYPES = {
    "deberta": "whose queries, keys and values have one projection, unlike those of DeBERTa-v2 and v3",
    **dict.fromkeys(
        ("nomic_bert", "gte", "new", "jina_embeddings_v3"),
        "which rotates queries and keys by position and has its layer norms after each sublayer",
    ),
}


def family_of(model_type: object) -> Family:
    """Return the family of a `model_type`, or BERT if it is missing or unknown."""
    return FAMILIES.get(model_type, BERT) if isinstance(model_type, str) else BERT


def renumber_layers(weights: Mapping[str, Weight], number: Callable[[int], int]) -> dict[str, Weight]:
    """Return weights with BERT's names under other layer numbers, for example from groups to layers.

    number: the new number for each old one.
    """
    return {
        re.sub(r"(?<=encoder\.layer\.)\d{1,9}(?=\.)", lambda match: str(number(int(match[0]))), name): weight
        for name, weight in weights.items()
    }


def to_current_names(state_dict: Mapping[str, Weight]) -> dict[str, Weight]:
    """Return the weights of a checkpoint under BERT's current names.

    `gamma` and `beta` become `weight` and `bias`, a missing `bert.` is added, and the names of another family are
    translated. The names of a captioner's decoder lose their `text_decoder.`; its other parts keep their names.
    """
    state_dict = _without_wrapper_names(state_dict)
    for family in FAMILIES.values():
        if family.marker is not None and any(family.marker in key for key in state_dict):
            return family.to_bert_names(state_dict)
    decoder_prefix = "text_decoder." if any(key.startswith("text_decoder.") for key in state_dict) else ""
    has_prefix = any(key.removeprefix(decoder_prefix).startswith(("bert.", "cls.")) for key in state_dict)
    renamed = {}
    for key, value in state_dict.items():
        name = key.removeprefix(decoder_prefix)
        if name.endswith(".gamma"):
            name = name.removesuffix("gamma") + "weight"
        elif name.endswith(".beta"):
            name = name.removesuffix("beta") + "bias"
        if name.startswith("embeddings_project."):  # in an ELECTRA saved without heads
            name = "embeddings." + name
        if not has_prefix and name.startswith(("embeddings.", "encoder.", "pooler.")):
            name = "bert." + name
        renamed[name] = value
    return renamed


def _without_wrapper_names(state_dict: Mapping[str, Weight]) -> dict[str, Weight]:
    """Remove the name parts that DataParallel, torch.compile and wrapping in a module named `model` add."""
    unwrapped = {
        re.sub(r"(?<![^.])_orig_mod\.", "", key).removeprefix("module."): value for key, value in state_dict.items()
    }
    if unwrapped and all(key.startswith("model.") for key in unwrapped):
        unwrapped = {key.removeprefix("model."): value for key, value in unwrapped.items()}
    return unwrapped


def _layer_number(name: str) -> int | None:
    """Return the layer that a weight with BERT's name belongs to; None for one outside the layers."""
    match = re.match(r"bert\.encoder\.layer\.(\d{1,9})\.", name)
    return None if match is None else int(match[1])


def _replace_start(name: str, old: str, new: str) -> str:
    """Replace the beginning of a name."""
    return new + name.removeprefix(old) if name.startswith(old) else name


def _replace_parts(name: str, prefixes: tuple[tuple[str, str], ...], layer_names: tuple[tuple[str, str], ...]) -> str:
    """Replace the first prefix that matches, and every part of a name within a layer; the pairs are (old, new)."""
    original = name
    for old, new in prefixes:
        if name.startswith(old):
            name = new + name.removeprefix(old)
            break
    if ".layer." in original or ".layer." in name:
        for old, new in layer_names:
            name = name.replace(old, new)
    return name
