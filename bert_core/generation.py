"""Text generation with a decoder: greedy decoding, sampling and beam search."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from bert_core.modeling import BertLMHeadModel, LayerCache, States, map_states
from bert_core.refused import MAX_SEED, Refused, require_instances, require_int, short_repr, validate_arguments

TEMPERATURE_RANGE = (1e-6, 1e6)  # with smaller temperatures the scaled logits overflow
MAX_LENGTH_PENALTY = 10.0  # with larger exponents the power of the length overflows
# Number of tokens between checks on a device whether all rows have ended, since the host waits for each check.
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
    """Generate a continuation of each prompt, by default with greedy decoding.

    model: the decoder; it is in evaluation mode during the generation. input_ids: (batch, seq), the prompts.
    max_new_tokens: maximum number of generated tokens.
    eos_token_id: the token that ends a row, which is then filled with the padding token; None ends no row early.
    attention_mask: (batch, seq), 0 at padding, which must be on the left, and 1 elsewhere.
    encoder_hidden_states, encoder_attention_mask: the states for cross-attention, as in BertModel.forward.
    do_sample: sample each token from the softmax of logits / temperature. Equal seeds give equal texts on one device.
    top_k: sample only from the k most probable tokens; 0 allows all. top_p: sample only from the smallest set of most
        probable tokens whose probability sums to at least top_p.
    num_beams: number of beams of a beam search; 1 does not search. The result of a row is the text with the largest
        sum of log-probabilities / (number of new tokens ** length_penalty). A row is finished when no open beam, scored
        at its current length, is better than the finished texts.
    seed: of the random generator. use_cache: cache keys and values instead of recomputing them; the tokens are equal.
    Returns (batch, seq + number of new tokens), the prompts with their continuations.
    Raises Refused for an empty prompt, settings out of range, or more tokens than the model has positions.
    Source: of top_p, Holtzman 2019 (arXiv:1904.09751), section 3.1.
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
        generator = torch.Generator(device=input_ids.device).manual_seed(seed) if do_sample else None
        past = None
        ended = torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)
        all_ended: list[Tensor] = []  # for each token since the last check, whether all rows have ended
        interval = 1 if input_ids.device.type == "cpu" else END_CHECK_INTERVAL
        for length in range(1, max_new_tokens + 1):
            scores, past = _next_scores(model, input_ids, past, attention_mask, context, use_cache)
            if generator is None:
                token = scores.argmax(-1)
            else:
                filtered_scores = _filter_scores(scores / temperature, top_k, top_p)
                token = torch.multinomial(filtered_scores.softmax(-1), 1, generator=generator)[:, 0]
            token = token.masked_fill(ended, model.config.pad_token_id)
            input_ids, attention_mask = _append(input_ids, attention_mask, token)
            if eos_token_id is not None:
                ended |= token == eos_token_id
                all_ended.append(ended.all())
                if len(all_ended) == interval or length == max_new_tokens:
                    ends = torch.stack(all_ended).tolist()
                    if True in ends:  # later tokens are padding
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
    """Raise Refused for settings that are out of range or exclude each other."""
    if max_new_tokens < 1:
        raise Refused(f"max_new_tokens is {short_repr(max_new_tokens)}: it must be at least 1")
    minimum, maximum = TEMPERATURE_RANGE
    if not temperature > 0:
        raise Refused(f"temperature is {temperature:g}: it must be above 0, and without do_sample decoding is greedy")
    if not minimum <= temperature <= maximum:
        raise Refused(f"temperature is {temperature:g}: it must be from {minimum:g} to {maximum:g}")
    if top_k < 0:
        raise Refused(f"top_k is {short_repr(top_k)}: it must be 0 for all tokens, or a number of tokens")
    if not 0 < top_p <= 1:
        raise Refused(f"top_p is {top_p:g}: it must be above 0 and at most 1")
    if num_beams < 1:
        raise Refused(f"num_beams is {short_repr(num_beams)}: it must be at least 1")
    if num_beams > model.config.vocab_size:
        size = model.config.vocab_size
        raise Refused(f"num_beams is {short_repr(num_beams)}: it must be at most the size of the vocabulary, {size}")
    if not abs(length_penalty) <= MAX_LENGTH_PENALTY:
        limit = MAX_LENGTH_PENALTY
        raise Refused(f"length_penalty is {length_penalty:g}: it must be from {-limit:g} to {limit:g}")
    if do_sample and num_beams > 1:
        raise Refused(f"do_sample is set with {num_beams} beams: sample with one beam, or search without sampling")


