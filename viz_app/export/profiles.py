"""Profiles of heads, tokens and neurons as sentences, and as one HTML file that opens from disk without a script."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    WordCount,
)
from viz_app.export.page import fill_template, themed_style
from viz_app.export.policy import hash_source
from viz_app.figures.style import SEQUENTIAL

Profile = HeadProfile | TokenProfile | NeuronProfile
MAX_BARS = 12
CONTEXT_CHARACTERS = 60  # characters of a sentence on either side of the marked tokens
MAX_GROUPS_NAMED = 3
QUESTION_TITLES = {
    **{"offset": "How far on", "kind": "What kind of token", "sort": "What kind of token", "place": "Place"},
    **{"likeness": "Likeness by depth", "relation": "Relation", "upos": "Part of speech"},
}
TYPICALITY_ENDS = ("least usual", "most usual")  # names of the first and last tenth of a token
ORDERED_QUESTIONS = ("offset", "place", "likeness")  # questions whose bars keep their order
GROUP_NAMES = {"punct": "punctuation", "PUNCT": "punctuation"}
GROUP_PREFIXES = {"sort": "", "place": "token number ", "upos": "the part of speech ", "relation": "the relation "}
BAR_NAMES = {
    **{"first": "[CLS]", "end": "[SEP]", "itself": "the token itself", "its word": "another piece of its word"},
    **{"added": "[CLS] or [SEP]", "its governor": "the word it depends on"},
    **{"its dependent": "a word that depends on it", "not tied to it": "a word not tied to it"},
}
READING = (
    "**How to read this:** of every token of the corpus, the one that the head attends to most; a line across each bar "
    "is where a token drawn from the same sentence would end. Many heads rest on [CLS] or [SEP] wherever they have "
    "nothing to do, so *most active* counts only the tenth of the tokens to which the head brings most. "
    "**How it can mislead:** the strongest key is not all of the attention; what a head looks at need not be what it "
    "is for, which only its removal says; and another corpus gives another profile."
)
TOKEN_READING = (
    "**How to read this:** one piece of the vocabulary, everywhere it stands in the corpus. A bar is its share, a line "
    "across it that of all tokens. *Likeness* is the mean cosine of two of its states, and the line that of any two "
    "tokens: where it falls towards the line, the token is what its sentence makes of it. The tenths go from the uses "
    "whose state is least like the others' to the most usual ones. "
    "**How it can mislead:** a rare meaning among many uses of a common one looks like an outlier, not like a meaning; "
    "cosines are high for all tokens where states share a direction; and another corpus gives another profile."
)
NEURON_READING = (
    "**How to read this:** the tenth of all tokens at which the neuron fires most. A bar is their share, a line across "
    "it that of all tokens. A neuron that fires at one thing has one long bar; most have none. "
    "**How it can mislead:** the strongest tokens look like a meaning that the other nine tenths do not have; what a "
    "neuron fires at need not be what it is for; and another corpus gives another profile."
)


def token_in_words(profile: TokenProfile) -> str:
    """Describe how frequent the token is, and at which depth its states are least similar, compared with chance."""
    depth, cosine, chance = min(profile.likeness, key=lambda entry: entry[1] - entry[2])
    return (
        f"It stands {profile.times:,} times among {profile.tokens:,} tokens ({profile.times / profile.tokens:.2%}). "
        f"Beside those of any two tokens its states are least alike {depth_name(depth)}: the mean cosine of two is "
        f"{cosine:.2f}, of any two tokens {chance:.2f}."
    )


def depth_name(depth: int) -> str:
    """Return where the states of a depth are taken: behind the embeddings (0), or behind a layer."""
    return "behind the embeddings" if not depth else f"behind layer {depth - 1}"


def likeness_bars(profile: TokenProfile) -> tuple[GroupShare, ...]:
    """Return the mean cosine of two states of the token at every depth, with that of any two tokens as `chance`."""
    return tuple(
        GroupShare("embeddings" if not depth else f"layer {depth - 1}", cosine, chance)
        for depth, cosine, chance in profile.likeness
    )


def neuron_name(layer: int, neuron: int) -> str:
    """Return the name of a neuron."""
    return f"L{layer} neuron {neuron}"


def neuron_in_words(profile: NeuronProfile) -> str:
    """Describe how often the neuron is active, and which groups of tokens are frequent where it is most active."""
    summary = (
        f"Its activation is above 0 at {profile.active:.0%} of {profile.tokens:,} tokens, with a mean of "
        f"{profile.mean:z.2f} (spread {profile.spread:.2f}); at [CLS] and [SEP] the mean is {profile.added_mean:z.2f}."
    )
    groups = _describe_groups(
        (GROUP_NAMES.get(bar.name, f"{GROUP_PREFIXES[question]}{bar.name}"), bar)
        for question, bar in profile.distinctive_groups
    )
    if not groups:
        return f"{summary} Where it fires most, nothing is far above chance."
    return f"{summary} Where it fires most there is more than chance gives of {', '.join(groups)}."


def in_words(profile: HeadProfile) -> str:
    """Describe how often the head attends to [CLS] or [SEP], and its most distinctive keys where it is most active."""
    summary = f"From {profile.sink_share:.0%} of {profile.tokens:,} tokens it looks most at [CLS] or [SEP]."
    groups = _describe_groups(
        (_key_group_name(question, bar.name), bar) for question, bar in profile.distinctive_groups if question != "upos"
    )
    if not groups:
        return f"{summary} Where it is most active, nothing it looks at is far above chance."
    return f"{summary} Where it is most active it looks at {', and at '.join(groups)}."


def figures_in_words(profiles: Profiles, profile: HeadProfile) -> str:
    """Describe the entropy of the head's attention and the cost of its removal; empty if they were not measured."""
    figures, sentences = profile.figures, []
    if "entropy" in figures:
        keys = math.exp(figures["entropy"])
        sentences.append(f"Entropy of its attention: {figures['entropy']:.2f} nats, as of {keys:.1f} tokens alike.")
    if "cls" in figures and "sep" in figures:
        sentences.append(f"{figures['cls']:.0%} of its attention goes to [CLS], {figures['sep']:.0%} to [SEP].")
    if "loss_change" in figures:
        change, error = figures["loss_change"], figures.get("loss_change_error", 0.0)
        verb = "rises" if change > 0 else "falls"
        unsure = ", which may be by chance" if abs(change) <= 2 * error else ""
        sentences.append(f"Without it the loss {verb} by {abs(change):.4f} nats (standard error {error:.4f}){unsure}.")
    elif "importance" in figures:
        sentences.append(f"The loss has a slope of {figures['importance']:.4f} nats with it (mean size).")
    return f"{' '.join(sentences)} Measured over {profiles.measured}." if sentences else ""


