"""The shape contract between running a model and looking at what it did: frozen, read-only records."""

from bert_core.records.causes import Patches as Patches
from bert_core.records.examples import Batch as Batch
from bert_core.records.heads import LOSSES as LOSSES
from bert_core.records.heads import CurvePoint as CurvePoint
from bert_core.records.heads import HeadSweep as HeadSweep
from bert_core.records.heads import HeadTable as HeadTable
from bert_core.records.heads import HeadVectors as HeadVectors
from bert_core.records.heads import PruningPlan as PruningPlan
from bert_core.records.layers import LayerStates as LayerStates
from bert_core.records.layers import LensRun as LensRun
from bert_core.records.layers import Walk as Walk
from bert_core.records.probes import ProbePoint as ProbePoint
from bert_core.records.run import MAPS as MAPS
from bert_core.records.run import ClassPrediction as ClassPrediction
from bert_core.records.run import DecoderRun as DecoderRun
from bert_core.records.run import MaskPrediction as MaskPrediction
from bert_core.records.run import ModelRun as ModelRun
from bert_core.records.targets import Target as Target
from bert_core.records.targets import hidden_pieces as hidden_pieces
from bert_core.records.targets import loss_target as loss_target
from bert_core.records.targets import pieces_of as pieces_of
from bert_core.records.targets import word_target as word_target
from bert_core.records.tokens import Attribution as Attribution
from bert_core.records.tokens import PairScore as PairScore
from bert_core.records.tokens import SentenceScore as SentenceScore
from bert_core.records.tokens import TokenMaps as TokenMaps
