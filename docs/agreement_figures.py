"""What moves a verb's number in the bundled model: patches between sentences of bert-agreement, and heads taken away.

`model_docs.py` writes them into results/agreement.md. A step that is done is kept in the folder that is given,
so a run that was stopped goes on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from bert_core import AttentionKnockout, Encoding, LoadedModel, edited, head_mask_without
from bert_core.agreement import FRAME_COUNTS, Agreement, sentences
from bert_core.run.costs import score
from bert_core.run.inputs import layer_gates
from bert_core.run.losses import masked_examples
from bert_core.run.stack import Trace, encoder_layers, run_layers, trace

ROLES = ("subject", "attractor", "between", "mask", "rest")
STUDIED = {"attractor": ("phrase", "clause"), "subject": ("adverb", "phrase", "clause")}
GROUPS = ("no attractor", "same number", "other number")
PAIRS, TESTED, PARAGRAPHS = 100, 60, 16  # of each construction; frames of each construction; of text
SHOWN, DRAWS, RESAMPLED, SEED = 6, 10, 2000, 0
RATHER = "attractor rather than subject"
REMOVED = (("attractor", 3), ("attractor", 6), (RATHER, 3), ("subject", 3))  # the strongest heads for a noun's number

Head = tuple[int, int]
Found = dict[str, np.ndarray]


class Pair(NamedTuple):
    """Two sentences that differ in the number of one noun: the one that is read, and where the patches come from."""

    read: Agreement
    source: Agreement


# ---------------------------------------------------------------------------- sentences


def frames_of(structure: str) -> list[list[Agreement]]:
    """The sentences of each frame of a construction, in an order drawn once.

    The first are for patches, the last for removal, so that no head is chosen by the sentences that it is tested on.
    """
    frames: dict[int, list[Agreement]] = {}
    for item in sentences():
        if item.structure == structure:
            frames.setdefault(item.frame, []).append(item)
    order = np.random.default_rng(SEED).permutation(len(frames))
    return [list(frames.values())[number] for number in order]


def pairs_of(noun: str, structure: str, count: int) -> list[Pair]:
    """One pair of each of the first frames; the other noun's number, and which of the two is read, take turns."""
    pairs = []
    for number, frame in enumerate(frames_of(structure)[:count]):
        other = "subject" if noun == "attractor" else "attractor"
        number_of_other = ("singular", "plural")[number % 2] if getattr(frame[0], other) else ""
        one, two = (item for item in frame if getattr(item, other) == number_of_other)
        pairs.append(Pair(two, one) if number // 2 % 2 else Pair(one, two))
    return pairs


def roles_of(encoding: Encoding, item: Agreement) -> dict[str, list[int]]:
    """The positions of each role.

    The subject is the second word, an attractor the one after the second `the`; between stands what else is before the
    gap.
    """
    gap, subject = encoding.mask_positions[0], 2
    attractor = [encoding.tokens.index("the", subject) + 1] if item.attractor else []
    between = [place for place in range(subject + 1, gap) if place not in attractor]
    known = {subject, *attractor, *between, gap}
    rest = [place for place in range(len(encoding)) if place not in known]
    return {"subject": [subject], "attractor": attractor, "between": between, "mask": [gap], "rest": rest}


# ---------------------------------------------------------------------------- passes


def _read(loaded: LoadedModel, items: Sequence[Agreement], gates: Tensor | None = None) -> Trace:
    """Sentences of one length in one pass, with the last layer at their gaps."""
    encodings = [loaded.tokenizer.encode(item.text) for item in items]
    ids = torch.tensor([one.input_ids for one in encodings], device=loaded.device)
    gaps = torch.tensor([one.mask_positions for one in encodings], device=loaded.device)
    states = loaded.model.bert.embeddings(ids)
    return trace(encoder_layers(loaded), states, gates=gates, positions=gaps, keep=("context",))


def _plural(loaded: LoadedModel, items: Sequence[Agreement], leaving: Tensor) -> np.ndarray:
    """How far the plural verb is before the singular one at each gap, in nats, (item,). leaving: (item, 1, hidden)."""
    head, id_of = loaded.model.cls.predictions, loaded.tokenizer.id_of
    verbs = [(one.right, one.wrong) if one.subject == "plural" else (one.wrong, one.right) for one in items]
    words = torch.tensor([[id_of(plural), id_of(singular)] for plural, singular in verbs], device=leaving.device)
    logits = (head.transform(leaving[:, 0])[:, None] * head.decoder.weight[words]).sum(-1) + head.decoder.bias[words]
    return (logits[:, 0] - logits[:, 1]).double().cpu().numpy()


def alike(loaded: LoadedModel, items: Sequence[Agreement]) -> list[list[int]]:
    """The numbers of those sentences that have their nouns and their gap at the same places and are of one length."""
    groups: dict[tuple[str, int], list[int]] = {}
    for number, item in enumerate(items):
        groups.setdefault((item.structure, len(loaded.tokenizer.encode(item.text))), []).append(number)
    return list(groups.values())


def patched(loaded: LoadedModel, pairs: Sequence[Pair]) -> Found:
    """How far each patch moves the answer towards the source's number, in nats, for pairs of one construction.

    state: (depth, role, pair). attention: (layer, role, pair). head: (layer, head, pair), at the gap alone.
    whole: (pair,), the difference of the two sentences.
    """
    groups = alike(loaded, [pair.read for pair in pairs])
    each = [_patched(loaded, [pairs[number] for number in group]) for group in groups]
    order = np.argsort(np.concatenate(groups))
    return {name: np.concatenate([found[name] for found in each], axis=-1)[..., order] for name in each[0]}


@torch.no_grad()
def _patched(loaded: LoadedModel, pairs: Sequence[Pair]) -> Found:
    """Those whose sentences are alike."""
    layers = encoder_layers(loaded)
    read, source = ([pair[side] for pair in pairs] for side in (0, 1))
    encoding = loaded.tokenizer.encode(read[0].text)
    roles, gap = roles_of(encoding, read[0]), encoding.mask_positions[0]
    own, other = _read(loaded, read), _read(loaded, source)
    base, theirs = (_plural(loaded, read, traced.last) for traced in (own, other))
    noun = "attractor" if read[0].attractor != source[0].attractor else "subject"
    sign = np.array([1 if getattr(item, noun) == "plural" else -1 for item in source])

    def moved(states: Tensor, done: int) -> np.ndarray:
        """states: (pair, seq, hidden), with so many layers done."""
        if done < len(layers):  # what leaves the last layer is there at the gap alone
            states = run_layers(layers, states, done, positions=torch.tensor([[gap]], device=states.device))
        return sign * (_plural(loaded, read, states) - base)

    def carried(what: str, number: int, places: Sequence[int], part: slice = slice(None)) -> Tensor:
        mixed: Tensor = getattr(own.layers[number], what).clone()
        mixed[:, places, part] = getattr(other.layers[number], what)[:, places, part]
        return mixed

    def attended(number: int, places: Sequence[int], part: slice = slice(None)) -> np.ndarray:
        attention, states = layers[number].attention, own.layers[number].input_states
        context = carried("merged_context", number, places, part)
        if number == len(layers) - 1:
            context, states = context[:, gap : gap + 1], states[:, gap : gap + 1]
        normed = attention.output.LayerNorm(states + attention.output.dense(context))
        return moved(layers[number].feed_forward_chunk(normed), number + 1)

    count, size = loaded.config.num_attention_heads, layers[0].attention.self.attention_head_size
    nothing = np.zeros(len(pairs))
    found: dict[str, list[list[np.ndarray]]] = {"state": [], "attention": [], "head": []}
    for number in range(len(layers)):
        # Of the embeddings only the noun differs, and above the last layer only the gap is read.
        found["state"].append([
            moved(carried("input_states", number, places), number) if places and (number or role == noun) else nothing
            for role, places in roles.items()
        ])  # fmt: skip
        found["attention"].append([
            attended(number, places) if places and (number < len(layers) - 1 or role == "mask") else nothing
            for role, places in roles.items()
        ])  # fmt: skip
        found["head"].append([
            attended(number, [gap], slice(head * size, (head + 1) * size)) for head in range(count)
        ])  # fmt: skip
    whole = sign * (theirs - base)
    found["state"].append([whole if role == "mask" else nothing for role in roles])
    return {**{name: np.array(rows) for name, rows in found.items()}, "whole": whole}


def shares(found: np.ndarray, whole: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The mean of what patches move as a share of the mean difference, and the 95 % of bootstrapped pairs around it.

    found: (..., pair). A ratio of means: a pair whose two sentences have nearly one answer has no share of its own.
    """
    drawn = np.random.default_rng(SEED).integers(len(whole), size=(RESAMPLED, len(whole)))
    weights = np.zeros((RESAMPLED, len(whole)))
    np.add.at(weights, (np.arange(RESAMPLED)[:, None], drawn), 1)
    again = (found @ weights.T) / (weights @ whole)
    low, high = np.quantile(again, (0.025, 0.975), axis=-1)
    return found.mean(-1) / whole.mean(), low, high


# ---------------------------------------------------------------------------- removal


def tested_frames(count: int) -> list[Agreement]:
    """The sentences of the last frames of every construction."""
    return [item for structure in FRAME_COUNTS for frame in frames_of(structure)[-count:] for item in frame]


def group_of(item: Agreement) -> str:
    """One of `GROUPS`."""
    return GROUPS[0] if not item.attractor else GROUPS[1 if item.attractor == item.subject else 2]


@torch.no_grad()
def right_of(loaded: LoadedModel, items: Sequence[Agreement], heads: Sequence[Head] = ()) -> dict[str, float]:
    """The share of each group whose right verb is before the other, with some heads off."""
    gates = layer_gates(loaded, head_mask_without(loaded.config, heads))
    right: dict[str, list[bool]] = {}
    for group in alike(loaded, items):
        some = [items[number] for number in group]
        ahead = _plural(loaded, some, _read(loaded, some, gates).last)
        for item, value in zip(some, ahead, strict=True):
            right.setdefault(group_of(item), []).append(bool(value > 0) == (item.subject == "plural"))
    return {group: float(np.mean(answers)) for group, answers in right.items()}


def right_unseen(
    loaded: LoadedModel, items: Sequence[Agreement], heads: Sequence[Head] | None = None
) -> dict[str, float]:
    """As `right_of`, where the gap does not see the attractor: in any head, or in these."""
    right: dict[str, list[float]] = {}
    for structure in STUDIED["attractor"]:
        some = [item for item in items if item.structure == structure]
        roles = roles_of(loaded.tokenizer.encode(some[0].text), some[0])
        arrow = (tuple(roles["mask"]), tuple(roles["attractor"]))
        cuts = (
            [AttentionKnockout(*arrow)]
            if heads is None
            else [AttentionKnockout(*arrow, (layer,), (head,)) for layer, head in heads]
        )
        for group, share in right_of(edited(loaded, cuts), some).items():
            right.setdefault(group, []).append(share)
    return {group: float(np.mean(of_each)) for group, of_each in right.items()}


def strongest(effects: np.ndarray, count: int) -> list[Head]:
    """The heads, (layer, head), that move the answer furthest towards the source's."""
    order = np.argsort(-effects, axis=None, kind="stable")[:count]
    return [(int(number) // effects.shape[1], int(number) % effects.shape[1]) for number in order]


def others_of(heads: Sequence[Head], count: int, rng: np.random.Generator) -> list[Head]:
    """As many heads of the same layers, drawn among those that are not these."""
    drawn: list[Head] = []
    for layer in sorted({layer for layer, _ in heads}):
        taken = {head for of_layer, head in heads if of_layer == layer}
        free = [head for head in range(count) if head not in taken]
        drawn += [(layer, int(head)) for head in rng.choice(free, min(len(taken), len(free)), replace=False)]
    return drawn


# ---------------------------------------------------------------------------- the study, step by step


class Study:
    """A folder of what was found in one model."""

    def __init__(
        self, loaded: LoadedModel, folder: Path, paragraphs: Sequence[str], *, pairs: int = PAIRS, tested: int = TESTED,
        draws: int = DRAWS,
    ) -> None:  # fmt: skip
        self.loaded, self.folder, self.paragraphs = loaded, folder, paragraphs
        self.pairs, self.tested, self.draws = pairs, tested, draws
        folder.mkdir(parents=True, exist_ok=True)

    def patches(self, noun: str, structure: str) -> Found:
        path = self.folder / f"patches-{noun}-{structure}-{self.pairs}.npz"
        if not path.is_file():
            print("patches", noun, structure, flush=True)
            found = patched(self.loaded, pairs_of(noun, structure, self.pairs))
            part = path.with_suffix(".part.npz")
            np.savez(part, **found)
            part.replace(path)
        with np.load(path) as file:
            return dict(file)

    def effects(self, noun: str) -> np.ndarray:
        """The mean share of each head, (layer, head), over the constructions."""
        each = [self.patches(noun, structure) for structure in STUDIED[noun]]
        return np.mean([shares(found["head"], found["whole"])[0] for found in each], axis=0)

    def sets(self) -> Iterator[tuple[str, list[Head]]]:
        """What is switched off: nothing, the strongest heads of either noun, and random heads of the same layers."""
        yield "none", []
        for noun, count in REMOVED:
            effects = self.effects("attractor") - self.effects("subject") if noun == RATHER else self.effects(noun)
            heads, rng = strongest(effects, count), np.random.default_rng([SEED, count])
            yield f"{noun} {count}", heads
            for draw in range(self.draws):
                yield f"{noun} {count} random {draw}", others_of(heads, self.loaded.config.num_attention_heads, rng)

    def removals(self) -> dict[str, dict[str, Any]]:
        """What is right with each set of heads off, and the masked-token loss of plain text (few draws)."""
        path = self.folder / f"removals-{self.pairs}-{self.tested}-{self.draws}.json"
        done = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        items, batches = tested_frames(self.tested), None
        for name, heads in self.sets():
            if name in done:
                continue
            print("off:", name, heads, flush=True)
            row: dict[str, Any] = {"heads": heads, **right_of(self.loaded, items, heads)}
            if "random" not in name or name.startswith("attractor 6"):
                batches = batches or [one for text in self.paragraphs for one in _examples(self.loaded, text)]
                row["loss"] = score(self.loaded, batches, head_mask=head_mask_without(self.loaded.config, heads)).loss
            done[name] = row
            _keep(path, done)
        unseen_in: dict[str, list[Head] | None] = {"unseen": None, "unseen 6": strongest(self.effects("attractor"), 6)}
        for name, chosen in unseen_in.items():
            if name not in done:
                print("cut:", name, flush=True)
                done[name] = {"heads": chosen, **right_unseen(self.loaded, items, chosen)}
                _keep(path, done)
        return done


def _examples(loaded: LoadedModel, text: str) -> list[Any]:
    """Hidden pieces of the first words of a paragraph."""
    return list(masked_examples(loaded, loaded.tokenizer.encode(" ".join(text.split()[:40]))))


def _keep(path: Path, done: Mapping[str, Any]) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(done), encoding="utf-8")
    part.replace(path)


# ---------------------------------------------------------------------------- tables


def place_table(study: Study, noun: str, what: str) -> str:
    """States by depth and role, or what attention adds by layer and role, with the number of one noun patched."""
    lines = []
    for structure in STUDIED[noun]:
        found = study.patches(noun, structure)
        mean, low, high = shares(found[what], found["whole"])
        whole, least, most = (float(x) for x in shares(found["whole"], np.ones(study.pairs)))
        roles = [n for n, role in enumerate(ROLES) if structure != "adverb" or role != "attractor"]
        lines += [
            f"{structure}, {study.pairs} pairs, difference {whole:.2f} nats ({least:.2f} to {most:.2f}):\n",
            f"| {'depth' if what == 'state' else 'layer'} | " + " | ".join(ROLES[n] for n in roles) + " |",
            "| ---: |" + " ---: |" * len(roles),
            *(
                f"| {number} | "
                + " | ".join(_share(mean[number, n], low[number, n], high[number, n]) for n in roles) + " |"
                for number in range(len(mean))
            ),
            "",
        ]  # fmt: skip
    return "\n".join(lines)


def _share(mean: float, low: float, high: float) -> str:
    if mean == low == high:
        return f"{abs(mean):.0%}"
    return f"{mean:.0%} ({low:.0%} to {high:.0%})".replace("-0%", "0%")


def head_table(study: Study, noun: str) -> str:
    """The strongest heads at the gap, beside all others of their layers."""
    effects, structures, other = study.effects(noun), STUDIED[noun], next(one for one in STUDIED if one != noun)
    for_other = study.effects(other)
    lines = [
        f"| head | mean | {' | '.join(structures)} | others of its layer: mean | their range | {other}'s number |",
        "| --- | ---: |" + " ---: |" * (len(structures) + 3),
    ]
    each = [shares(found["head"], found["whole"]) for found in (study.patches(noun, one) for one in structures)]
    for layer, head in strongest(effects, SHOWN):
        others = np.delete(effects[layer], head)
        cells = [
            f"L{layer} H{head}", f"**{effects[layer, head]:.1%}**",
            *(f"{m[layer, head]:.1%} ({a[layer, head]:.1%} to {b[layer, head]:.1%})" for m, a, b in each),
            f"{others.mean():.1%}", f"{others.min():.1%} to {others.max():.1%}", f"{for_other[layer, head]:.1%}",
        ]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def removal_table(study: Study) -> str:
    """What is right with heads off, beside as many random heads of the same layers; mean, lowest to highest."""
    done = study.removals()
    items = tested_frames(study.tested)
    asked = [sum(group_of(item) == group for item in items) for group in GROUPS]
    lines = [
        "| heads off | "
        + " | ".join(f"{g} ({n})" for g, n in zip(GROUPS, asked, strict=True))
        + " | masked-token loss |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]

    def row(name: str, rows: Sequence[Mapping[str, Any]]) -> str:
        cells = []
        for group in (*GROUPS, "loss"):
            values = [one[group] for one in rows if group in one]
            write: Callable[[float], str] = "{:.3f}".format if group == "loss" else "{:.1%}".format
            several = f" ({write(min(values))} to {write(max(values))})" if len(values) > 1 else ""
            cells.append(write(float(np.mean(values))) + several if values else "")
        return f"| {name} | {' | '.join(cells)} |"

    lines.append(row("none", [done["none"]]))
    for noun, count in REMOVED:
        name = f"{noun} {count}"
        which = ", ".join(f"L{layer} H{head}" for layer, head in done[name]["heads"])
        lines.append(row(f"{noun}, the {count} strongest: {which}", [done[name]]))
        random = [one for key, one in done.items() if key.startswith(f"{name} random")]
        lines.append(row(f"{count} random heads of the same layers, {len(random)} draws", random))
    lines.append(row("attention from the mask to the attractor blocked, in all heads", [done["unseen"]]))
    lines.append(row("the same in the 6 strongest heads for the attractor", [done["unseen 6"]]))
    return "\n".join(lines)
