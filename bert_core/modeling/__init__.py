"""BERT: embeddings, layers, encoder, pooler, prediction heads and models.

The module tree is the tree of the published checkpoints, so their state dicts load unchanged.
"""

from bert_core.modeling.heads import IGNORED_LABEL as IGNORED_LABEL
from bert_core.modeling.heads import BertDiscriminatorPredictions as BertDiscriminatorPredictions
from bert_core.modeling.heads import BertLMPredictionHead as BertLMPredictionHead
from bert_core.modeling.heads import BertOnlyMLMHead as BertOnlyMLMHead
from bert_core.modeling.heads import BertOnlyNSPHead as BertOnlyNSPHead
from bert_core.modeling.heads import BertPredictionHeadTransform as BertPredictionHeadTransform
from bert_core.modeling.heads import BertPreTrainingHeads as BertPreTrainingHeads
from bert_core.modeling.heads import classification_loss as classification_loss
from bert_core.modeling.heads import masked_lm_loss as masked_lm_loss
from bert_core.modeling.heads import span_loss as span_loss
from bert_core.modeling.layers import ACT2FN as ACT2FN
from bert_core.modeling.layers import BertEmbeddings as BertEmbeddings
from bert_core.modeling.layers import BertEncoder as BertEncoder
from bert_core.modeling.layers import BertIntermediate as BertIntermediate
from bert_core.modeling.layers import BertLayer as BertLayer
from bert_core.modeling.layers import BertOutput as BertOutput
from bert_core.modeling.layers import BertPooler as BertPooler
from bert_core.modeling.layers import Block as Block
from bert_core.modeling.layers import BlockActivations as BlockActivations
from bert_core.modeling.layers import LayerOutput as LayerOutput
from bert_core.modeling.layers import States as States
from bert_core.modeling.layers import map_states as map_states
from bert_core.modeling.models import BertForMaskedLM as BertForMaskedLM
from bert_core.modeling.models import BertForMultipleChoice as BertForMultipleChoice
from bert_core.modeling.models import BertForNextSentencePrediction as BertForNextSentencePrediction
from bert_core.modeling.models import BertForPreTraining as BertForPreTraining
from bert_core.modeling.models import BertForQuestionAnswering as BertForQuestionAnswering
from bert_core.modeling.models import BertForReplacedTokenDetection as BertForReplacedTokenDetection
from bert_core.modeling.models import BertForSequenceClassification as BertForSequenceClassification
from bert_core.modeling.models import BertForTokenClassification as BertForTokenClassification
from bert_core.modeling.models import BertLMHeadModel as BertLMHeadModel
from bert_core.modeling.models import BertModel as BertModel
from bert_core.modeling.models import BertPreTrainedModel as BertPreTrainedModel
from bert_core.modeling.models import PreTrainedBertModel as PreTrainedBertModel
from bert_core.modeling.outputs import BertEncoderOutput as BertEncoderOutput
from bert_core.modeling.outputs import BertForPreTrainingOutput as BertForPreTrainingOutput
from bert_core.modeling.outputs import BertModelOutput as BertModelOutput
from bert_core.modeling.outputs import CausalLMOutput as CausalLMOutput
from bert_core.modeling.outputs import LayerCache as LayerCache
from bert_core.modeling.outputs import MaskedLMOutput as MaskedLMOutput
from bert_core.modeling.outputs import ModelOutput as ModelOutput
from bert_core.modeling.outputs import MultipleChoiceOutput as MultipleChoiceOutput
from bert_core.modeling.outputs import NextSentencePredictorOutput as NextSentencePredictorOutput
from bert_core.modeling.outputs import QuestionAnsweringOutput as QuestionAnsweringOutput
from bert_core.modeling.outputs import ReplacedTokenOutput as ReplacedTokenOutput
from bert_core.modeling.outputs import SequenceClassifierOutput as SequenceClassifierOutput
from bert_core.modeling.outputs import TokenClassifierOutput as TokenClassifierOutput
