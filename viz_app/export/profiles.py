"""Profiles of heads, tokens and neurons as sentences, and as one HTML file that opens from disk without a script."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bert_core.studies.profiles import (
    TENTHS,
    GroupShare,
    HeadExample,
    HeadProfile,
    NeuronProfile,
    Profiles,
    TokenExample,
    TokenProfile,
)
from viz_app.export.markup import render, themed_style
from viz_app.figures.style import SEQUENTIAL, shade

Profile = HeadProfile | TokenProfile | NeuronProfile
MAX_BARS = 12
CONTEXT_CHARACTERS = 60  # characters of a sentence on either side of the marked tokens
MAX_GROUPS_NAMED = 3
QUESTION_TITLES = {
    **{"offset": "Relative position", "kind": "Kind of token", "sort": "Kind of token", "place": "Position"},
    **{"likeness": "Self-similarity", "relation": "Relation", "upos": "Part of speech"},
}
TYPICALITY_ENDS = ("least typical", "most typical")  # names of the first and last tenth of a token
ORDERED_QUESTIONS = ("offset", "place", "likeness")  # questions whose bars keep their order
GROUP_NAMES = {"punct": "punctuation", "PUNCT": "punctuation"}
GROUP_PREFIXES = {"sort": "", "place": "token number ", "upos": "the part of speech ", "relation": "the relation "}
BAR_NAMES = {
    **{"first": "[CLS]", "end": "[SEP]", "itself": "the token itself", "its word": "another token of its word"},
    **{"added": "[CLS] or [SEP]", "its governor": "the word it depends on"},
    **{"its dependent": "a word that depends on it", "not tied to it": "an unrelated word"},
}
READING = (
    "**How to read this:** for every corpus token, the bars show where the head's strongest attention goes. The line "
    "across each bar is the baseline, a random token of the same sentence. *Most active* is the 10% of tokens with the "
    "largest head output, because many heads attend to [CLS] or [SEP] by default. **How it can mislead:** the "
    "strongest key is not all of the attention. What a head attends to need not be what it does for the prediction; "
    "ablate it to test that. Another corpus gives another profile."
)
TOKEN_READING = (
    "**How to read this:** every occurrence of one token in the corpus; the line across each bar is the baseline, any "
    "token. *Self-similarity* is the mean cosine of the hidden states of two occurrences. Where the bar falls to the "
    "line, the token's state depends mostly on its context. **How it can mislead:** a rare sense among many uses of a "
    "common one looks like an outlier. Cosines are high for all tokens where hidden states share a direction. Another "
    "corpus gives another profile."
)
NEURON_READING = (
    "**How to read this:** the 10% of corpus tokens at which the neuron's activation is largest. The line across each "
    "bar is the baseline, any token. A selective neuron has one long bar; most have none. **How it can mislead:** the "
    "strongest tokens suggest a meaning that the other nine tenths do not have. What a neuron responds to need not be "
    "what it does for the prediction. Another corpus gives another profile."
)


def token_in_words(profile: TokenProfile) -> str:
    """Describe how frequent the token is, and at which depth its states are least similar, compared with chance."""
    depth, cosine, chance = min(profile.likeness, key=lambda entry: entry[1] - entry[2])
    return (
        f"It occurs {profile.times:,} times in {profile.tokens:,} tokens ({profile.times / profile.tokens:.2%}). "
        f"Its hidden states are most context-dependent {depth_name(depth)}: mean cosine {cosine:.2f}, against "
        f"{chance:.2f} for random pairs of tokens."
    )


def depth_name(depth: int) -> str:
    """Return where the hidden states of a depth are taken: at the embeddings (0), or after a layer."""
    return "at the embeddings" if not depth else f"after layer {depth - 1}"


def likeness_bars(profile: TokenProfile) -> tuple[GroupShare, ...]:
    """Return the mean cosine of two states of the token at every depth, with that of any two tokens as `chance`."""
    return tuple(
        GroupShare("embeddings" if not depth else f"layer {depth - 1}", cosine, chance)
        for depth, cosine, chance in profile.likeness
    )


def neuron_name(layer: int, neuron: int) -> str:
    """Return the name of a neuron."""
    return f"L{layer} neuron {neuron}"


def profile_name(profile: Profile) -> str:
    """Return the name of a head, the text of a token, or the name of a neuron."""
    if isinstance(profile, TokenProfile):
        return profile.piece
    return _place_name(profile, profile.layer, profile.head if isinstance(profile, HeadProfile) else profile.neuron)


def similar_profiles(profile: Profile) -> list[tuple[str, float]]:
    """Return the names of the most similar profiles with their similarity, most similar first."""
    if isinstance(profile, TokenProfile):
        return list(profile.alike)
    return [(_place_name(profile, layer, number), value) for layer, number, value in profile.alike]


def _place_name(profile: Profile, layer: int, number: int) -> str:
    return f"L{layer} H{number}" if isinstance(profile, HeadProfile) else neuron_name(layer, number)


def neuron_in_words(profile: NeuronProfile) -> str:
    """Describe how often the neuron is active, and which groups of tokens are frequent where it is most active."""
    summary = (
        f"Its activation is above 0 at {profile.active:.0%} of {profile.tokens:,} tokens (mean {profile.mean:z.2f}, "
        f"standard deviation {profile.spread:.2f}; mean at [CLS] and [SEP] {profile.added_mean:z.2f})."
    ).replace("-", "−")
    groups = _describe_groups(
        (GROUP_NAMES.get(bar.name, f"{GROUP_PREFIXES[question]}{bar.name}"), bar)
        for question, bar in profile.distinctive_groups
    )
    if not groups:
        return f"{summary} No group of tokens is far above the baseline where its activation is largest."
    return f"{summary} Where its activation is largest, more frequent than the baseline: {', '.join(groups)}."


def in_words(profile: HeadProfile) -> str:
    """Describe how often the head attends to [CLS] or [SEP], and its most distinctive keys where it is most active."""
    summary = (
        f"For {profile.sink_share:.0%} of {profile.tokens:,} tokens the strongest attention goes to [CLS] or [SEP]."
    )
    groups = _describe_groups(
        (_key_group_name(question, bar.name), bar) for question, bar in profile.distinctive_groups if question != "upos"
    )
    if not groups:
        return f"{summary} Where the head is most active, no group of keys is far above the baseline."
    return f"{summary} Where the head is most active, it attends to {', to '.join(groups)}."


def figures_in_words(profiles: Profiles, profile: HeadProfile) -> str:
    """Describe the entropy of the head's attention and the cost of its removal; empty if they were not measured."""
    figures, sentences = profile.figures, []
    if "entropy" in figures:
        keys = math.exp(figures["entropy"])
        sentences.append(
            f"Attention entropy: {figures['entropy']:.2f} nats (as if spread evenly over {keys:.1f} tokens)."
        )
    if "cls" in figures and "sep" in figures:
        sentences.append(f"{figures['cls']:.0%} of its attention goes to [CLS], {figures['sep']:.0%} to [SEP].")
    if "loss_change" in figures:
        change, error = figures["loss_change"], figures.get("loss_change_error", 0.0)
        verb = "rises" if change > 0 else "falls"
        unsure = ", not significant" if abs(change) <= 2 * error else ""
        sentences.append(f"Without it the loss {verb} by {abs(change):.4f} nats (standard error {error:.4f}){unsure}.")
    elif "importance" in figures:
        sentences.append(
            f"Mean absolute gradient of the loss with respect to this head: {figures['importance']:.4f} nats."
        )
    return f"{' '.join(sentences)} Measured over {profiles.measured}." if sentences else ""


