"""Headlight's library: a BERT whose attention, gradients and heads can be seen and changed.

Importing this package does not import torch; the first use of a name that needs it does.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOME = {
    "BertConfig": "config",
    "Encoding": "tokenizer",
    "Tokenizer": "tokenizer",
    "create_bert_model": "numpy_bert",
    "Recording": "recording",
    "BertSelfAttention": "attention",
    "BertSelfOutput": "attention",
    "BertAttention": "attention",
    "BertEmbeddings": "modeling",
    "BertIntermediate": "modeling",
    "BertOutput": "modeling",
    "BertLayer": "modeling",
    "BertEncoder": "modeling",
    "BertPooler": "modeling",
    "BertPredictionHeadTransform": "modeling",
    "BertLMPredictionHead": "modeling",
    "BertOnlyMLMHead": "modeling",
    "BertOnlyNSPHead": "modeling",
    "BertPreTrainingHeads": "modeling",
    "BertPreTrainedModel": "modeling",
    "PreTrainedBertModel": "modeling",
    "ACT2FN": "modeling",
    "BertModel": "modeling",
    "BertForPreTraining": "modeling",
    "BertForMaskedLM": "modeling",
    "BertForNextSentencePrediction": "modeling",
    "BertForSequenceClassification": "modeling",
    "BertLMHeadModel": "modeling",
    "generate": "generation",
    "CheckpointError": "checkpoint",
    "LoadReport": "checkpoint",
    "LoadedDecoder": "loading",
    "LoadedModel": "loading",
    "best_device": "loading",
    "bundled_models": "loading",
    "load": "loading",
    "save": "loading",
    "pruned": "pruning",
    "zero_filled": "pruning",
    "load_decoder": "loading",
    "Attribution": "record",
    "ClassPrediction": "record",
    "Captioner": "vision",
    "CaptionerConfig": "vision",
    "LoadedCaptioner": "vision",
    "load_captioner": "vision",
    "DecoderRun": "record",
    "MaskPrediction": "record",
    "Batch": "record",
    "CurvePoint": "record",
    "PruningPlan": "record",
    "HeadSweep": "record",
    "HeadTable": "record",
    "HeadVectors": "record",
    "ModelRun": "record",
    "LayerStates": "record",
    "LensRun": "record",
    "PairScore": "record",
    "SentenceScore": "record",
    "Target": "record",
    "Walk": "record",
    "TokenMaps": "record",
    "Translators": "translators",
    "read_translators": "translators",
    "capture": "run.capture",
    "layer_states": "run.lens",
    "logit_lens": "run.lens",
    "score_pairs": "run.scoring",
    "faithfulness": "methods",
    "layer_scores": "methods",
    "token_scores": "methods",
    "StudySettings": "study",
    "judge_file": "study",
    "loss_target": "targets",
    "word_target": "targets",
    "describe": "run.decoding",
    "walk": "run.stages",
    "head_vectors": "run.vectors",
    "ablate_heads": "run.ablation",
    "curve_points": "run.removal",
    "propose_plan": "run.removal",
    "pruning_costs": "run.removal",
    "Columns": "corpus.rows",
    "CorpusSettings": "corpus.heads",
    "heads_over": "corpus.heads",
    "track_relations": "corpus.relations",
    "read_treebank": "treebank",
    "alti": "run.decomposition",
    "attention_norms": "run.decomposition",
    "decompx": "run.decomposition",
    "globenc": "run.decomposition",
    "residual_norms": "run.decomposition",
    "input_x_gradient": "run.perturbation",
    "integrated_gradients": "run.perturbation",
    "occlusion": "run.perturbation",
    "pseudo_log_likelihood": "run.perturbation",
    "saliency": "run.perturbation",
    "value_zeroing": "run.perturbation",
}
__all__ = sorted(_HOME)
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
