"""A decoder's scores into a text: the likeliest token each time, a drawn one, or the best of several beams."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from bert_core.modeling import BertLMHeadModel, LayerCache, States, map_states
from bert_core.refused import MAX_SEED, Refused, require_instances, require_int, short_repr, validate_arguments

TEMPERATURE_RANGE = (1e-6, 1e6)  # scores over a smaller one are infinite
MAX_LENGTH_PENALTY = 10.0  # of the length: a power of it must stay a number
# Tokens after which a device is asked whether all rows have ended: the host, which runs ahead of it, waits each time.
END_CHECK_INTERVAL = 8


@validate_arguments
@torch.no_grad()
def generate(
    model: BertLMHeadModel,
    input_ids: Tensor,
    *,
    max_new_tokens: int = 20,
    eos_token_id: int | None = None,
    attention_mask: Tensor | None = None,
    encoder_hidden_states: States | None = None,
    encoder_attention_mask: States | None = None,
    do_sample: bool = False,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    num_beams: int = 1,
    length_penalty: float = 1.0,
    seed: int = 0,
    use_cache: bool = True,
) -> Tensor:
    """The prompt (batch, seq) and what the model puts after it, (batch, seq + at most max_new_tokens).

    Greedy by default. do_sample draws from the softmax of scores / temperature, cut to the top_k likeliest tokens (0:
    all) and to the fewest that hold top_p of the probability (Holtzman 2019, arXiv:1904.09751); equal seeds draw
    alike on one device.
    num_beams above 1 keeps that many texts and gives the one with the largest sum of log-probabilities / (new
    tokens ** length_penalty); a row is done when no open beam, scored at its present length, beats its finished ones.
    eos_token_id: ends a row, which is then filled with the padding token; None never ends early.
    attention_mask: (batch, seq) of the prompt, 0 at padding, which stands on the left.
    encoder_hidden_states, encoder_attention_mask: what cross-attention reads, as BertModel.forward.
    use_cache: keep keys and values instead of computing them again; the tokens are the same.
    Raises Refused for an empty prompt, settings out of range, or more tokens than the model has positions for.
    """
    _check_settings(model, max_new_tokens, temperature, top_k, top_p, num_beams, length_penalty, do_sample)
    _check_prompt(model, input_ids, attention_mask, max_new_tokens)
    _check_context(model, encoder_hidden_states, encoder_attention_mask, len(input_ids))
    seed = require_int("seed", seed, 0, MAX_SEED)
    if eos_token_id is not None:
        eos_token_id = require_int("eos_token_id", eos_token_id, 0, model.config.vocab_size - 1)
    context: dict[str, Any] = {
        "encoder_hidden_states": encoder_hidden_states, "encoder_attention_mask": encoder_attention_mask,
    }  # fmt: skip
    was_training = model.training
    model.eval()
    try:
        if num_beams > 1:
            return _beam_search(
                model, input_ids, attention_mask, context, max_new_tokens, eos_token_id, num_beams, length_penalty,
                use_cache,
            )  # fmt: skip
        draw = torch.Generator(device=input_ids.device).manual_seed(seed) if do_sample else None
        past = None
        ended = torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)
        all_ended: list[Tensor] = []  # of the tokens since the last reading: whether every row had ended
        every = 1 if input_ids.device.type == "cpu" else END_CHECK_INTERVAL
        for length in range(1, max_new_tokens + 1):
            scores, past = _next_scores(model, input_ids, past, attention_mask, context, use_cache)
            if draw is None:
                token = scores.argmax(-1)
            else:
                kept = _keep_likeliest(scores / temperature, top_k, top_p)
                token = torch.multinomial(kept.softmax(-1), 1, generator=draw)[:, 0]
            token = token.masked_fill(ended, model.config.pad_token_id)
            input_ids, attention_mask = _append(input_ids, attention_mask, token)
            if eos_token_id is not None:
                ended |= token == eos_token_id
                all_ended.append(ended.all())
                if len(all_ended) == every or length == max_new_tokens:
                    ends = torch.stack(all_ended).tolist()
                    if True in ends:  # what was computed after it is padding
                        return input_ids[:, : input_ids.shape[1] - len(ends) + ends.index(True) + 1]
                    all_ended.clear()
        return input_ids
    finally:
        model.train(was_training)


def _check_settings(
    model: BertLMHeadModel,
    max_new_tokens: int,
    temperature: float,
    top_k: int,
    top_p: float,
    num_beams: int,
    length_penalty: float,
    do_sample: bool,
) -> None:
    if max_new_tokens < 1:
        raise Refused(f"max_new_tokens is {short_repr(max_new_tokens)}: at least 1")
    least, most = TEMPERATURE_RANGE
    if not temperature > 0:
        raise Refused(f"temperature is {temperature:g}: it must be above 0 (greedy decoding takes the likeliest)")
    if not least <= temperature <= most:
        raise Refused(f"temperature is {temperature:g}: from {least:g} to {most:g}")
    if top_k < 0:
        raise Refused(f"top_k is {short_repr(top_k)}: 0 for all tokens, or how many of the likeliest")
    if not 0 < top_p <= 1:
        raise Refused(f"top_p is {top_p:g}: above 0, and at most 1")
    if num_beams < 1:
        raise Refused(f"num_beams is {short_repr(num_beams)}: at least 1")
    if num_beams > model.config.vocab_size:
        raise Refused(f"num_beams is {short_repr(num_beams)}: at most one for each of {model.config.vocab_size} tokens")
    if not abs(length_penalty) <= MAX_LENGTH_PENALTY:
        raise Refused(f"length_penalty is {length_penalty:g}: from {-MAX_LENGTH_PENALTY:g} to {MAX_LENGTH_PENALTY:g}")
    if do_sample and num_beams > 1:
        raise Refused(f"do_sample with {num_beams} beams: draw with one beam, or search without drawing")


def _check_prompt(
    model: BertLMHeadModel, input_ids: Tensor, attention_mask: Tensor | None, max_new_tokens: int
) -> None:
    if input_ids.dim() != 2 or not input_ids.numel():
        raise Refused(f"the prompt is {tuple(input_ids.shape)}: it is (batch, seq), with at least one token")
    vocab = model.config.vocab_size
    least, most = torch.stack(input_ids.aminmax()).tolist()
    if input_ids.dtype not in (torch.int64, torch.int32) or least < 0 or most >= vocab:
        given = f"of {input_ids.dtype}, from {least:g} to {most:g}"
        raise Refused(f"the prompt is {given}: it must be whole numbers, from 0 to {vocab - 1}")
    positions, wanted = model.config.max_position_embeddings, input_ids.shape[1] + max_new_tokens - 1
    if wanted > positions:
        raise Refused(
            f"a prompt of {input_ids.shape[1]} tokens and {short_repr(max_new_tokens)} new ones: this model takes at most "
            f"{positions}, so at most {max(positions - input_ids.shape[1] + 1, 0)} new ones"
        )
    if attention_mask is not None and (
        attention_mask.shape != input_ids.shape
        or attention_mask.is_complex()
        or not _is_mask(attention_mask)
        or not attention_mask[:, -1].all()
        or (attention_mask.long().diff() < 0).any()
    ):
        raise Refused(
            f"attention_mask is {tuple(attention_mask.shape)}: it must be {tuple(input_ids.shape)}, "
            "0 at padding, which stands on the left, and then 1"
        )


def _is_mask(mask: Tensor) -> bool:
    """Whether all is 0 or 1."""
    return bool(((mask == 0) | (mask == 1)).all())


def _check_context(model: BertLMHeadModel, states: States | None, mask: States | None, batch: int) -> None:
    """Raise Refused unless these are states and a mask that cross-attention can read, for all layers or a list each."""
    if not model.config.add_cross_attention:
        if states is not None or mask is not None:
            raise Refused("encoder_hidden_states were given, but this model has add_cross_attention false")
        return
    if states is None:
        raise Refused("encoder_hidden_states are missing: this model has cross-attention, which reads them")
    dtype, width = next(model.parameters()).dtype, model.config.encoder_width or model.config.hidden_size
    every, masks = _each("encoder_hidden_states", states), [] if mask is None else _each("encoder_attention_mask", mask)
    for one in every:
        if one.dim() != 3 or one.shape[::2] != (batch, width) or one.dtype != dtype or not one.isfinite().all():
            raise Refused(
                f"encoder_hidden_states is {tuple(one.shape)} of {one.dtype}: "
                f"this model attends to finite numbers, ({batch}, key, {width}) of {dtype}"
            )
    keys = every[0].shape[1]
    if any(one.shape[1] != keys or not keys for one in every):
        raise Refused(f"encoder_hidden_states has {sorted({one.shape[1] for one in every})} keys: one number, from 1")
    for one in masks:
        if one.shape not in ((batch, keys), (batch, 1, keys)) or one.is_complex() or not _is_mask(one):
            raise Refused(
                f"encoder_attention_mask is {tuple(one.shape)}: it must be 0 or 1 for each key, ({batch}, {keys})"
            )


def _each(name: str, given: States) -> tuple[Tensor, ...]:
    """The tensor for all layers, or those of a list. Raises Refused for anything else."""
    every = (given,) if isinstance(given, Tensor) else require_instances(name, given, Tensor)
    if not every:
        raise Refused(f"{name} is {short_repr(given)}: it must be a tensor, or a list of some")
    return every


def _next_scores(
    model: BertLMHeadModel,
    input_ids: Tensor,
    past: Sequence[LayerCache] | None,
    attention_mask: Tensor | None,
    context: dict[str, Any],
    use_cache: bool,
) -> tuple[Tensor, Sequence[LayerCache] | None]:
    """Scores of the token that comes next, (batch, vocab), and the cache up to here."""
    inputs = model.prepare_inputs_for_generation(input_ids, past=past, attention_mask=attention_mask, **context)
    outputs = model(**inputs, use_cache=use_cache)
    return outputs.logits[:, -1].float(), outputs.past_key_values


def _append(input_ids: Tensor, attention_mask: Tensor | None, token: Tensor) -> tuple[Tensor, Tensor | None]:
    """token: (batch,)."""
    longer = torch.cat([input_ids, token[:, None]], dim=1)
    if attention_mask is None:
        return longer, None
    return longer, torch.cat([attention_mask, attention_mask.new_ones(len(token), 1)], dim=1)


def _keep_likeliest(scores: Tensor, top_k: int, top_p: float) -> Tensor:
    """The scores (batch, vocab), with minus infinity for the tokens that may not be drawn."""
    if 0 < top_k < scores.shape[-1]:
        scores = scores.masked_fill(scores < scores.topk(top_k).values[:, -1:], -torch.inf)
    if top_p < 1:
        ordered, places = scores.sort(dim=-1, descending=True)
        probabilities = ordered.softmax(-1)
        # A token stays while those before it hold less than top_p: the first always does.
        dropped = probabilities.cumsum(-1) - probabilities >= top_p
        scores = scores.masked_fill(torch.zeros_like(dropped).scatter(1, places, dropped), -torch.inf)
    return scores


def _beam_search(
    model: BertLMHeadModel,
    input_ids: Tensor,
    attention_mask: Tensor | None,
    context: dict[str, Any],
    max_new_tokens: int,
    eos_token_id: int | None,
    beams: int,
    length_penalty: float,
    use_cache: bool,
) -> Tensor:
    """The best text of each row; rows of the model's batch are (row, beam)."""
    rows, prompt = input_ids.shape
    running = input_ids.repeat_interleave(beams, 0)
    mask = None if attention_mask is None else attention_mask.repeat_interleave(beams, 0)
    context = {
        name: map_states(lambda one: one.repeat_interleave(beams, 0), states) for name, states in context.items()
    }
    # Only the first beam counts at first, or all beams would hold the same text.
    totals = torch.full((rows, beams), -torch.inf, device=input_ids.device)
    totals[:, 0] = 0.0
    finished: list[list[tuple[float, Tensor]]] = [[] for _ in range(rows)]
    open_rows = [True] * rows
    past = None
    for length in range(1, max_new_tokens + 1):
        scores, past = _next_scores(model, running, past, mask, context, use_cache)
        vocab = scores.shape[-1]
        reached = totals[..., None] + scores.log_softmax(-1).view(rows, beams, vocab)
        # Twice as many as beams: if every beam's best token ended the text, as many others would go on.
        best, places = reached.flatten(1).topk(min(2 * beams, beams * vocab))
        parents = places // vocab + beams * torch.arange(rows, device=places.device)[:, None]
        candidates = torch.cat([running[parents.flatten()], (places % vocab).view(-1, 1)], dim=1)
        candidates = candidates.view(rows, -1, prompt + length)
        ends = torch.full_like(places, length == max_new_tokens, dtype=torch.bool)
        if eos_token_id is not None:
            ends |= places % vocab == eos_token_id
        keep = []
        of_open = best.masked_fill(ends, -torch.inf)
        # One reading a token: sums of ended and of open beams; minus infinity for the others.
        ended_sums, open_sums = torch.stack([best.masked_fill(~ends, -torch.inf), of_open]).tolist()
        for row in range(rows):
            if open_rows[row]:
                for rank in range(beams):
                    if ended_sums[row][rank] > -math.inf:
                        finished[row].append((ended_sums[row][rank] / length**length_penalty, candidates[row, rank]))
                finished[row] = sorted(finished[row], key=lambda one: one[0], reverse=True)[:beams]
            keep.append(of_open[row].topk(beams).indices)
            best_open = max(open_sums[row]) / length**length_penalty
            if len(finished[row]) == beams and best_open <= finished[row][-1][0]:
                open_rows[row] = False
        if length == max_new_tokens or not any(open_rows):
            break
        chosen = torch.stack(keep)
        totals = of_open.gather(1, chosen)
        running = torch.cat([candidates[row, chosen[row]] for row in range(rows)])
        if mask is not None:
            mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
        if past is not None:
            past = model._reorder_cache(past, parents.gather(1, chosen).flatten())
    texts = [one[0][1] for one in finished]
    result = input_ids.new_full((rows, max(len(text) for text in texts)), model.config.pad_token_id)
    for row, text in enumerate(texts):
        result[row, : len(text)] = text
    return result