def _describe_groups(groups: Iterable[tuple[str, GroupShare]]) -> list[str]:
    """Describe the first groups with their shares; of groups with the same name, only the first."""
    texts: dict[str, str] = {}
    for name, bar in groups:
        texts.setdefault(name, f"{name} ({bar.share:.0%}, chance {bar.chance:.0%})")
    return list(texts.values())[:MAX_GROUPS_NAMED]


def _key_group_name(question: str, name: str) -> str:
    """Return the name of a group of keys; that of an offset such as "-2" states the distance."""
    if question != "offset" or name in BAR_NAMES:
        return BAR_NAMES.get(name, name)
    offset = int(name.strip("<>"))
    if not offset:
        return "the token itself"
    if abs(offset) == 1:
        return "the previous token" if offset < 0 else "the next token"
    return f"the token {abs(offset)} positions {'before' if offset < 0 else 'after'} it"


def largest(bars: Sequence[GroupShare], question: str) -> list[GroupShare]:
    """Return the largest bars in descending order, or all as they are if those of the question have an own order."""
    return list(bars) if question in ORDERED_QUESTIONS else sorted(bars, key=lambda bar: -bar.share)[:MAX_BARS]


def example_parts(example: HeadExample | TokenExample) -> list[tuple[str, str]]:
    """Return the sentence around an example in parts, each "query", "key", "both" or "" (neither)."""
    query, key = (example.at, None) if isinstance(example, TokenExample) else (example.query, example.key)
    spans = [query] if key in (None, query) else sorted([query, key])
    start, end = max(spans[0][0] - CONTEXT_CHARACTERS, 0), min(spans[-1][1] + CONTEXT_CHARACTERS, len(example.text))
    if start:  # at the first whole word
        start = max(start, example.text.find(" ", start - 1, spans[0][0]) + 1)
    if end < len(example.text):  # after the last whole word
        end = max(example.text.rfind(" ", spans[-1][1], end + 1), 0) or end
    parts, last = [("" if not start else "…", "")], start
    for span in spans:
        kind = "both" if span == query == key else "query" if span == query else "key"
        parts += [(example.text[last : span[0]], ""), (example.text[slice(*span)], kind)]
        last = span[1]
    return [*parts, (example.text[last:end], ""), ("" if end == len(example.text) else "…", "")]


