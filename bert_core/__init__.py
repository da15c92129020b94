"""Headlight's library: a BERT whose attention, gradients and heads can be seen and changed.

Importing this package does not import torch; the first use of a name that needs it does.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING

logging.getLogger(__name__).addHandler(logging.NullHandler())  # quiet, unless a program asks

__version__ = "0.2.0"

# Where each name lives, for the interpreter, which loads it when it is first used.
_NAMES = {
    # Files and the model.
    "refused": "Refused",
    "progress": "Progress",
    "config": "BertConfig",
    "tokenizer": "Encoding Tokenizer",
    "numpy_bert": "create_bert_model",
    "attention": "BertAttention BertSelfAttention BertSelfOutput",
    "modeling": (
        "ACT2FN BertEmbeddings BertEncoder BertForMaskedLM BertForMultipleChoice BertForNextSentencePrediction "
        "BertForPreTraining BertForQuestionAnswering BertForReplacedTokenDetection BertForSequenceClassification "
        "BertForTokenClassification BertIntermediate BertLMHeadModel BertLMPredictionHead BertLayer BertModel "
        "BertOnlyMLMHead BertOnlyNSPHead BertOutput BertPooler BertPreTrainedModel BertPreTrainingHeads "
        "BertPredictionHeadTransform PreTrainedBertModel"
    ),
    "generation": "generate",
    "checkpoint": "CheckpointError LoadReport",
    "edits": "Cut Put Scaled",
    "editing": "edited unedited",
    "pooling": "Pooling",
    "task_heads": "TaskHead register_head unregister_head",
    "loading": "LoadedDecoder LoadedModel best_device bundled_models load load_decoder save",
    "pruning": "pruned zero_filled",
    "translators": "Translators read_translators",
    "vision": "Captioner CaptionerConfig LoadedCaptioner load_captioner",
    # Running it.
    "recording": "Recording record",
    "records.causes": "MeanOf Noised PatchBand Patches Paths",
    "records.examples": "Batch",
    "records.heads": "CurvePoint HeadSweep HeadTable HeadVectors PruningPlan",
    "records.layers": "LayerStates LensRun Walk",
    "records.models": "ModelComparison",
    "records.neurons": "NeuronAttribution NeuronRun NeuronWords Suppression",
    "records.probes": "ProbePoint",
    "records.run": (
        "ChoicePrediction ClassPrediction DecoderRun MaskPrediction ModelRun Span SpanPrediction TagPrediction"
    ),
    "records.similarity": "Similarity",
    "target_kinds": "FileQuestion TargetKind",
    "records.targets": "Target loss_target word_target",
    "records.tokens": "Attribution PairRow PairScore SentenceScore TokenMaps",
    "methods": "METHODS Method faithfulness layer_scores token_scores",
    "run.ablation": "ablate_heads",
    "run.capture": "capture captures",
    "run.costs": "curve_points pruning_costs",
    "run.decoding": "describe",
    "run.decomposition": "alti attention_norms decompx globenc head_values residual_norms",
    "run.inputs": "head_mask_without",
    "run.knockouts": "cut_each",
    "run.lens": "layer_states logit_lens",
    "run.answers": "Answer",
    "run.carrying": "carried make_patch",
    "run.choosing": "choose",
    "run.neurons": "neuron_activations neuron_gradients neuron_words suppress_neurons",
    "run.patching": "answer_with estimate_patches patch patch_band",
    "run.paths": "patch_path",
    "run.perturbation": (
        "input_x_gradient integrated_gradients occlusion pseudo_log_likelihood saliency value_zeroing values_without"
    ),
    "run.plans": "propose_plan",
    "run.scoring": "score_pairs",
    "run.similarity": "read_sentence sentence_vector similar similarity_target unrelated_cosines",
    "run.states": "answers_erased",
    "run.target_grammar": "format_target parse_target",
    "run.walk": "walk",
    "run.vectors": "head_vectors",
    # Analysis: arrays to answers.
    "analysis.attribution": ("effective_attention gradient_attention gradient_relevance norm_rollout rank_agreement"),
    "analysis.causes": "Missed Partners patches_missed word_partners",
    "analysis.cautions": "Cautions cautions",
    "analysis.cka": "linear_cka",
    "analysis.compare": "Alignment Change aligned attention_divergence change largest_changes",
    "analysis.erasure": "Eraser leace random_eraser",
    "analysis.faithfulness": "Faithfulness",
    "analysis.flow": "attention_flow attention_rollout layer_mixing mean_of_heads",
    "analysis.heads": "heads_agreement layer_normalised leading_heads removal_estimate",
    "analysis.kinds": "KindFigures kind_figures",
    "analysis.lens": "Plane cosine_similarities mean_similarity neighbours_in_plane settled_depth states_in_plane",
    "analysis.neurons": "Strongest strongest_neurons",
    "analysis.patterns": "RoleFigures attention_entropy combined map_between_words mean_distance role_figures share_to",
    "analysis.pointing": "heat patches_in points_into share_in",
    "analysis.probes": "Probe ProbeDepth code_lengths control_labels fit_probe probe_depths",
    "analysis.pruning": "curve_of hardly_missed random_band",
    "analysis.relations": "RelationRow RelationTally",
    "analysis.roles": (
        "Role classical_scaling head_distances heads_by_role nearest_heads role_scores roles_of_heads "
        "strongest_examples"
    ),
    "analysis.sinks": "Pull Sinks effective_rank pull_of sinks",
    "analysis.scoring": "pair_columns",
    "analysis.similarity": "cosine_parts",
    "analysis.spans": "best_spans",
    "analysis.tags": "TagSpan TaggedWord tag_spans tagged_spans tagged_words",
    "analysis.units": "scores_of_units word_units",
    "analysis.walks": "Difference differences likeliest step_angles weighted_values",
    # Studies of files.
    "studies.heads": "CorpusSettings heads_file heads_over iter_heads",
    "studies.index": "IndexSettings index_file iter_index remove_from_index",
    "studies.indexed": "Index open_index",
    "studies.search": "Match Matches search",
    "studies.neurons": "Firing NeuronSettings neurons_over write_examples write_firing",
    "studies.compare": "compare_models",
    "studies.relations": "relations_csv track_relations",
    "studies.rows": "Columns",
    "studies.head_tables": "read_table write_table",
    "studies.curve": "pruning_curve read_curve",
    "studies.explain": "ExplainSettings explain_file iter_explanations",
    "studies.dossier": "Dossier Dossiers NeuronDossier TokenDossier read_dossiers write_dossiers",
    "studies.head_dossiers": "head_dossiers",
    "studies.neuron_dossiers": "neuron_dossiers",
    "studies.token_dossiers": "token_dossiers",
    "studies.explained": "WordTotal explained_rows read_totals word_totals",
    "studies.faithfulness": "Judgement Standing StudySettings judge_file read_judgements standings",
    "studies.probes": "ProbeSettings label_erasers probe_file probe_points probes_csv read_probes",
    "studies.others": "judge_scores",
    "studies.pairs": "pairs_csv read_pairs",
    "studies.treebank": "TreeSentence read_treebank",
    "studies.words": "LabelledSentence label_names read_labelled_words",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = sorted(_HOME)

if TYPE_CHECKING:  # the same names once more, for type checkers and editors, which run nothing
    from bert_core.analysis.attribution import effective_attention as effective_attention
    from bert_core.analysis.attribution import gradient_attention as gradient_attention
    from bert_core.analysis.attribution import gradient_relevance as gradient_relevance
    from bert_core.analysis.attribution import norm_rollout as norm_rollout
    from bert_core.analysis.attribution import rank_agreement as rank_agreement
    from bert_core.analysis.causes import Missed as Missed
    from bert_core.analysis.causes import Partners as Partners
    from bert_core.analysis.causes import patches_missed as patches_missed
    from bert_core.analysis.causes import word_partners as word_partners
    from bert_core.analysis.cautions import Cautions as Cautions
    from bert_core.analysis.cautions import cautions as cautions
    from bert_core.analysis.cka import linear_cka as linear_cka
    from bert_core.analysis.compare import Alignment as Alignment
    from bert_core.analysis.compare import Change as Change
    from bert_core.analysis.compare import aligned as aligned
    from bert_core.analysis.compare import attention_divergence as attention_divergence
    from bert_core.analysis.compare import change as change
    from bert_core.analysis.compare import largest_changes as largest_changes
    from bert_core.analysis.erasure import Eraser as Eraser
    from bert_core.analysis.erasure import leace as leace
    from bert_core.analysis.erasure import random_eraser as random_eraser
    from bert_core.analysis.faithfulness import Faithfulness as Faithfulness
    from bert_core.analysis.flow import attention_flow as attention_flow
    from bert_core.analysis.flow import attention_rollout as attention_rollout
    from bert_core.analysis.flow import layer_mixing as layer_mixing
    from bert_core.analysis.flow import mean_of_heads as mean_of_heads
    from bert_core.analysis.heads import heads_agreement as heads_agreement
    from bert_core.analysis.heads import layer_normalised as layer_normalised
    from bert_core.analysis.heads import leading_heads as leading_heads
    from bert_core.analysis.heads import removal_estimate as removal_estimate
    from bert_core.analysis.kinds import KindFigures as KindFigures
    from bert_core.analysis.kinds import kind_figures as kind_figures
    from bert_core.analysis.lens import Plane as Plane
    from bert_core.analysis.lens import cosine_similarities as cosine_similarities
    from bert_core.analysis.lens import mean_similarity as mean_similarity
    from bert_core.analysis.lens import neighbours_in_plane as neighbours_in_plane
    from bert_core.analysis.lens import settled_depth as settled_depth
    from bert_core.analysis.lens import states_in_plane as states_in_plane
    from bert_core.analysis.neurons import Strongest as Strongest
    from bert_core.analysis.neurons import strongest_neurons as strongest_neurons
    from bert_core.analysis.patterns import RoleFigures as RoleFigures
    from bert_core.analysis.patterns import attention_entropy as attention_entropy
    from bert_core.analysis.patterns import combined as combined
    from bert_core.analysis.patterns import map_between_words as map_between_words
    from bert_core.analysis.patterns import mean_distance as mean_distance
    from bert_core.analysis.patterns import role_figures as role_figures
    from bert_core.analysis.patterns import share_to as share_to
    from bert_core.analysis.pointing import heat as heat
    from bert_core.analysis.pointing import patches_in as patches_in
    from bert_core.analysis.pointing import points_into as points_into
    from bert_core.analysis.pointing import share_in as share_in
    from bert_core.analysis.probes import Probe as Probe
    from bert_core.analysis.probes import ProbeDepth as ProbeDepth
    from bert_core.analysis.probes import code_lengths as code_lengths
    from bert_core.analysis.probes import control_labels as control_labels
    from bert_core.analysis.probes import fit_probe as fit_probe
    from bert_core.analysis.probes import probe_depths as probe_depths
    from bert_core.analysis.pruning import curve_of as curve_of
    from bert_core.analysis.pruning import hardly_missed as hardly_missed
    from bert_core.analysis.pruning import random_band as random_band
    from bert_core.analysis.relations import RelationRow as RelationRow
    from bert_core.analysis.relations import RelationTally as RelationTally
    from bert_core.analysis.roles import Role as Role
    from bert_core.analysis.roles import classical_scaling as classical_scaling
    from bert_core.analysis.roles import head_distances as head_distances
    from bert_core.analysis.roles import heads_by_role as heads_by_role
    from bert_core.analysis.roles import nearest_heads as nearest_heads
    from bert_core.analysis.roles import role_scores as role_scores
    from bert_core.analysis.roles import roles_of_heads as roles_of_heads
    from bert_core.analysis.roles import strongest_examples as strongest_examples
    from bert_core.analysis.scoring import pair_columns as pair_columns
    from bert_core.analysis.similarity import cosine_parts as cosine_parts
    from bert_core.analysis.sinks import Pull as Pull
    from bert_core.analysis.sinks import Sinks as Sinks
    from bert_core.analysis.sinks import effective_rank as effective_rank
    from bert_core.analysis.sinks import pull_of as pull_of
    from bert_core.analysis.sinks import sinks as sinks
    from bert_core.analysis.spans import best_spans as best_spans
    from bert_core.analysis.tags import TaggedWord as TaggedWord
    from bert_core.analysis.tags import TagSpan as TagSpan
    from bert_core.analysis.tags import tag_spans as tag_spans
    from bert_core.analysis.tags import tagged_spans as tagged_spans
    from bert_core.analysis.tags import tagged_words as tagged_words
    from bert_core.analysis.units import scores_of_units as scores_of_units
    from bert_core.analysis.units import word_units as word_units
    from bert_core.analysis.walks import Difference as Difference
    from bert_core.analysis.walks import differences as differences
    from bert_core.analysis.walks import likeliest as likeliest
    from bert_core.analysis.walks import step_angles as step_angles
    from bert_core.analysis.walks import weighted_values as weighted_values
    from bert_core.attention import BertAttention as BertAttention
    from bert_core.attention import BertSelfAttention as BertSelfAttention
    from bert_core.attention import BertSelfOutput as BertSelfOutput
    from bert_core.checkpoint import CheckpointError as CheckpointError
    from bert_core.checkpoint import LoadReport as LoadReport
    from bert_core.config import BertConfig as BertConfig
    from bert_core.editing import edited as edited
    from bert_core.editing import unedited as unedited
    from bert_core.edits import Cut as Cut
    from bert_core.edits import Put as Put
    from bert_core.edits import Scaled as Scaled
    from bert_core.generation import generate as generate
    from bert_core.loading import LoadedDecoder as LoadedDecoder
    from bert_core.loading import LoadedModel as LoadedModel
    from bert_core.loading import best_device as best_device
    from bert_core.loading import bundled_models as bundled_models
    from bert_core.loading import load as load
    from bert_core.loading import load_decoder as load_decoder
    from bert_core.loading import save as save
    from bert_core.methods import METHODS as METHODS
    from bert_core.methods import Method as Method
    from bert_core.methods import faithfulness as faithfulness
    from bert_core.methods import layer_scores as layer_scores
    from bert_core.methods import token_scores as token_scores
    from bert_core.modeling import ACT2FN as ACT2FN
    from bert_core.modeling import BertEmbeddings as BertEmbeddings
    from bert_core.modeling import BertEncoder as BertEncoder
    from bert_core.modeling import BertForMaskedLM as BertForMaskedLM
    from bert_core.modeling import BertForMultipleChoice as BertForMultipleChoice
    from bert_core.modeling import BertForNextSentencePrediction as BertForNextSentencePrediction
    from bert_core.modeling import BertForPreTraining as BertForPreTraining
    from bert_core.modeling import BertForQuestionAnswering as BertForQuestionAnswering
    from bert_core.modeling import BertForReplacedTokenDetection as BertForReplacedTokenDetection
    from bert_core.modeling import BertForSequenceClassification as BertForSequenceClassification
    from bert_core.modeling import BertForTokenClassification as BertForTokenClassification
    from bert_core.modeling import BertIntermediate as BertIntermediate
    from bert_core.modeling import BertLayer as BertLayer
    from bert_core.modeling import BertLMHeadModel as BertLMHeadModel
    from bert_core.modeling import BertLMPredictionHead as BertLMPredictionHead
    from bert_core.modeling import BertModel as BertModel
    from bert_core.modeling import BertOnlyMLMHead as BertOnlyMLMHead
    from bert_core.modeling import BertOnlyNSPHead as BertOnlyNSPHead
    from bert_core.modeling import BertOutput as BertOutput
    from bert_core.modeling import BertPooler as BertPooler
    from bert_core.modeling import BertPredictionHeadTransform as BertPredictionHeadTransform
    from bert_core.modeling import BertPreTrainedModel as BertPreTrainedModel
    from bert_core.modeling import BertPreTrainingHeads as BertPreTrainingHeads
    from bert_core.modeling import PreTrainedBertModel as PreTrainedBertModel
    from bert_core.numpy_bert import create_bert_model as create_bert_model
    from bert_core.pooling import Pooling as Pooling
    from bert_core.progress import Progress as Progress
    from bert_core.pruning import pruned as pruned
    from bert_core.pruning import zero_filled as zero_filled
    from bert_core.recording import Recording as Recording
    from bert_core.recording import record as record
    from bert_core.records.causes import MeanOf as MeanOf
    from bert_core.records.causes import Noised as Noised
    from bert_core.records.causes import PatchBand as PatchBand
    from bert_core.records.causes import Patches as Patches
    from bert_core.records.causes import Paths as Paths
    from bert_core.records.examples import Batch as Batch
    from bert_core.records.heads import CurvePoint as CurvePoint
    from bert_core.records.heads import HeadSweep as HeadSweep
    from bert_core.records.heads import HeadTable as HeadTable
    from bert_core.records.heads import HeadVectors as HeadVectors
    from bert_core.records.heads import PruningPlan as PruningPlan
    from bert_core.records.layers import LayerStates as LayerStates
    from bert_core.records.layers import LensRun as LensRun
    from bert_core.records.layers import Walk as Walk
    from bert_core.records.models import ModelComparison as ModelComparison
    from bert_core.records.neurons import NeuronAttribution as NeuronAttribution
    from bert_core.records.neurons import NeuronRun as NeuronRun
    from bert_core.records.neurons import NeuronWords as NeuronWords
    from bert_core.records.neurons import Suppression as Suppression
    from bert_core.records.probes import ProbePoint as ProbePoint
    from bert_core.records.run import ChoicePrediction as ChoicePrediction
    from bert_core.records.run import ClassPrediction as ClassPrediction
    from bert_core.records.run import DecoderRun as DecoderRun
    from bert_core.records.run import MaskPrediction as MaskPrediction
    from bert_core.records.run import ModelRun as ModelRun
    from bert_core.records.run import Span as Span
    from bert_core.records.run import SpanPrediction as SpanPrediction
    from bert_core.records.run import TagPrediction as TagPrediction
    from bert_core.records.similarity import Similarity as Similarity
    from bert_core.records.targets import Target as Target
    from bert_core.records.targets import loss_target as loss_target
    from bert_core.records.targets import word_target as word_target
    from bert_core.records.tokens import Attribution as Attribution
    from bert_core.records.tokens import PairRow as PairRow
    from bert_core.records.tokens import PairScore as PairScore
    from bert_core.records.tokens import SentenceScore as SentenceScore
    from bert_core.records.tokens import TokenMaps as TokenMaps
    from bert_core.refused import Refused as Refused
    from bert_core.run.ablation import ablate_heads as ablate_heads
    from bert_core.run.answers import Answer as Answer
    from bert_core.run.capture import capture as capture
    from bert_core.run.capture import captures as captures
    from bert_core.run.carrying import carried as carried
    from bert_core.run.carrying import make_patch as make_patch
    from bert_core.run.choosing import choose as choose
    from bert_core.run.costs import curve_points as curve_points
    from bert_core.run.costs import pruning_costs as pruning_costs
    from bert_core.run.decoding import describe as describe
    from bert_core.run.decomposition import alti as alti
    from bert_core.run.decomposition import attention_norms as attention_norms
    from bert_core.run.decomposition import decompx as decompx
    from bert_core.run.decomposition import globenc as globenc
    from bert_core.run.decomposition import head_values as head_values
    from bert_core.run.decomposition import residual_norms as residual_norms
    from bert_core.run.inputs import head_mask_without as head_mask_without
    from bert_core.run.knockouts import cut_each as cut_each
    from bert_core.run.lens import layer_states as layer_states
    from bert_core.run.lens import logit_lens as logit_lens
    from bert_core.run.neurons import neuron_activations as neuron_activations
    from bert_core.run.neurons import neuron_gradients as neuron_gradients
    from bert_core.run.neurons import neuron_words as neuron_words
    from bert_core.run.neurons import suppress_neurons as suppress_neurons
    from bert_core.run.patching import answer_with as answer_with
    from bert_core.run.patching import estimate_patches as estimate_patches
    from bert_core.run.patching import patch as patch
    from bert_core.run.patching import patch_band as patch_band
    from bert_core.run.paths import patch_path as patch_path
    from bert_core.run.perturbation import input_x_gradient as input_x_gradient
    from bert_core.run.perturbation import integrated_gradients as integrated_gradients
    from bert_core.run.perturbation import occlusion as occlusion
    from bert_core.run.perturbation import pseudo_log_likelihood as pseudo_log_likelihood
    from bert_core.run.perturbation import saliency as saliency
    from bert_core.run.perturbation import value_zeroing as value_zeroing
    from bert_core.run.perturbation import values_without as values_without
    from bert_core.run.plans import propose_plan as propose_plan
    from bert_core.run.scoring import score_pairs as score_pairs
    from bert_core.run.similarity import read_sentence as read_sentence
    from bert_core.run.similarity import sentence_vector as sentence_vector
    from bert_core.run.similarity import similar as similar
    from bert_core.run.similarity import similarity_target as similarity_target
    from bert_core.run.similarity import unrelated_cosines as unrelated_cosines
    from bert_core.run.states import answers_erased as answers_erased
    from bert_core.run.target_grammar import format_target as format_target
    from bert_core.run.target_grammar import parse_target as parse_target
    from bert_core.run.vectors import head_vectors as head_vectors
    from bert_core.run.walk import walk as walk
    from bert_core.studies.compare import compare_models as compare_models
    from bert_core.studies.curve import pruning_curve as pruning_curve
    from bert_core.studies.curve import read_curve as read_curve
    from bert_core.studies.dossier import Dossier as Dossier
    from bert_core.studies.dossier import Dossiers as Dossiers
    from bert_core.studies.dossier import NeuronDossier as NeuronDossier
    from bert_core.studies.dossier import TokenDossier as TokenDossier
    from bert_core.studies.dossier import read_dossiers as read_dossiers
    from bert_core.studies.dossier import write_dossiers as write_dossiers
    from bert_core.studies.explain import ExplainSettings as ExplainSettings
    from bert_core.studies.explain import explain_file as explain_file
    from bert_core.studies.explain import iter_explanations as iter_explanations
    from bert_core.studies.explained import WordTotal as WordTotal
    from bert_core.studies.explained import explained_rows as explained_rows
    from bert_core.studies.explained import read_totals as read_totals
    from bert_core.studies.explained import word_totals as word_totals
    from bert_core.studies.faithfulness import Judgement as Judgement
    from bert_core.studies.faithfulness import Standing as Standing
    from bert_core.studies.faithfulness import StudySettings as StudySettings
    from bert_core.studies.faithfulness import judge_file as judge_file
    from bert_core.studies.faithfulness import read_judgements as read_judgements
    from bert_core.studies.faithfulness import standings as standings
    from bert_core.studies.head_dossiers import head_dossiers as head_dossiers
    from bert_core.studies.head_tables import read_table as read_table
    from bert_core.studies.head_tables import write_table as write_table
    from bert_core.studies.heads import CorpusSettings as CorpusSettings
    from bert_core.studies.heads import heads_file as heads_file
    from bert_core.studies.heads import heads_over as heads_over
    from bert_core.studies.heads import iter_heads as iter_heads
    from bert_core.studies.index import IndexSettings as IndexSettings
    from bert_core.studies.index import index_file as index_file
    from bert_core.studies.index import iter_index as iter_index
    from bert_core.studies.index import remove_from_index as remove_from_index
    from bert_core.studies.indexed import Index as Index
    from bert_core.studies.indexed import open_index as open_index
    from bert_core.studies.neuron_dossiers import neuron_dossiers as neuron_dossiers
    from bert_core.studies.neurons import Firing as Firing
    from bert_core.studies.neurons import NeuronSettings as NeuronSettings
    from bert_core.studies.neurons import neurons_over as neurons_over
    from bert_core.studies.neurons import write_examples as write_examples
    from bert_core.studies.neurons import write_firing as write_firing
    from bert_core.studies.others import judge_scores as judge_scores
    from bert_core.studies.pairs import pairs_csv as pairs_csv
    from bert_core.studies.pairs import read_pairs as read_pairs
    from bert_core.studies.probes import ProbeSettings as ProbeSettings
    from bert_core.studies.probes import label_erasers as label_erasers
    from bert_core.studies.probes import probe_file as probe_file
    from bert_core.studies.probes import probe_points as probe_points
    from bert_core.studies.probes import probes_csv as probes_csv
    from bert_core.studies.probes import read_probes as read_probes
    from bert_core.studies.relations import relations_csv as relations_csv
    from bert_core.studies.relations import track_relations as track_relations
    from bert_core.studies.rows import Columns as Columns
    from bert_core.studies.search import Match as Match
    from bert_core.studies.search import Matches as Matches
    from bert_core.studies.search import search as search
    from bert_core.studies.token_dossiers import token_dossiers as token_dossiers
    from bert_core.studies.treebank import TreeSentence as TreeSentence
    from bert_core.studies.treebank import read_treebank as read_treebank
    from bert_core.studies.words import LabelledSentence as LabelledSentence
    from bert_core.studies.words import label_names as label_names
    from bert_core.studies.words import read_labelled_words as read_labelled_words
    from bert_core.target_kinds import FileQuestion as FileQuestion
    from bert_core.target_kinds import TargetKind as TargetKind
    from bert_core.task_heads import TaskHead as TaskHead
    from bert_core.task_heads import register_head as register_head
    from bert_core.task_heads import unregister_head as unregister_head
    from bert_core.tokenizer import Encoding as Encoding
    from bert_core.tokenizer import Tokenizer as Tokenizer
    from bert_core.translators import Translators as Translators
    from bert_core.translators import read_translators as read_translators
    from bert_core.vision import Captioner as Captioner
    from bert_core.vision import CaptionerConfig as CaptionerConfig
    from bert_core.vision import LoadedCaptioner as LoadedCaptioner
    from bert_core.vision import load_captioner as load_captioner
else:

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)

    def __dir__() -> list[str]:
        return [*globals(), *__all__]