def _describe_groups(groups: Iterable[tuple[str, GroupShare]]) -> list[str]:
    """Describe the first groups with their shares; of groups with the same name, only the first."""
    texts: dict[str, str] = {}
    for name, bar in groups:
        texts.setdefault(name, f"{name} ({bar.share:.0%}; by chance {bar.chance:.0%})")
    return list(texts.values())[:MAX_GROUPS_NAMED]


def _key_group_name(question: str, name: str) -> str:
    """Return the name of a group of keys; that of an offset such as "-2" states the distance."""
    if question != "offset" or name in BAR_NAMES:
        return BAR_NAMES.get(name, name)
    offset = int(name.strip("<>"))
    if not offset:
        return "the token itself"
    tokens = f"{abs(offset)} token{'s' if abs(offset) > 1 else ''}"
    return f"what stands {tokens} {'before' if offset < 0 else 'after'} it"


def largest(bars: Sequence[GroupShare], *, in_order: bool) -> list[GroupShare]:
    """Return the largest bars in descending order, or all of them as they are if they have an order of their own."""
    return list(bars) if in_order else sorted(bars, key=lambda bar: -bar.share)[:MAX_BARS]


def mark_example(example: HeadExample | TokenExample) -> str:
    """Return the sentence around an example, with the ‹query› and the «key» marked; ‹«both»› if they are the same."""
    query, key = (example.at, None) if isinstance(example, TokenExample) else (example.query, example.key)
    spans = [query] if key in (None, query) else sorted([query, key])
    start, end = max(spans[0][0] - CONTEXT_CHARACTERS, 0), min(spans[-1][1] + CONTEXT_CHARACTERS, len(example.text))
    parts, last = ["" if not start else "…"], start
    for span in spans:
        word = example.text[slice(*span)]
        word = f"«{word}»" if span == key else word
        parts += [example.text[last : span[0]], f"‹{word}›" if span == query else word]
        last = span[1]
    return "".join([*parts, example.text[last:end], "" if end == len(example.text) else "…"])


