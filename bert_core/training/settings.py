"""Settings of training runs: the defaults, limits and help texts of their options.

This module imports neither torch nor numpy, because the command line makes its options from it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from bert_core.refused import Refused
from bert_core.settings import Option, Settings

OPTIMIZERS = ("adamw", "muon")
Steps = Annotated[int, Option("Total number of updates.", 1)]
Warmup = Annotated[int, Option("Number of first steps over which the learning rate rises.", 0)]
Decay = Annotated[int, Option("Number of last steps over which the learning rate falls to zero.", 0)]
ConstantRate = Annotated[float, Option("Learning rate between warmup and decay.", 0)]


@dataclass(frozen=True)
class MaskingRule(Settings):
    """Rule by which tokens are masked for masked-language modelling.

    rate: share of tokens to predict, 0 to 1. mask_share: share of these that are replaced by [MASK]. random_share:
    share that are replaced by a random word piece; the others stay unchanged.
    whole_words: choose whole words and mask all their word pieces.
    Raises Refused for a share outside 0 to 1, or if mask_share and random_share add up to more than 1.
    Source: Devlin 2019, section 3.1 (arXiv:1810.04805).
    """

    rate: Annotated[float, Option("Share of the tokens to predict.", 0, 1)] = 0.15
    mask_share: Annotated[float, Option("Share of these that are replaced by [MASK].", 0, 1)] = 0.8
    random_share: Annotated[float, Option("Share of these that are replaced by a random token.", 0, 1)] = 0.1
    whole_words: Annotated[bool, Option("Mask whole words instead of single tokens.")] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mask_share + self.random_share > 1:
            raise Refused(
                f"mask_share is {self.mask_share} and random_share is {self.random_share}: "
                "together they must be at most 1"
            )


@dataclass(frozen=True)
class Mix(Settings):
    """Composition of the examples, other than long pairs of segments from unrelated documents.

    whole: share of the rows that are filled with several examples of whole sentences, single or in pairs, 0 to 1.
    near: share of the false second segments that are drawn from a document of the same cluster, 0 to 1.
    Raises Refused for a share outside 0 to 1.
    """

    whole: Annotated[
        float, Option("Share of the rows that are filled with whole sentences, single or in pairs.", 0, 1)
    ] = 0.0
    near: Annotated[
        float, Option("Share of the false second segments that come from a text of the same kind.", 0, 1)
    ] = 0.0


@dataclass(frozen=True)
class PretrainSettings(Settings):
    """Settings of a pre-training run; on the CPU of one machine equal settings give equal weights.

    steps: total number of updates. The number may change between sessions of a run, until the learning rate falls.
    warmup, decay: number of first steps over which the learning rate rises, and of last steps over which it falls to
        zero; it is constant in between. learning_rate: the constant rate. weight_decay: weight decay of matrices.
    tokens: number of tokens of a batch on each worker. lengths: share of the batches for each sequence length.
    masking: rule by which tokens are masked. mix: composition of the examples.
    optimizer: "adamw", or "muon", which uses Muon for the matrices of the layers and AdamW for all other parameters.
    average: decay of the moving average of the weights, which covers about 1 / (1 - average) steps and replaces the
        weights at the end. 0 for the weights of the last step.
    seed: random seed for batches, masks and new heads.
    Raises Refused for settings out of range.
    """

    steps: Steps = 4000
    warmup: Warmup = 150
    decay: Decay = 2000
    learning_rate: ConstantRate = 5e-4
    weight_decay: float = 0.01
    tokens: Annotated[int, Option("Number of tokens of a batch on each worker.", 1)] = 3072
    lengths: Mapping[int, float] = field(default_factory=lambda: {32: 0.15, 64: 0.3, 128: 0.45, 256: 0.05, 512: 0.05})
    masking: MaskingRule = field(default_factory=lambda: MaskingRule(rate=0.2))
    mix: Mix = field(default_factory=Mix)
    optimizer: Annotated[str, Option("Optimizer of the matrices of the layers.", choices=OPTIMIZERS)] = "adamw"
    average: Annotated[
        float,
        Option("Decay of the moving average that replaces the weights at the end; 0 for the last weights.", 0, 0.9999),
    ] = 0.0
    seed: Annotated[int, Option("Random seed of batches, masks and new heads.", 0)] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tokens < max(self.lengths):
            raise Refused(
                f"tokens is {self.tokens}: a batch needs at least {max(self.lengths)}, the largest of its lengths"
            )
        total = sum(self.lengths.values())
        if abs(total - 1) > 1e-6:
            raise Refused(f"the shares of the lengths add up to {total:g}: they must add up to 1")

    def rate_at(self, step: int) -> float:
        """Return the learning rate of a step, counted from zero."""
        from bert_core.training.optimization import trapezoid

        return self.learning_rate * trapezoid(step, steps=self.steps, warmup=self.warmup, decay=self.decay)


@dataclass(frozen=True)
class FinetuneSettings(Settings):
    """Settings of a fine-tuning run; on the CPU of one machine equal settings give equal weights.

    epochs: maximum number of passes over the training examples.
    learning_rate: peak rate. It is reached after the first tenth of all steps and then falls linearly to zero.
    batch: number of examples per batch.
    max_length: maximum number of tokens of a text or a pair; longer ones are truncated.
    dropout: dropout probability. weight_decay: weight decay of matrices.
    patience: number of epochs without a better held-out result after which the run ends.
    seed: random seed for new weights, batches, dropout and the held-out split.
    Raises Refused for settings out of range.
    """

    epochs: Annotated[int, Option("Maximum number of passes over the training examples.", 1)] = 5
    learning_rate: Annotated[float, Option("Peak learning rate, reached after a tenth of the steps.", 0)] = 5e-5
    batch: Annotated[int, Option("Number of examples per batch.", 1)] = 16
    max_length: int = 128
    dropout: Annotated[float, Option("Dropout probability.", 0, 0.9)] = 0.1
    weight_decay: float = 0.01
    patience: Annotated[int, Option("Number of epochs without a better result after which the run ends.", 1)] = 2
    seed: Annotated[int, Option("Random seed of new weights, batches, dropout and held-out rows.", 0)] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.learning_rate < math.inf:
            raise Refused(f"the learning rate is {self.learning_rate:g}: it must be a finite number greater than 0")


@dataclass(frozen=True)
class AnswerSettings(FinetuneSettings):
    """Settings of a fine-tuning run of a reader, see `FinetuneSettings`.

    max_length: maximum number of tokens of a window; a longer context is divided into several overlapping windows.
    stride: number of word pieces between the starts of two consecutive windows.
    """

    max_length: int = 384
    stride: Annotated[int, Option("Number of tokens between the starts of two windows of a longer context.", 1)] = 128


@dataclass(frozen=True)
class LensSettings(Settings):
    """Settings of the training of a tuned lens.

    steps: total number of updates. warmup, decay: number of first steps over which the learning rate rises, and of last
        steps over which it falls to zero; it is constant in between. learning_rate: the constant rate.
    weight_decay: weight decay of the matrices.
    examples, length: number of examples of a batch, and their length in tokens. The lens is trained at the masked
        positions and at an equal number of random other positions.
    seed: random seed of batches and masks.
    Raises Refused for settings out of range.
    """

    steps: Steps = 800
    warmup: Warmup = 20
    decay: Decay = 400
    learning_rate: ConstantRate = 1e-3
    weight_decay: float = 0.01
    examples: Annotated[int, Option("Number of examples of a batch.", 1)] = 12
    length: Annotated[int, Option("Number of tokens of an example.", 5)] = 128
    seed: Annotated[int, Option("Random seed of batches and masks.", 0)] = 0


@dataclass(frozen=True)
class CaptionerSettings(Settings):
    """Settings of the training of a captioner; on the CPU of one machine equal settings give equal weights.

    steps: total number of updates. batch: number of scenes of a batch.
    warmup, decay: number of first steps over which the learning rate rises, and of last steps over which it falls to
        zero; it is constant in between. learning_rate: the constant rate. weight_decay: weight decay of matrices.
    growth: number of first steps with fewer shapes per scene. The first third has one shape, the second third up to
        two, and the rest up to three.
    hidden_words: share of the input words of the decoder that are masked, so that it attends to the image instead of
        learning which words occur together.
    relation_weight: weight of the words "above", "below", "left" and "right" in the loss; all other words have 1.
    patch_loss: weight of an auxiliary loss, in which each patch predicts the shape that it lies in and the relations
        of this shape to others.
    seed: random seed of scenes, masks and initial weights.
    Raises Refused for settings out of range.
    """

    steps: Steps = 20000
    batch: Annotated[int, Option("Number of scenes of a batch.", 1)] = 16
    warmup: Warmup = 200
    decay: Decay = 6000
    growth: Annotated[int, Option("Number of first steps with fewer shapes in a scene.", 0)] = 2000
    learning_rate: ConstantRate = 1e-3
    weight_decay: float = 0.01
    hidden_words: float = 0.05
    relation_weight: float = 3.0
    patch_loss: float = 1.0
    seed: Annotated[int, Option("Random seed of scenes and weights.", 0)] = 0
