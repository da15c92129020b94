"""Values of custom targets: functions of the outputs of a model, computed for copies of a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from bert_core.loading import LoadedModel
from bert_core.records import Target
from bert_core.refused import Refused, require_int, require_sequence, short_repr
from bert_core.task_heads import TASK_HEADS, TaskHead, as_wide_floats
from bert_core.tokenizer import Encoding


@dataclass(frozen=True, eq=False)
class TargetOutputs:
    """Outputs of a model for copies of one text, which the function of a custom target receives.

    Copies differ in what an analysis changes: for example, each lacks another head or token.
    encoding: the unmodified text. In activation patching it is the source when its value is computed.
    positions: positions of the last layer that are computed: `Target.positions`, or those of all tokens.
    states: (copy, position, hidden), the output of the last layer at these positions, in the dtype of the model.

    >>> import bert_core
    >>> loaded = bert_core.load("headlight-mini")
    >>> encoding = loaded.tokenizer.encode("She opened the [MASK] and walked in.")
    >>> def norm(outputs):
    ...     return outputs.states[:, 0].norm(dim=-1)
    >>> target = bert_core.Target("custom", name="norm of [CLS]", function=norm, positions=(0,))
    >>> run = bert_core.capture(loaded, encoding, target=target)
    >>> run.gradient.shape, run.target_value > 0
    ((6, 12, 10, 10), True)
    """

    encoding: Encoding
    positions: tuple[int, ...]
    states: Tensor
    _loaded: LoadedModel = field(repr=False)

    def logits(self, head: str = "words", positions: Sequence[int] | None = None) -> Tensor:
        """Compute the logits of a trained head of the model, in float32 or wider, with the graph of `states`.

        head: name of the head: "words", "classifier", "tagger", "reader", "next", "detector", "chooser", or of a
            registered head.
        positions: for heads that predict at tokens, the positions of the logits; None: all of `positions`.
            For "words" the memory is proportional to their number times the size of the vocabulary.
        Returns (copy, position, output) for heads that predict at tokens and (copy, output) for heads that classify a
        text. Heads with a single output return (copy, position) or (copy,).
        Raises Refused for a head that is not trained, a text without the second part that it needs, and positions that
        are not computed.
        """
        if not isinstance(head, str) or head not in TASK_HEADS:
            raise Refused(f"the head {short_repr(head)} is unknown: one of {', '.join(TASK_HEADS)}")
        declaration, loaded = TASK_HEADS[head], self._loaded
        declaration.require(loaded, "choose another head for the target")
        if type(declaration).logits is TaskHead.logits:
            raise Refused(f"the head {head!r} has no logits: compute the target from outputs.states")
        if declaration.needs_pair and self.encoding.pair is None:
            raise Refused(declaration.needs_pair)
        if head != "words" and not declaration.every_token:
            if positions is not None:
                raise Refused(f"positions are {short_repr(positions)}: the head {head!r} reads a text as a whole")
            pooling = declaration.pooling(loaded)
            rows = (0,) if pooling is None else pooling.pooled_positions(len(self.encoding))
            return declaration.logits(loaded, declaration.text_states(loaded, self._states_at(rows)))
        requested = self.positions if positions is None else self._check_positions(positions)
        if head == "detector" and loaded.config.family.detector_adds_first_token:
            # The head reads the first state as that of the first token.
            return declaration.logits(loaded, self._states_at((0, *requested)))[:, 1:]
        return declaration.logits(loaded, self._states_at(requested))

    def _check_positions(self, positions: Sequence[int]) -> tuple[int, ...]:
        items = require_sequence("positions", positions, "whole numbers")
        return tuple(require_int("a position", item, None) for item in items)

    def _states_at(self, positions: Sequence[int]) -> Tensor:
        """Return the states at some positions. Raises Refused for a position that is not computed."""
        if tuple(positions) == self.positions:
            return self.states
        missing = [position for position in positions if position not in self.positions]
        if missing:
            raise Refused(
                f"position {missing[0]} is read by the function of the target, whose positions are "
                f"{short_repr(self.positions)}: give the target this position, or no positions for all tokens"
            )
        return self.states[:, [self.positions.index(position) for position in positions]]


def function_values(loaded: LoadedModel, encoding: Encoding, target: Target, rows: Tensor) -> Tensor:
    """Compute a custom target for copies of a text, (copy,), in float32 or wider, with a graph if the rows have one.

    rows: (copy, position, hidden), the output of the last layer at the positions of the target.
    Raises Refused if the function raises an exception, and if it returns anything but one finite number for each copy.
    Raises Refused, as far as gradients show it, if a value depends on other copies, and if gradients are needed and the
    values do not depend on the outputs.
    """
    positions = target.positions or tuple(range(len(encoding)))

    def compute(states: Tensor) -> Tensor:
        return _call(target, TargetOutputs(encoding, positions, states, loaded))

    values = compute(rows)
    if torch.is_grad_enabled() and rows.requires_grad:
        if not values.requires_grad or not _check_independence(target, values, rows):
            raise _no_gradient(target)
    elif len(rows) > 1:
        with torch.enable_grad():
            states = rows[:2].detach().requires_grad_()
            try:
                first_values = compute(states)
            except Refused:  # functions without gradients, such as those of NumPy, are allowed here
                return values
            if first_values.requires_grad:
                _check_independence(target, first_values, states)
    return values


def _call(target: Target, outputs: TargetOutputs) -> Tensor:
    """Call the function of a target and check what it returns. Raises Refused as `function_values`."""
    assert target.function is not None  # Target requires it for its kind
    try:
        values = target.function(outputs)
    except Refused:
        raise
    except Exception as error:
        message = " ".join(str(error).split())[:200]
        raise Refused(
            f"the function of the target {target.name!r} raised {type(error).__name__}{message and ': ' + message}"
        ) from error
    copies = len(outputs.states)
    expected = f"it must return one finite number for each copy, a floating-point tensor of shape ({copies},)"
    if not isinstance(values, Tensor):
        raise Refused(
            f"the function of the target {target.name!r} returned {short_repr(values)} of type "
            f"{type(values).__name__}: {expected}"
        )
    if values.shape != (copies,) or not values.is_floating_point():
        raise Refused(
            f"the function of the target {target.name!r} returned a tensor of shape {tuple(values.shape)} and dtype "
            f"{values.dtype}: {expected}"
        )
    values = as_wide_floats(values.to(outputs.states.device))
    if not values.isfinite().all():
        raise Refused(f"the function of the target {target.name!r} returned a value that is not finite: {expected}")
    return values


def _check_independence(target: Target, values: Tensor, rows: Tensor) -> bool:
    """Return whether the values (copy,) depend on the rows (copy, position, hidden), by their gradients.

    Raises Refused if the value of the first or of the last copy depends on another copy.
    """
    for copy in {0, len(values) - 1}:
        (gradient,) = torch.autograd.grad(values[copy], rows, retain_graph=True, allow_unused=True)
        if gradient is None:
            return False
        if len(rows) > 1 and torch.cat([gradient[:copy], gradient[copy + 1 :]]).nan_to_num().any():
            raise Refused(
                f"the function of the target {target.name!r} returned a value of one copy that depends on other "
                "copies: compute each value from one row of outputs.states or outputs.logits"
            )
    return True


def _no_gradient(target: Target) -> Refused:
    return Refused(
        f"the function of the target {target.name!r} returned values without a gradient, which this analysis needs: "
        "compute them from outputs.states or outputs.logits with operations of torch that have gradients"
    )