def mark_guess(example: HeadExample) -> str:
    """Return a marked example for guessing: behind an arrow stands [CLS] or [SEP] if the head attends to it."""
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


def profile_page(profiles: Profiles, profile: Profile) -> str:
    """Return the HTML page of one profile: all that the page Profiles shows of it, without a script.

    All text of the corpus is escaped.
    """
    with_document = len(profiles.documents) > 1  # else the line alone identifies a sentence
    if isinstance(profile, HeadProfile):
        name, reading = f"L{profile.layer} H{profile.head}", READING
        summary = f"{in_words(profile)} {figures_in_words(profiles, profile)}"
        parts = _head_parts(profile, with_document)
    elif isinstance(profile, TokenProfile):
        name, summary, reading = f"“{profile.piece}”", token_in_words(profile), TOKEN_READING
        parts = _token_parts(profile, with_document)
    else:
        name, summary, reading = neuron_name(profile.layer, profile.neuron), neuron_in_words(profile), NEURON_READING
        parts = _neuron_parts(profile, with_document)
    style = themed_style("profiles.css", lambda is_dark: f"--bar: {SEQUENTIAL[is_dark][7]};")
    values = {
        "style-hash": hash_source(style),
        "style": style,
        "title": html.escape(f"{name} of {profiles.model}"),
        "corpus": html.escape(f"Corpus: {profiles.corpus_name}, {profile.tokens:,} tokens."),
        "says": html.escape(summary.strip()),
        "reading": html.escape(reading.replace("*", "")),
        "parts": "".join(parts),
    }
    return fill_template("profiles.html", values)


def _head_parts(profile: HeadProfile, with_document: bool) -> Iterable[str]:
    for question in QUESTION_TITLES:
        if question in profile.bars:
            bars = {"where it is most active": profile.active[question], "of all tokens": profile.bars[question]}
            yield _charts(question, bars)
    yield f"<h2>Words it looks at</h2>{_word_table(profile.words)}<h2>Words it joins</h2>{_word_table(profile.pairs)}"
    similar = ", ".join(f"L{layer} H{head} ({share:.0%})" for layer, head, share in profile.alike)
    yield f"<h2>Heads that look at the same where it is most active</h2><p>{html.escape(similar)}</p>"
    yield "<h2>In sentences, from every tenth of its activity</h2>"
    yield '<p class="faint">From ‹this› token it looks most at «that».</p>'

    def row(example: HeadExample) -> list[str]:
        piece = "" if example.key is not None else example.piece
        return [mark_example(example), piece, f"{example.share:.0%}", _line_reference(example, with_document)]

    columns = ["sentence", "looks at", "share", "line"]
    yield from _tenth_tables(profile, tenth_names(), "{:.2f} to {:.2f} times its mean", columns, row)


def _token_parts(profile: TokenProfile, with_document: bool) -> Iterable[str]:
    yield _charts("likeness", {"": likeness_bars(profile)}, ".2f")
    for question, bars in profile.bars.items():
        yield _charts(question, {"": bars})
    yield f"<h2>Words before it</h2>{_word_table(profile.before)}<h2>Words after it</h2>{_word_table(profile.after)}"
    rows = [[f"L{layer} H{head}", f"{times:,}", f"{chance:.1f}"] for layer, head, times, chance in profile.watched]
    yield f"<h2>Heads that look at it more than at others</h2>{_table(['head', 'times', 'by chance'], rows)}"
    similar = ", ".join(f"{piece} ({cosine:.2f})" for piece, cosine in profile.alike)
    yield f"<h2>Tokens with the likest mean state {depth_name(profile.depth)}</h2><p>{html.escape(similar)}</p>"
    yield "<h2>In sentences, from its least usual tenth to its most usual</h2>"
    yield from _value_tables(profile, tenth_names(*TYPICALITY_ENDS), "cosine with the others", with_document)