def mark_example(example: HeadExample | TokenExample) -> str:
    """Return the sentence around an example, with the ‹query› and the «key» marked; ‹«both»› if they are the same."""
    marks = {"": "{}", "query": "‹{}›", "key": "«{}»", "both": "‹«{}»›"}
    return "".join(marks[kind].format(text) for text, kind in example_parts(example))


def coloured_sentences(examples: Sequence[HeadExample | TokenExample], values: Sequence[tuple[str, float]]) -> str:
    """Return HTML of sentences with a frame around the query token, and the key on a colour that shows a value.

    values: (example,), the number that is written in front, and the share of the colour scale, 0 to 1. A token without
    a key is coloured itself; [CLS] and [SEP] are behind an arrow.
    """
    rows = []
    for example, (text, share) in zip(examples, values, strict=True):
        parts = example_parts(example)
        if isinstance(example, TokenExample):
            parts = [(part, kind and "key") for part, kind in parts]
        elif example.key is None:
            parts += [(" → ", ""), (example.piece, "key")]
        rows.append((text, shade(share, signed=False), parts, example.line))
    return render("export/sentences.html", rows=rows)


def mark_guess(example: HeadExample) -> str:
    """Return a marked example for guessing, with [CLS] or [SEP] after an arrow if the head attends to it."""
    return mark_example(example) if example.key is not None else f"{mark_example(example)} → {example.piece}"


def tenth_names(first: str = "weakest", last: str = "strongest") -> list[str]:
    """Return the names of the tenths, in ascending order of their values."""
    return [first, *map(str, range(2, TENTHS)), last]


def file_name(profiles: Profiles, profile: Profile) -> str:
    """Return the file name of a profile without its ending; tokens are numbered, as a piece may hold any character."""
    if isinstance(profile, HeadProfile):
        return f"profile.L{profile.layer}.H{profile.head}"
    if isinstance(profile, NeuronProfile):
        return f"profile.L{profile.layer}.N{profile.neuron}"
    return f"profile.token.{[token.piece for token in profiles.tokens].index(profile.piece)}"


@dataclass(frozen=True)
class ProfileKind:
    """What the page and the file state about each profile of a kind.

    reading: how to read it. summary: returns its sentences. words: the fields with tables of words, by their titles.
    sentences: title of the examples. ends: names of the first and the last tenth.
    """

    reading: str
    summary: Callable[[Profiles, Any], str]
    words: Mapping[str, str]
    sentences: str
    ends: tuple[str, str] = ("weakest", "strongest")


PROFILE_KINDS: dict[type[Profile], ProfileKind] = {
    HeadProfile: ProfileKind(
        READING,
        lambda profiles, profile: f"{in_words(profile)} {figures_in_words(profiles, profile)}".strip(),
        {"Attended words": "words", "Word pairs": "pairs"},
        "Sentences, by tenths of the head output norm",
    ),
    TokenProfile: ProfileKind(
        TOKEN_READING,
        lambda profiles, profile: token_in_words(profile),
        {"Previous words": "before", "Next words": "after"},
        "Sentences, by tenths of typicality",
        TYPICALITY_ENDS,
    ),
    NeuronProfile: ProfileKind(
        NEURON_READING,
        lambda profiles, profile: neuron_in_words(profile),
        {"Activating words": "words", "Words before them": "before"},
        "Sentences, by tenths of the activation",
    ),
}


def profile_title(profile: Profile) -> str:
    """Return the name of a profile as a heading: a token in quotation marks."""
    return f"“{profile.piece}”" if isinstance(profile, TokenProfile) else profile_name(profile)


def profile_page(profiles: Profiles, profile: Profile) -> str:
    """Return the HTML page of one profile: all that the page Profiles shows of it, without a script.

    The highest tenth of a head or a neuron comes first; the lowest tenth of a token.
    """
    kind = PROFILE_KINDS[type(profile)]
    names, ends = tenth_names(*kind.ends), profile.deciles
    order = range(TENTHS) if isinstance(profile, TokenProfile) else reversed(range(TENTHS))
    return render(
        "export/profiles.html",
        profiles=profiles,
        profile=profile,
        kind=kind,
        name=profile_title(profile),
        style=themed_style("export/profiles.css", lambda is_dark: f"--bar: {SEQUENTIAL[is_dark][7]};"),
        charts=_charts(profile),
        depth_name=depth_name,
        similar=similar_profiles(profile),
        tenths=[(names[n], ends[n : n + 2], profile.examples_of_tenth(n)) for n in order],
        question_titles=QUESTION_TITLES,
        bar_names=BAR_NAMES,
        mark_example=mark_example,
    )


def _charts(profile: Profile) -> dict[str, dict[str, list[GroupShare]]]:
    """Return the largest bars of every question, by the names of the tokens that they are of."""
    sides = {"": profile.bars}
    if isinstance(profile, HeadProfile):
        sides = {"where it is most active": profile.active, "of all tokens": profile.bars}
    elif isinstance(profile, TokenProfile):
        sides = {"": {"likeness": likeness_bars(profile), **profile.bars}}
    return {
        question: {side: largest(bars[question], question) for side, bars in sides.items()}
        for question in next(iter(sides.values()))
    }
