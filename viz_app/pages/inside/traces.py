"""The trace of a forward pass, from the queue."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bert_core.loading import LoadedModel
from bert_core.progress import Progress, ignore_progress
from bert_core.records import LensRun, Walk
from bert_core.run.lens import logit_lens
from bert_core.run.memory import capture_bytes, mlm_head_bytes
from bert_core.run.walk import walk, walk_at_position
from bert_core.tokenizer import Encoding
from viz_app.export import tables
from viz_app.pages.inside.designs import stages_of
from viz_app.pages.inside.stages import StageInput
from viz_app.shell.selection import Selection
from viz_app.shell.work import Work, wait_for, work


@work(
    "{model} computes every step with {engine}",
    memory=lambda model, encoding, _layer, _head_mask, pads, _engine: capture_bytes(model, len(encoding) + pads),
)
def _trace(
    model: LoadedModel,
    encoding: Encoding,
    layer: int,
    head_mask: np.ndarray,
    pads: int,
    engine: str,
    report: Progress = ignore_progress,
) -> Walk:
    return walk(model, encoding, layer, head_mask=head_mask, pads=pads, engine=engine, report=report)


@work("{model} computes the logit lens", memory=lambda model, *_: mlm_head_bytes(model, 1))
def _lens(model: LoadedModel, encoding: Encoding, position: int, head_mask: np.ndarray) -> LensRun:
    return logit_lens(model, encoding, positions=[position], top_k=1, head_mask=head_mask)


@dataclass(frozen=True)
class ForwardPass:
    """A forward pass, and the layer, head and token that the page shows of it. The queue keeps its trace.

    pads: number of [PAD] tokens that are added to the text. engine: "torch" or "numpy".
    """

    selection: Selection
    layer: int
    head: int
    token: int
    pads: int
    engine: str

    def trace(self) -> Work[Walk]:
        """Return the work of its trace, which serves all tokens; see `at_token`."""
        current = self.selection
        return _trace(current.loaded, current.encoding, self.layer, current.head_mask, self.pads, self.engine)

    def at_token(self, trace: Walk) -> Walk:
        """Return a trace with the masked-word prediction at the token; everything else is unchanged."""
        return walk_at_position(self.selection.loaded, trace, self.token)

    def stage_input(self) -> StageInput:
        """Return what the stages show, when the trace is finished."""
        loaded = self.selection.loaded
        config, scheme = loaded.config, loaded.config.position_scheme
        distances, rotation = scheme.distances, scheme.rotation
        return StageInput(
            trace=self.at_token(wait_for(self.trace(), timed=True)),
            head=self.head,
            relative=distances is not None,
            divided=distances is None or distances.scaled,
            root_terms=1 if distances is None else distances.root_terms,
            hidden_act=config.hidden_act,
            pooler_act=config.pooler_act,
            has_pair_output=loaded.has_head("next"),
            predicts_order=loaded.predicts_order,
            word_act=config.mlm_act,
            word=self.selection.word,
            design=config.layer_design,
            rotary_base=None if rotation is None else rotation.base(self.layer),
            window=None if rotation is None else rotation.window(self.layer),
        )

    def lens(self) -> LensRun | None:
        """Return what the logit lens predicts at the token after each layer; None without an MLM head."""
        current = self.selection
        if not current.loaded.has_head("words"):
            return None
        return wait_for(_lens(current.loaded, current.encoding, self.token, current.head_mask))

    def stage_csv(self, name: str) -> bytes:
        """Return the numbers of a stage as CSV."""
        view, stage = self.stage_input(), stages_of(self.selection.loaded)[name]
        return tables.tidy_csv(stage.tables(view), stage.row_labels(view))

    def npz(self) -> bytes:
        """Return all values of the trace as NPZ."""
        trace = self.stage_input().trace
        return tables.npz(trace.values, tokens=trace.tokens)