def _neuron_parts(profile: NeuronProfile, with_document: bool) -> Iterable[str]:
    for question, bars in profile.bars.items():
        yield _charts(question, {"": bars})
    yield f"<h2>Words it fires at</h2>{_word_table(profile.words)}"
    yield f"<h2>Words before them</h2>{_word_table(profile.before)}"
    similar = ", ".join(f"{neuron_name(layer, neuron)} ({value:.2f})" for layer, neuron, value in profile.alike)
    yield f"<h2>Neurons that fire likest, of those with a profile</h2><p>{html.escape(similar)}</p>"
    yield "<h2>In sentences, from every tenth of its activation</h2>"
    yield from _value_tables(profile, tenth_names(), "activation", with_document)


def _value_tables(
    profile: TokenProfile | NeuronProfile, names: Sequence[str], value: str, with_document: bool
) -> Iterable[str]:
    """Yield a table of sentences with their values for each tenth of a token or a neuron."""

    def row(example: TokenExample) -> list[str]:
        return [mark_example(example), f"{example.value:z.2f}", _line_reference(example, with_document)]

    return _tenth_tables(profile, names, f"{value} {{:z.2f}} to {{:z.2f}}", ["sentence", value, "line"], row)


def _tenth_tables(
    profile: Profile, names: Sequence[str], limits: str, columns: Sequence[str], row: Callable[[Any], list[str]]
) -> Iterable[str]:
    """Yield a heading and a table of examples for each tenth.

    The highest tenth of a head or a neuron comes first and starts with its strongest examples; the lowest tenth of a
    token comes first. limits: format of the two ends of a tenth. row: returns the cells of an example.
    """
    tenths: list[Sequence[HeadExample | TokenExample]] = [*profile.tenths]
    order: Iterable[int] = range(TENTHS)
    if not isinstance(profile, TokenProfile):
        tenths[-1] = [*profile.strongest, *tenths[-1]]
        order = reversed(range(TENTHS))
    for number in order:
        yield f"<h3>{names[number]}: {limits.format(*profile.deciles[number : number + 2])}</h3>"
        yield _table(columns, map(row, tenths[number]))


def _line_reference(example: HeadExample | TokenExample, with_document: bool) -> str:
    return f"{example.document}:{example.line}" if with_document else str(example.line)


def _charts(question: str, sides: Mapping[str, Sequence[GroupShare]], form: str = ".1%") -> str:
    """Return the bar charts of one question, side by side, each under its name."""
    charts = "".join(
        f"<div>{f'<h3>{side}</h3>' if side else ''}{_bars(bars, question, form)}</div>" for side, bars in sides.items()
    )
    return f'<h2>{html.escape(QUESTION_TITLES[question])}</h2><div class="sides">{charts}</div>'


def _bars(bars: Sequence[GroupShare], question: str, form: str) -> str:
    """Return a table with a bar for each share and a line at its value by chance, beside both numbers."""
    rows_shown = largest(bars, in_order=question in ORDERED_QUESTIONS)
    scale = 100 / max([0.01, *(size for bar in rows_shown for size in (bar.share, bar.chance))])
    rows = "".join(
        f'<tr><th scope="row">{html.escape(BAR_NAMES.get(bar.name, bar.name))}</th><td class="bar">'
        f'<svg aria-hidden="true"><rect width="{max(bar.share, 0) * scale:.1f}%" height="100%"/>'
        f'<line x1="{bar.chance * scale:.1f}%" x2="{bar.chance * scale:.1f}%" y1="0" y2="100%"/></svg></td>'
        f"<td>{bar.share:{form}}</td><td>{bar.chance:{form}}</td></tr>"
        for bar in rows_shown
    )
    head = f"<tr><th></th><th></th><th>{'cosine' if question == 'likeness' else 'share'}</th><th>by chance</th></tr>"
    return f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>"


def _word_table(words: Sequence[WordCount]) -> str:
    if not words:
        return "<p>None is clearly above chance.</p>"
    names = (["from"] if words[0].query is not None else []) + ["to", "times", "by chance"]
    rows = [
        [*([] if word.query is None else [word.query]), word.key, str(word.times), f"{word.expected:.1f}"]
        for word in words
    ]
    return _table(names, rows)


def _table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