def _check_prompt(
    model: BertLMHeadModel, input_ids: Tensor, attention_mask: Tensor | None, max_new_tokens: int
) -> None:
    """Raise Refused for a prompt or a mask that the model cannot read, or that leaves too few positions."""
    if input_ids.dim() != 2 or not input_ids.numel():
        shape = tuple(input_ids.shape)
        raise Refused(f"the prompt has shape {shape}: it must be (batch, seq), with at least one token")
    vocab = model.config.vocab_size
    lowest, highest = torch.stack(input_ids.aminmax()).tolist()
    if input_ids.dtype not in (torch.int64, torch.int32) or lowest < 0 or highest >= vocab:
        raise Refused(
            f"the prompt is of {input_ids.dtype}, from {lowest:g} to {highest:g}: it must be whole numbers from 0 to "
            f"{vocab - 1}"
        )
    positions, needed_positions = model.config.max_position_embeddings, input_ids.shape[1] + max_new_tokens - 1
    if needed_positions > positions:
        raise Refused(
            f"the prompt has {input_ids.shape[1]} tokens and max_new_tokens is {short_repr(max_new_tokens)}: this "
            f"model has {positions} positions, so max_new_tokens can be at most "
            f"{max(positions - input_ids.shape[1] + 1, 0)}"
        )
    if attention_mask is not None and (
        attention_mask.shape != input_ids.shape
        or attention_mask.is_complex()
        or not _is_mask(attention_mask)
        or not attention_mask[:, -1].all()
        or (attention_mask.long().diff() < 0).any()
    ):
        raise Refused(
            f"attention_mask has shape {tuple(attention_mask.shape)}: it must be {tuple(input_ids.shape)}, 0 at "
            "padding on the left, and then 1"
        )


def _is_mask(mask: Tensor) -> bool:
    """Return whether all values are 0 or 1."""
    return bool(((mask == 0) | (mask == 1)).all())


def _check_context(model: BertLMHeadModel, states: States | None, mask: States | None, batch: int) -> None:
    """Raise Refused unless cross-attention can read the states and mask: one for all layers, or a list of each."""
    if not model.config.add_cross_attention:
        if states is not None or mask is not None:
            raise Refused("encoder_hidden_states were given, but this model has add_cross_attention false")
        return
    if states is None:
        raise Refused("encoder_hidden_states are missing: this model has cross-attention, which reads them")
    dtype, width = next(model.parameters()).dtype, model.config.encoder_width or model.config.hidden_size
    tensors = _tensors("encoder_hidden_states", states)
    masks = [] if mask is None else _tensors("encoder_attention_mask", mask)
    for tensor in tensors:
        shape = tuple(tensor.shape)
        if (
            tensor.dim() != 3
            or tensor.shape[::2] != (batch, width)
            or tensor.dtype != dtype
            or not tensor.isfinite().all()
        ):
            raise Refused(
                f"encoder_hidden_states has shape {shape} and {tensor.dtype}: it must be finite numbers, "
                f"({batch}, key, {width}) of {dtype}"
            )
    keys = tensors[0].shape[1]
    if any(tensor.shape[1] != keys or not keys for tensor in tensors):
        numbers = sorted({tensor.shape[1] for tensor in tensors})
        raise Refused(f"encoder_hidden_states has {numbers} keys: all layers must have the same number, at least 1")
    for key_mask in masks:
        if key_mask.shape not in ((batch, keys), (batch, 1, keys)) or key_mask.is_complex() or not _is_mask(key_mask):
            raise Refused(
                f"encoder_attention_mask has shape {tuple(key_mask.shape)}: it must be 0 or 1 for each key, "
                f"({batch}, {keys})"
            )


def _tensors(name: str, values: States) -> tuple[Tensor, ...]:
    """Return the tensor for all layers, or the tensors of a list; raise Refused for anything else."""
    tensors = (values,) if isinstance(values, Tensor) else require_instances(name, values, Tensor)
    if not tensors:
        raise Refused(f"{name} is {short_repr(values)}: it must be a tensor or a non-empty list of tensors")
    return tensors


def _next_scores(
    model: BertLMHeadModel,
    input_ids: Tensor,
    past: Sequence[LayerCache] | None,
    attention_mask: Tensor | None,
    context: dict[str, Any],
    use_cache: bool,
) -> tuple[Tensor, Sequence[LayerCache] | None]:
    """Compute the logits of the next token, (batch, vocab), and the cache of the tokens so far."""
    inputs = model.prepare_inputs_for_generation(input_ids, past=past, attention_mask=attention_mask, **context)
    outputs = model(**inputs, use_cache=use_cache)
    return outputs.logits[:, -1].float(), outputs.past_key_values


