# All public names, each with the module that defines it: for type checkers, and for `__init__.py`, which loads them.

from .analysis.attribution import effective_attention as effective_attention
from .analysis.attribution import gradient_attention as gradient_attention
from .analysis.attribution import gradient_relevance as gradient_relevance
from .analysis.attribution import norm_rollout as norm_rollout
from .analysis.attribution import rank_agreement as rank_agreement
from .analysis.bias import BiasCategory as BiasCategory
from .analysis.bias import BiasEvaluation as BiasEvaluation
from .analysis.bias import BiasPair as BiasPair
from .analysis.bias import evaluate_bias as evaluate_bias
from .analysis.causes import Partners as Partners
from .analysis.causes import PatchEstimateQuality as PatchEstimateQuality
from .analysis.causes import patch_estimate_quality as patch_estimate_quality
from .analysis.causes import word_partners as word_partners
from .analysis.cautions import Cautions as Cautions
from .analysis.cautions import cautions as cautions
from .analysis.cka import linear_cka as linear_cka
from .analysis.compare import Alignment as Alignment
from .analysis.compare import Change as Change
from .analysis.compare import align_tokens as align_tokens
from .analysis.compare import aligned_maps as aligned_maps
from .analysis.compare import attention_divergence as attention_divergence
from .analysis.compare import largest_changes as largest_changes
from .analysis.erasure import Eraser as Eraser
from .analysis.erasure import leace as leace
from .analysis.erasure import random_eraser as random_eraser
from .analysis.faithfulness import Faithfulness as Faithfulness
from .analysis.flow import attention_flow as attention_flow
from .analysis.flow import attention_rollout as attention_rollout
from .analysis.flow import layer_mixing as layer_mixing
from .analysis.flow import mean_of_heads as mean_of_heads
from .analysis.flow import paths_to as paths_to
from .analysis.ground_truth import truth_accuracy as truth_accuracy
from .analysis.heads import PairHead as PairHead
from .analysis.heads import find_heads as find_heads
from .analysis.heads import heads_agreement as heads_agreement
from .analysis.heads import layer_normalised as layer_normalised
from .analysis.heads import leading_heads as leading_heads
from .analysis.heads import removal_estimate as removal_estimate
from .analysis.kinds import KindFigures as KindFigures
from .analysis.kinds import kind_figures as kind_figures
from .analysis.lens import Plane as Plane
from .analysis.lens import cosine_similarities as cosine_similarities
from .analysis.lens import mean_similarity as mean_similarity
from .analysis.lens import neighbours_in_plane as neighbours_in_plane
from .analysis.lens import settled_depth as settled_depth
from .analysis.lens import states_in_plane as states_in_plane
from .analysis.neurons import StrongestNeurons as StrongestNeurons
from .analysis.neurons import strongest_neurons as strongest_neurons
from .analysis.patterns import RoleFigures as RoleFigures
from .analysis.patterns import attention_entropy as attention_entropy
from .analysis.patterns import combine_heads as combine_heads
from .analysis.patterns import map_between_words as map_between_words
from .analysis.patterns import mean_distance as mean_distance
from .analysis.patterns import role_figures as role_figures
from .analysis.patterns import share_to as share_to
from .analysis.pointing import heat as heat
from .analysis.pointing import patches_in as patches_in
from .analysis.pointing import points_into as points_into
from .analysis.pointing import share_in as share_in
from .analysis.probes import Probe as Probe
from .analysis.probes import ProbeDepth as ProbeDepth
from .analysis.probes import code_lengths as code_lengths
from .analysis.probes import control_labels as control_labels
from .analysis.probes import fit_probe as fit_probe
from .analysis.probes import probe_depths as probe_depths
from .analysis.pruning import curve_values as curve_values
from .analysis.pruning import random_band as random_band
from .analysis.pruning import removable_head_count as removable_head_count
from .analysis.query_keys import AlignedVectors as AlignedVectors
from .analysis.query_keys import PlaneFit as PlaneFit
from .analysis.query_keys import align_queries_keys as align_queries_keys
from .analysis.query_keys import query_key_plane as query_key_plane
from .analysis.relations import RelationRow as RelationRow
from .analysis.relations import RelationTally as RelationTally
from .analysis.roles import Role as Role
from .analysis.roles import classical_scaling as classical_scaling
from .analysis.roles import head_distances as head_distances
from .analysis.roles import heads_by_role as heads_by_role
from .analysis.roles import nearest_heads as nearest_heads
from .analysis.roles import role_scores as role_scores
from .analysis.roles import roles_of_heads as roles_of_heads
from .analysis.roles import strongest_examples as strongest_examples
from .analysis.rotation import rotary_frequencies as rotary_frequencies
from .analysis.rotation import rotate_by_position as rotate_by_position
from .analysis.rotation import scores_by_distance as scores_by_distance
from .analysis.scoring import pair_columns as pair_columns
from .analysis.similarity import cosine_parts as cosine_parts
from .analysis.sinks import SinkContribution as SinkContribution
from .analysis.sinks import Sinks as Sinks
from .analysis.sinks import effective_rank as effective_rank
from .analysis.sinks import sink_contribution as sink_contribution
from .analysis.sinks import sinks as sinks
from .analysis.spans import best_spans as best_spans
from .analysis.steering import random_vectors as random_vectors
from .analysis.steering import steering_vector as steering_vector
from .analysis.tags import TaggedWord as TaggedWord
from .analysis.tags import TagSpan as TagSpan
from .analysis.tags import tag_spans as tag_spans
from .analysis.tags import tagged_spans as tagged_spans
from .analysis.tags import tagged_words as tagged_words
from .analysis.units import scores_of_units as scores_of_units
from .analysis.units import word_units as word_units
from .analysis.walks import Difference as Difference
from .analysis.walks import differences as differences
from .analysis.walks import most_likely_tokens as most_likely_tokens
from .analysis.walks import step_angles as step_angles
from .analysis.walks import weighted_values as weighted_values
from .attention import BertAttention as BertAttention
from .attention import BertSelfAttention as BertSelfAttention
from .attention import BertSelfOutput as BertSelfOutput
from .checkpoint import CheckpointError as CheckpointError
from .checkpoint import LoadReport as LoadReport
from .circuits import circuit_sentences as circuit_sentences
from .circuits import load_circuit as load_circuit
from .config import BertConfig as BertConfig
from .editing import edited as edited
from .editing import unedited as unedited
from .edits import ActivationPatch as ActivationPatch
from .edits import AddedVector as AddedVector
from .edits import AttentionKnockout as AttentionKnockout
from .edits import ScaledNeuron as ScaledNeuron
from .generation import generate as generate
from .loading import LoadedDecoder as LoadedDecoder
from .loading import LoadedModel as LoadedModel
from .loading import best_device as best_device
from .loading import bundled_models as bundled_models
from .loading import load as load
from .loading import load_decoder as load_decoder
from .loading import save as save
from .methods import METHODS as METHODS
from .methods import Method as Method
from .methods import faithfulness as faithfulness
from .methods import layer_scores as layer_scores
from .methods import token_scores as token_scores
from .modeling.heads import BertLMPredictionHead as BertLMPredictionHead
from .modeling.heads import BertOnlyMLMHead as BertOnlyMLMHead
from .modeling.heads import BertOnlyNSPHead as BertOnlyNSPHead
from .modeling.heads import BertPredictionHeadTransform as BertPredictionHeadTransform
from .modeling.heads import BertPreTrainingHeads as BertPreTrainingHeads
from .modeling.layers import ACT2FN as ACT2FN
from .modeling.layers import BertEmbeddings as BertEmbeddings
from .modeling.layers import BertEncoder as BertEncoder
from .modeling.layers import BertIntermediate as BertIntermediate
from .modeling.layers import BertLayer as BertLayer
from .modeling.layers import BertOutput as BertOutput
from .modeling.layers import BertPooler as BertPooler
from .modeling.models import BertForMaskedLM as BertForMaskedLM
from .modeling.models import BertForMultipleChoice as BertForMultipleChoice
from .modeling.models import BertForNextSentencePrediction as BertForNextSentencePrediction
from .modeling.models import BertForPreTraining as BertForPreTraining
from .modeling.models import BertForQuestionAnswering as BertForQuestionAnswering
from .modeling.models import BertForReplacedTokenDetection as BertForReplacedTokenDetection
from .modeling.models import BertForSequenceClassification as BertForSequenceClassification
from .modeling.models import BertForTokenClassification as BertForTokenClassification
from .modeling.models import BertLMHeadModel as BertLMHeadModel
from .modeling.models import BertModel as BertModel
from .modeling.models import BertPreTrainedModel as BertPreTrainedModel
from .modeling.models import PreTrainedBertModel as PreTrainedBertModel
from .numpy_bert import create_bert_model as create_bert_model
from .onnx_export.export import export_onnx as export_onnx
from .pooling import Pooling as Pooling
from .progress import Progress as Progress
from .pruning import pruned as pruned
from .pruning import zero_filled as zero_filled
from .recording import Recording as Recording
from .recording import record as record
from .records.causes import MeanOf as MeanOf
from .records.causes import Noised as Noised
from .records.causes import PatchBand as PatchBand
from .records.causes import Patches as Patches
from .records.causes import Paths as Paths
from .records.contributions import ContributionGraph as ContributionGraph
from .records.contributions import EdgeKnockout as EdgeKnockout
from .records.direct import Contribution as Contribution
from .records.direct import DirectContributions as DirectContributions
from .records.direct import DirectLogit as DirectLogit
from .records.direct import DirectScore as DirectScore
from .records.evaluation import EvaluatedTexts as EvaluatedTexts
from .records.examples import Batch as Batch
from .records.heads import CurvePoint as CurvePoint
from .records.heads import HeadSweep as HeadSweep
from .records.heads import HeadTable as HeadTable
from .records.heads import HeadVectors as HeadVectors
from .records.heads import PruningPlan as PruningPlan
from .records.layers import LayerStates as LayerStates
from .records.layers import LensRun as LensRun
from .records.layers import Walk as Walk
from .records.models import ModelComparison as ModelComparison
from .records.neurons import NeuronAttribution as NeuronAttribution
from .records.neurons import NeuronRun as NeuronRun
from .records.neurons import NeuronWords as NeuronWords
from .records.neurons import Suppression as Suppression
from .records.probes import ProbePoint as ProbePoint
from .records.query_keys import QueryKeyPlane as QueryKeyPlane
from .records.run import ChoicePrediction as ChoicePrediction
from .records.run import ClassPrediction as ClassPrediction
from .records.run import DecoderRun as DecoderRun
from .records.run import MaskPrediction as MaskPrediction
from .records.run import ModelRun as ModelRun
from .records.run import Span as Span
from .records.run import SpanPrediction as SpanPrediction
from .records.run import TagPrediction as TagPrediction
from .records.similarity import Similarity as Similarity
from .records.steering import Steering as Steering
from .records.targets import Target as Target
from .records.targets import loss_target as loss_target
from .records.targets import word_target as word_target
from .records.tokens import Attribution as Attribution
from .records.tokens import PairRow as PairRow
from .records.tokens import PairScore as PairScore
from .records.tokens import SentenceScore as SentenceScore
from .records.tokens import TokenMaps as TokenMaps
from .records.truth import TruthSentence as TruthSentence
from .refused import Refused as Refused
from .run.ablation import ablate_heads as ablate_heads
from .run.answers import Answer as Answer
from .run.captioning import describe as describe
from .run.capture import capture as capture
from .run.capture import captures as captures
from .run.costs import curve_points as curve_points
from .run.costs import pruning_costs as pruning_costs
from .run.decomposition import alti as alti
from .run.decomposition import attention_norms as attention_norms
from .run.decomposition import contribution_graph as contribution_graph
from .run.decomposition import decompx as decompx
from .run.decomposition import globenc as globenc
from .run.decomposition import head_values as head_values
from .run.decomposition import residual_norms as residual_norms
from .run.direct import direct_logit as direct_logit
from .run.direct import direct_score as direct_score
from .run.direct import direct_score_map as direct_score_map
from .run.inputs import head_mask_without as head_mask_without
from .run.knockouts import knock_out_edges as knock_out_edges
from .run.knockouts import knock_out_graph_edge as knock_out_graph_edge
from .run.lens import layer_states as layer_states
from .run.lens import logit_lens as logit_lens
from .run.multiple_choice import choose as choose
from .run.neurons import neuron_activations as neuron_activations
from .run.neurons import neuron_gradients as neuron_gradients
from .run.neurons import neuron_words as neuron_words
from .run.neurons import suppress_neurons as suppress_neurons
from .run.own_targets import TargetOutputs as TargetOutputs
from .run.patch_edits import make_patch as make_patch
from .run.patching import estimate_patches as estimate_patches
from .run.patching import patch as patch
from .run.patching import patch_band as patch_band
from .run.patching import predict_with_patch as predict_with_patch
from .run.paths import patch_path as patch_path
from .run.perturbation import input_x_gradient as input_x_gradient
from .run.perturbation import integrated_gradients as integrated_gradients
from .run.perturbation import occlusion as occlusion
from .run.perturbation import pseudo_log_likelihood as pseudo_log_likelihood
from .run.perturbation import saliency as saliency
from .run.perturbation import value_zeroing as value_zeroing
from .run.perturbation import values_without as values_without
from .run.plans import propose_plan as propose_plan
from .run.query_keys import query_key_planes as query_key_planes
from .run.scoring import score_pairs as score_pairs
from .run.similarity import read_sentence as read_sentence
from .run.similarity import sentence_similarity as sentence_similarity
from .run.similarity import sentence_vector as sentence_vector
from .run.similarity import similarity_target as similarity_target
from .run.similarity import unrelated_cosines as unrelated_cosines
from .run.states import predict_with_erasers as predict_with_erasers
from .run.steering import steer as steer
from .run.target_grammar import format_target as format_target
from .run.target_grammar import parse_target as parse_target
from .run.vectors import all_head_vectors as all_head_vectors
from .run.vectors import head_vectors as head_vectors
from .run.vectors import score_addends as score_addends
from .run.walk import walk as walk
from .studies.bias import bias_csv as bias_csv
from .studies.bias import bundled_bias_pairs as bundled_bias_pairs
from .studies.bias import read_bias_pairs as read_bias_pairs
from .studies.compare import compare_models as compare_models
from .studies.curve import pruning_curve as pruning_curve
from .studies.curve import read_curve as read_curve
from .studies.evaluation import evaluate_file as evaluate_file
from .studies.evaluation import evaluate_texts as evaluate_texts
from .studies.evaluation import iter_evaluation as iter_evaluation
from .studies.evaluation import lines_to_evaluate as lines_to_evaluate
from .studies.evaluation_tables import read_evaluation as read_evaluation
from .studies.explain import explain_file as explain_file
from .studies.explain import iter_explanations as iter_explanations
from .studies.explanation_tables import WordTotal as WordTotal
from .studies.explanation_tables import explained_rows as explained_rows
from .studies.explanation_tables import read_totals as read_totals
from .studies.explanation_tables import word_totals as word_totals
from .studies.external_scores import judge_scores as judge_scores
from .studies.faithfulness import Judgement as Judgement
from .studies.faithfulness import MethodSummary as MethodSummary
from .studies.faithfulness import judge_file as judge_file
from .studies.faithfulness import read_judgements as read_judgements
from .studies.faithfulness import summarise_methods as summarise_methods
from .studies.ground_truth import GroundTruth as GroundTruth
from .studies.ground_truth import TruthJudgement as TruthJudgement
from .studies.ground_truth import TruthSummary as TruthSummary
from .studies.ground_truth import judge_ground_truth as judge_ground_truth
from .studies.ground_truth import read_truth_judgements as read_truth_judgements
from .studies.ground_truth import summarise_truth as summarise_truth
from .studies.head_profiles import head_profiles as head_profiles
from .studies.head_tables import read_table as read_table
from .studies.head_tables import write_table as write_table
from .studies.heads import heads_file as heads_file
from .studies.heads import iter_heads as iter_heads
from .studies.heads import measure_heads as measure_heads
from .studies.index import index_file as index_file
from .studies.index import iter_index as iter_index
from .studies.index import remove_from_index as remove_from_index
from .studies.index_reader import Index as Index
from .studies.index_reader import open_index as open_index
from .studies.lines import Line as Line
from .studies.neuron_profiles import neuron_profiles as neuron_profiles
from .studies.neurons import NeuronStats as NeuronStats
from .studies.neurons import measure_neurons as measure_neurons
from .studies.neurons import write_examples as write_examples
from .studies.neurons import write_neuron_table as write_neuron_table
from .studies.pairs import pairs_csv as pairs_csv
from .studies.pairs import read_pairs as read_pairs
from .studies.probes import label_erasers as label_erasers
from .studies.probes import label_vector as label_vector
from .studies.probes import probe_file as probe_file
from .studies.probes import probe_points as probe_points
from .studies.probes import probes_csv as probes_csv
from .studies.probes import read_probes as read_probes
from .studies.profiles import HeadProfile as HeadProfile
from .studies.profiles import NeuronProfile as NeuronProfile
from .studies.profiles import Profiles as Profiles
from .studies.profiles import TokenProfile as TokenProfile
from .studies.profiles import read_profiles as read_profiles
from .studies.profiles import write_profiles as write_profiles
from .studies.query_keys import query_keys_file as query_keys_file
from .studies.relations import relations_csv as relations_csv
from .studies.relations import track_relations as track_relations
from .studies.rows import Columns as Columns
from .studies.search import Match as Match
from .studies.search import Matches as Matches
from .studies.search import search as search
from .studies.settings import CorpusSettings as CorpusSettings
from .studies.settings import EvaluationSettings as EvaluationSettings
from .studies.settings import ExplainSettings as ExplainSettings
from .studies.settings import GroundTruthSettings as GroundTruthSettings
from .studies.settings import IndexSettings as IndexSettings
from .studies.settings import NeuronSettings as NeuronSettings
from .studies.settings import ProbeSettings as ProbeSettings
from .studies.settings import StudySettings as StudySettings
from .studies.subject_verb import read_truth_sentences as read_truth_sentences
from .studies.token_profiles import token_profiles as token_profiles
from .studies.treebank import TreeSentence as TreeSentence
from .studies.treebank import read_treebank as read_treebank
from .studies.words import LabelledSentence as LabelledSentence
from .studies.words import label_names as label_names
from .studies.words import read_labelled_words as read_labelled_words
from .target_kinds import FileQuestion as FileQuestion
from .target_kinds import TargetKind as TargetKind
from .task_heads import TaskHead as TaskHead
from .task_heads import register_head as register_head
from .task_heads import unregister_head as unregister_head
from .tokenizer import Encoding as Encoding
from .tokenizer import Tokenizer as Tokenizer
from .transformers_models import from_transformers as from_transformers
from .translators import Translators as Translators
from .translators import read_translators as read_translators
from .vision import Captioner as Captioner
from .vision import CaptionerConfig as CaptionerConfig
from .vision import LoadedCaptioner as LoadedCaptioner
from .vision import load_captioner as load_captioner

__version__: str

# Deprecated names, as in `_RENAMED` of `__init__.py`.
aligned = align_tokens
answer_with = predict_with_patch
answers_erased = predict_with_erasers
carried = make_patch
change = aligned_maps
combined = combine_heads
curve_of = curve_values
Cut = AttentionKnockout
cut_each = knock_out_edges
Dossier = HeadProfile
Dossiers = Profiles
Firing = NeuronStats
hardly_missed = removable_head_count
head_dossiers = head_profiles
heads_over = measure_heads
likeliest = most_likely_tokens
Missed = PatchEstimateQuality
neuron_dossiers = neuron_profiles
NeuronDossier = NeuronProfile
neurons_over = measure_neurons
patches_missed = patch_estimate_quality
Pull = SinkContribution
pull_of = sink_contribution
Put = ActivationPatch
read_dossiers = read_profiles
Scaled = ScaledNeuron
similar = sentence_similarity
Standing = MethodSummary
standings = summarise_methods
Strongest = StrongestNeurons
token_dossiers = token_profiles
TokenDossier = TokenProfile
write_dossiers = write_profiles
write_firing = write_neuron_table
