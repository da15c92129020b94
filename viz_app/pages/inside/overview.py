"""The overview of a forward pass: hidden states, attention and predictions of the selected token, layer by layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from bert_core.analysis.walks import most_likely_tokens, next_sentence_probability, step_angles
from bert_core.records import LensRun, ModelRun
from viz_app.figures.stages import OUTPUT_WIDTH, PassColumns, pass_overview
from viz_app.pages.inside.designs import ALL_STAGES
from viz_app.pages.inside.stages import MAX_WORDS, StageInput
from viz_app.shell.markdown import quoted

COLUMN_OF = {"pieces": -1, "embeddings": 0, "norm": 0}  # of the stages before the layers
OUTPUT_WORDS = 3


@dataclass(frozen=True)
class Overview:
    """The selected stage in the overview of a pass. lens: None for a model without an MLM head."""

    view: StageInput
    run: ModelRun
    lens: LensRun | None
    stage: str

    @property
    def layer_count(self) -> int:
        """The number of layers."""
        return len(self.run.attention)

    @property
    def needs(self) -> tuple[str, ...]:
        """The controls that affect the selected stage; those of attention need a head, those of a layer its number."""
        return ALL_STAGES[self.stage].needs

    @property
    def token(self) -> str:
        """The selected token in Markdown, with its position."""
        return quoted(self.view.labels[self.view.query], self.view.query)

    def attention(self) -> np.ndarray:
        """Return the attention weights (layer, key) of the selected token: those of the heads that are on, averaged.

        In the stages of attention, the selected layer has the weights of the selected head.
        """
        weights = self.run.attention[:, :, self.view.query]
        shares = np.isfinite(weights).all(-1) * self.run.head_mask
        means = (np.nan_to_num(weights) * shares[..., None]).sum(1) / np.maximum(shares.sum(1), 1)[:, None]
        if "head" in self.needs:
            layer = self.view.trace.layer
            means[layer] = np.nan_to_num(weights[layer, self.view.head])
        selected: np.ndarray = means
        return selected

    def readouts(self) -> list[tuple[str, float]]:
        """Return the most probable word of the logit lens at each depth, with its probability."""
        if self.lens is None:
            return []
        pairs = zip(self.lens.top[:, 0, 0], self.lens.probabilities[:, 0, 0], strict=True)
        return [(self.view.word(int(token)), float(share)) for token, share in pairs]

    def outputs(self) -> list[tuple[str, float]]:
        """Return the most probable words of the output at the selected token."""
        if "mlm_logits" not in self.view.trace.values:
            return []
        return [(self.view.word(token), share) for token, share in most_likely_tokens(self.view.trace, MAX_WORDS)]

    def highlight(self) -> tuple[float, float]:
        """Return the left and right end of the columns of the selected stage."""
        layer = self.view.trace.layer
        if "head" in self.needs:
            return layer + 0.3, layer + 0.7
        if "layer" in self.needs:
            return layer + 0.65, layer + 1.35
        columns = {**COLUMN_OF, "final_norm": self.layer_count}
        column = columns.get(self.stage, self.layer_count + 1)
        return column - 0.45, column + (OUTPUT_WIDTH - 0.5 if column > self.layer_count else 0.45)

    def figure(self) -> go.Figure:
        """Draw the overview."""
        encoding, layer = self.view.trace.encoding, self.view.trace.layer
        head_remark = f"; in L{layer}: H{self.view.head}" if "head" in self.needs else ""
        remarks = ("ribbon width: attention,", f"mean of the heads{head_remark}")
        states = self.view.value("hidden_states")[:, : len(encoding)]
        outputs = self.outputs()[:OUTPUT_WORDS]
        columns = PassColumns(encoding.input_ids, states, self.attention(), self.readouts(), outputs)
        place: dict[str, Any] = {"selected": self.view.query, "highlight": self.highlight()}
        return pass_overview(columns, encoding.labels, remarks=remarks, **place)

    def finding(self) -> str:
        """Return one sentence in Markdown that states what the pass does at the selected token in this stage."""
        layer = self.view.trace.layer
        if "head" in self.needs:
            weights = self.attention()[layer]
            key = int(weights.argmax())
            name = quoted(self.view.labels[key], key)
            place = f"L{layer} H{self.view.head}"
            return f"In **{place}**, {self.token} attends most to **{name}**, with weight {weights[key]:.2g}."
        if "layer" in self.needs:
            cosine = float(step_angles(self.view.trace)[layer, self.view.query])
            return f"**Layer {layer}** changes the vector of {self.token}: input and output have cosine {cosine:.2g}."
        if self.stage == "pooler" and "nsp_logits" in self.view.trace.values:
            follows = next_sentence_probability(self.view.trace)
            return f"From the pooled vector, the model predicts that B follows A with probability **{follows:.2g}**."
        return self._prediction()

    def _prediction(self) -> str:
        """Return what is predicted at the selected token, and from which depth on the logit lens predicts it."""
        readouts = self.readouts()
        if not readouts:
            return (
                f"The pass ends with a hidden state of {self.token}; this model has no MLM head to read it as a word."
            )
        word, share = readouts[-1]
        depth = next(depth for depth in range(len(readouts)) if all(w == word for w, _ in readouts[depth:]))
        name = f"**{quoted(word)}** ({share:.2g})"
        if depth == 0:
            return f"At {self.token} the model predicts {name}; the logit lens reads this word from the embedding on."
        change = f"reads {quoted(readouts[0][0])} from the embedding, and the predicted word from L{depth - 1} on"
        return f"At {self.token} the model predicts {name}. The logit lens {change}."