def _append(input_ids: Tensor, attention_mask: Tensor | None, token: Tensor) -> tuple[Tensor, Tensor | None]:
    """Append a token (batch,) to the ids (batch, seq) and, if there is one, to the mask (batch, seq)."""
    longer = torch.cat([input_ids, token[:, None]], dim=1)
    if attention_mask is None:
        return longer, None
    return longer, torch.cat([attention_mask, attention_mask.new_ones(len(token), 1)], dim=1)


def _filter_scores(scores: Tensor, top_k: int, top_p: float) -> Tensor:
    """Return the logits (batch, vocab) with -inf at the tokens that top_k and top_p exclude from sampling."""
    if 0 < top_k < scores.shape[-1]:
        scores = scores.masked_fill(scores < scores.topk(top_k).values[:, -1:], -torch.inf)
    if top_p < 1:
        ordered, token_ids = scores.sort(dim=-1, descending=True)
        probabilities = ordered.softmax(-1)
        # A token stays if the more probable ones sum to less than top_p, so the first one always stays.
        excluded = probabilities.cumsum(-1) - probabilities >= top_p
        scores = scores.masked_fill(torch.zeros_like(excluded).scatter(1, token_ids, excluded), -torch.inf)
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
    """Return the best text of each row, as `generate` does; the batch of the model is (row * beam)."""
    rows, prompt = input_ids.shape
    running = input_ids.repeat_interleave(beams, 0)
    mask = None if attention_mask is None else attention_mask.repeat_interleave(beams, 0)
    context = {
        name: map_states(lambda tensor: tensor.repeat_interleave(beams, 0), states) for name, states in context.items()
    }
    # At the start only the first beam can be continued, because all beams hold the same text.
    totals = torch.full((rows, beams), -torch.inf, device=input_ids.device)
    totals[:, 0] = 0.0
    finished: list[list[tuple[float, Tensor]]] = [[] for _ in range(rows)]
    open_rows = [True] * rows
    past = None
    for length in range(1, max_new_tokens + 1):
        scores, past = _next_scores(model, running, past, mask, context, use_cache)
        vocab = scores.shape[-1]
        sums = totals[..., None] + scores.log_softmax(-1).view(rows, beams, vocab)
        # Twice as many as beams, so that enough texts stay open even if the best token of every beam ends its text.
        best, indices = sums.flatten(1).topk(min(2 * beams, beams * vocab))
        parents = indices // vocab + beams * torch.arange(rows, device=indices.device)[:, None]
        candidates = torch.cat([running[parents.flatten()], (indices % vocab).view(-1, 1)], dim=1)
        candidates = candidates.view(rows, -1, prompt + length)
        ends = torch.full_like(indices, length == max_new_tokens, dtype=torch.bool)
        if eos_token_id is not None:
            ends |= indices % vocab == eos_token_id
        open_ranks = []
        open_totals = best.masked_fill(ends, -torch.inf)
        # One transfer from the device for each token: the sums of ended and of open texts, -inf at the others.
        ended_sums, open_sums = torch.stack([best.masked_fill(~ends, -torch.inf), open_totals]).tolist()
        for row in range(rows):
            if open_rows[row]:
                for rank in range(beams):
                    if ended_sums[row][rank] > -math.inf:
                        finished[row].append((ended_sums[row][rank] / length**length_penalty, candidates[row, rank]))
                finished[row] = sorted(finished[row], key=lambda scored: scored[0], reverse=True)[:beams]
            open_ranks.append(open_totals[row].topk(beams).indices)
            best_open = max(open_sums[row]) / length**length_penalty
            if len(finished[row]) == beams and best_open <= finished[row][-1][0]:
                open_rows[row] = False
        if length == max_new_tokens or not any(open_rows):
            break
        ranks = torch.stack(open_ranks)
        totals = open_totals.gather(1, ranks)
        running = torch.cat([candidates[row, ranks[row]] for row in range(rows)])
        if mask is not None:
            mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
        if past is not None:
            past = model._reorder_cache(past, parents.gather(1, ranks).flatten())
    texts = [scored_texts[0][1] for scored_texts in finished]
    result = input_ids.new_full((rows, max(len(text) for text in texts)), model.config.pad_token_id)
    for row, text in enumerate(texts):
        result[row, : len(text)] = text
    return result
