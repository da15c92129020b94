"""What is explained: chosen, or typed as a word, perhaps rather than another one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from bert_core.analysis.spans import answer_text, best_spans, context_places, span_at
from bert_core.analysis.tags import OUTSIDE, tagged_words
from bert_core.edits import Scaled
from bert_core.records import ModelRun, TagPrediction, Target, hidden_pieces, word_target
from bert_core.refused import Refused
from bert_core.run.similarity import read_sentence, similarity_target
from bert_core.tokenizer import Encoding, joined
from viz_app.shell import examples, screen
from viz_app.shell.choices import Choice
from viz_app.shell.controls import control, missing, put
from viz_app.shell.language import spoken
from viz_app.shell.markdown import as_written, helped, sentence
from viz_app.shell.models import shown_name
from viz_app.shell.notices import say_no_word_hidden, status
from viz_app.shell.question import Question

LAST_TARGET = "_last_target"  # what was explained last, to go back to when what was typed cannot be
OWN_TARGET = "_target_chosen"  # whether the visitor chose what is explained
STATUS = "status"  # where the status line stands
OFFERED_CLASSES = 20  # as targets, the likeliest first
OFFERED_TOKENS = 5  # as replaced ones, the same
REPLACED = "replaced"  # how the address begins that asks for one
OFFERED_ANSWERS = 5
SPAN = "span"  # how the address begins that asks for an answer
CHOICE = "choice"  # what the address says where it is asked why the second text is chosen
OFFERED_WORDS, OFFERED_TAGS = 20, 6  # words with their tag, in the order of the text; tags of the word asked about
TAG = "tag"  # how the address begins that asks for one
ALIKE = {"alike:A": "A like B", "alike:B": "B like A"}  # as targets, each text read by itself
LONGEST_QUOTED = 60  # characters of another text, or of a choice


def with_target(current: Question) -> Question:
    """Draw the status line with the target's controls, and put the target into the question."""
    options, labels = _targets(current)
    state = st.session_state
    widths = [4.3, 1.5, 1.1] if options else [4.3, 2.5]
    left, right, *more = screen.target().columns(widths, vertical_alignment="center")
    state[STATUS] = left.empty()
    state[STATUS].caption(status(current))
    if not options:
        state.target = state.contrast = ""
        way = spoken(way_to_a_target(current).partition(", or ")[0])
        right.caption(spoken("Nothing to explain: {way}").format(way=way))
        return current
    if state.pop("_typed", False) and state.target not in options:
        typed, problem = _typed_target(current, state.target)
        if problem:
            right.warning(helped(as_written(problem[:1].upper() + problem[1:] + ".")))
        if typed is None:
            state.target = state.get(LAST_TARGET, "")
    if state.target not in options:
        typed, _ = _typed_target(current, state.target)
        if typed is not None:
            state.target = _key_of(current, typed)
            options[state.target], labels[state.target] = typed, _label_of(current, typed)
        else:
            state.target, state[OWN_TARGET] = next(iter(options)), False
    state[LAST_TARGET] = state.target
    explains = spoken("Explain {what}")
    control(
        right.selectbox, spoken("Explain"), "target", options=list(options),
        format_func=lambda key: explains.format(what=labels[key]) if key in labels else key,
        accept_new_options=True, on_change=_target_typed, label_visibility="collapsed",
        help=spoken(
            "What to explain. Choose, or type a word; with several hidden words add its position: shore at 6"
        ),
    )  # fmt: skip
    target = options[state.target]
    if target is None:
        return current
    if target.kind == "mlm":
        target = _against(current, target, more[0])
    if target.kind == "similarity":
        return _read_apart(current, target)
    return replace(current, target=target)


def target_position(current: Question) -> int | None:
    """Where the target's word is; before one was chosen, at the first mask."""
    place, masks = st.session_state.target.partition(":")[0], current.encoding.mask_positions
    if place.isdecimal() and int(place) in masks:
        return int(place)
    if (at := _linked_token(current)) is not None:
        return at
    # Of another text, or none: the first mask is what will be chosen.
    return next(iter(masks), None) if current.loaded.has_mlm and (not place or place.isdecimal()) else None


def way_to_a_target(current: Question) -> str:
    """What a visitor can do so that there is something to explain: the end of a sentence."""
    loaded = current.loaded
    words = ["click a word to hide it"] * loaded.has_mlm
    if current.encoding.pair is not None:
        ways = [*words, "choose above what to explain"]
    elif loaded.has_chooser:
        ways = ["add one of its choices as the second text", *words]
    elif loaded.has_reader:
        ways = ["add the context as the second text", *words]
    else:
        ways = [*words, "add a second sentence"]
    return ", or ".join(ways)


def say_no_target(current: Question, what: str) -> None:
    """Say what there is not without a target, and offer to hide a word. what: the beginning of the sentence."""
    sentence = f"{what}: {way_to_a_target(current)}."
    if current.loaded.has_mlm:
        say_no_word_hidden(current, sentence)
    elif current.encoding.pair is None:
        missing(sentence, "Add an example", put, "pair", examples.first().pair)
    else:
        st.info(helped(sentence))


def _targets(current: Question) -> tuple[dict[str, Target | None], dict[str, str]]:
    """What can be explained without typing, by its key in the address bar, and how each is written.

    None is nothing: a model that was not trained to make one vector of a text is asked for it by choice alone.
    """
    loaded, encoding = current.loaded, current.encoding
    options: dict[str, Target | None] = {}
    labels: dict[str, str] = {}
    positions = encoding.mask_positions[:20] if loaded.has_mlm else ()
    asks_all = loaded.has_classifier or loaded.has_detector or loaded.has_tagger
    asks_pair = (loaded.has_reader or loaded.has_chooser) and encoding.pair is not None
    run = current.run() if positions or asks_all or asks_pair else None
    for position in positions:
        prediction = run.prediction_at(position) if run is not None else None
        words = [] if prediction is None else [token for token, _ in prediction.top[:3]]
        truth = current.truth_at(position)
        for token in dict.fromkeys([*words[:1], *([] if truth is None else [truth]), *words[1:]]):
            _offer(current, Target("mlm", position, token), options, labels)
    if loaded.has_mlm:
        hidden = hidden_pieces(encoding, current.original)
        for word in dict.fromkeys(encoding.words[position] for position, _ in hidden):
            pieces = tuple((position, piece) for position, piece in hidden if encoding.words[position] == word)
            if len(pieces) > 1:
                _offer(current, Target("joint", pieces=pieces), options, labels)
        if len(hidden) > 1:
            options["loss"], labels["loss"] = Target("loss", pieces=hidden), spoken("all hidden words together")
    state = st.session_state
    if run is not None and run.classes is not None:
        likely = run.classes.order[:OFFERED_CLASSES]
        linked = (number for number in range(len(loaded.labels)) if f"class:{number}" == state.target)
        for number in dict.fromkeys((*likely, *linked)):
            options[f"class:{number}"] = Target("class", label=number)
            labels[f"class:{number}"] = spoken("class “{label}”").format(label=loaded.labels[number])
    if run is not None and run.replaced is not None:
        says, asked = spoken("“{word}” at {first} replaced"), _linked_token(current)
        suspects = likeliest_replaced(encoding, run.replaced)[:OFFERED_TOKENS]
        for at in dict.fromkeys((*suspects, *([] if asked is None else [asked]))):
            key = replaced_key(at)
            options[key], labels[key] = Target("replaced", at), says.format(word=encoding.labels[at], first=at)
    if run is not None and run.spans is not None:
        offered = [*best_spans(encoding, run.spans, OFFERED_ANSWERS), span_at(encoding, run.spans, 0, 0)]
        best = [(span.first, span.last) for span in sorted(offered, key=lambda span: -span.score)]
        for first, last in dict.fromkeys((*best, *_linked_span(encoding, state.target))):
            options[span_key(first, last)] = target = Target("span", first, last=last)
            answer = spoken("answer “{word}”").format(word=_answer_word(encoding, target))
            labels[span_key(first, last)] = answer if last else spoken("no answer")
    if run is not None and run.tags is not None:
        says = spoken("“{word}” as {label}")
        for at, number in _offered_tags(current, run, run.tags):
            options[tag_key(at, number)] = target = Target("tag", at, label=number)
            labels[tag_key(at, number)] = says.format(label=run.tags.labels[number], word=_tagged(current, target))
    if run is not None and run.choice is not None:
        says = spoken("choice “{text}”")
        options[CHOICE], labels[CHOICE] = Target("choice"), says.format(text=_quoted(encoding.pair or ""))
    if loaded.has_nsp and encoding.pair is not None:
        options["nsp"] = Target("nsp")
        labels["nsp"] = spoken("“B follows A”")
    # What is cut or put in belongs to the tokens of both texts together.
    if encoding.pair is not None and all(isinstance(edit, Scaled) for edit in loaded.edits):
        if not options and loaded.pooling is None:
            options[""], labels[""] = None, spoken("nothing")
        both = [_one_of(current, encoding, side) for side in "AB"]
        for (key, written), (own, other) in zip(ALIKE.items(), (both, both[::-1]), strict=True):
            options[key], labels[key] = similarity_target(loaded, own, other), spoken(written)
    return options, labels


def likeliest_replaced(encoding: Encoding, shares: np.ndarray) -> list[int]:
    """The positions of the tokens that were typed, the likeliest to be replaced first. shares: (seq,)."""
    return [int(at) for at in np.argsort(-shares, kind="stable") if not encoding.special[at]]


def replaced_key(position: int) -> str:
    """What the address says of a target that asks if the token there was replaced."""
    return f"{REPLACED}:{position}"


def _linked_token(current: Question) -> int | None:
    """The position of the token that the address asks about, if it is one of the text and the model judges tokens."""
    kind, _, place = st.session_state.target.partition(":")
    if kind != REPLACED or not place.isdecimal() or not current.loaded.has_detector:
        return None
    special = current.encoding.special
    return int(place) if int(place) < len(special) and not special[int(place)] else None


def span_key(first: int, last: int) -> str:
    """An answer's first and last token as the address bar holds them."""
    return f"{SPAN}:{first}:{last}"


def _linked_span(encoding: Encoding, key: str) -> tuple[tuple[int, int], ...]:
    """The answer that a link names, where one can stand there."""
    kind, *ends = key.split(":")
    if kind != SPAN or len(ends) != 2 or not all(end.isdecimal() for end in ends):
        return ()
    first, last = map(int, ends)
    places = context_places(encoding)
    return ((first, last),) if first in places and last in places and first <= last else ()


def _answer_word(encoding: Encoding, target: Target) -> str:
    """An answer as it was typed."""
    first, last = target.rows
    return answer_text(encoding, first, last) if last else spoken("no answer")


def tag_key(position: int, label: int) -> str:
    """What the address says of a target that asks why the token there has this tag."""
    return f"{TAG}:{position}:{label}"


def _offered_tags(current: Question, run: ModelRun, tags: TagPrediction) -> list[tuple[int, int]]:
    """Positions of words and numbers of tags: of words that are something theirs, of the one asked about more."""
    words = tagged_words(run)
    something = [word for word in words if word.label != OUTSIDE] or list(words)
    found = [(word.position, tags.labels.index(word.label)) for word in something[:OFFERED_WORDS]]
    kind, place, number = (*st.session_state.target.split(":"), "", "")[:3]
    special = current.encoding.special
    if kind == TAG and place.isdecimal() and int(place) < len(special) and not special[int(place)]:
        more = tags.order_at(int(place))[:OFFERED_TAGS]
        linked = int(number) if number.isdecimal() and int(number) < len(tags.labels) else more[0]
        found += [(int(place), one) for one in (linked, *more)]
    return list(dict.fromkeys(found))


def _tagged(current: Question, target: Target) -> str:
    """The word whose tag is asked for, or of a later piece that piece."""
    encoding, (at,) = current.encoding, target.rows
    word = encoding.words[at]
    return encoding.labels[at] if word is None or encoding.pieces_of(word)[0] != at else encoding.word_text(word)


def _one_of(current: Question, pair: Encoding, side: str) -> Encoding:
    """One text of a pair by itself, with the words that are hidden in it."""
    loaded = current.loaded
    encoding = read_sentence(loaded, pair.text if side == "A" else pair.pair or "")
    own = dict.fromkeys(word for word, of in zip(pair.words, pair.sides, strict=True) if of == side)
    pieces = zip(pair.words, pair.tokens, current.original.tokens, strict=True)
    changed = {word for word, token, typed in pieces if token != typed}
    hidden = [number for number, word in enumerate(own) if word in changed and number < encoding.word_count]
    return loaded.tokenizer.mask_words(encoding, hidden)


def _read_apart(current: Question, target: Target) -> Question:
    """The question of one text of the pair by itself, and a line that says so."""
    side, pair = st.session_state.target[-1], current.encoding
    own = _one_of(current, pair, side)
    says = spoken(
        "{own} is read by itself here, and {other} by itself too: its vector stays as it is, with all heads on. Pages "
        "show {own} alone."
    ).format(own=side, other="BA"["AB".index(side)])
    if current.loaded.pooling is None:
        says += " " + spoken(
            "{model} was not trained to make one vector of a text: the mean of its states is taken, which may mean "
            "little."
        ).format(model=as_written(shown_name(current.loaded.name)))
    st.caption(helped(says))
    original = _one_of(current, current.original, side)
    first = next((word for word, of in zip(pair.words, pair.sides, strict=True) if of == side), None) or 0
    return replace(current, target=target, encoding=own, original=original, first_word=first)


def _offer(current: Question, target: Target, options: dict[str, Target | None], labels: dict[str, str]) -> None:
    key = _key_of(current, target)
    options[key], labels[key] = target, _label_of(current, target)


def target_word(current: Question, target: Target) -> str:
    """The word that a target asks for, its pieces put together."""
    return joined(current.word(token) for _, token in target.asked)


def names_in(current: Question, target: Target) -> dict[str, str | int]:
    """What the sentences of a target's kind name, for a place that reads Markdown."""
    names: dict[str, str | int] = {"first": target.rows[0], "last": target.rows[-1], "count": len(target.pieces)}
    if target.asked:
        names["word"] = as_written(target_word(current, target))
    elif target.kind == "span":
        names["word"] = as_written(_answer_word(current.encoding, target))
    elif target.kind == "tag":
        names["word"] = as_written(_tagged(current, target))
    elif target.position is not None:
        names["word"] = as_written(current.encoding.labels[target.position])
    if target.against is not None:
        names["other"] = as_written(current.word(target.against))
    if target.other is not None:
        names["text"] = as_written(_quoted(target.other.text))
    elif target.kind == "choice":
        names["text"] = as_written(_quoted(current.encoding.pair or ""))
    if target.label is not None:
        labels = current.loaded.tags if target.kind == "tag" else current.loaded.labels
        names["label"] = as_written(labels[target.label])
    return names


def _quoted(text: str) -> str:
    """A text as a line of the page quotes it."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_QUOTED else f"{line[:LONGEST_QUOTED]}…"


def _key_of(current: Question, target: Target) -> str:
    """A word's place and the word: what the address bar holds, and `_typed_target` reads."""
    return f"{target.rows[0]}:{target_word(current, target)}"


def _label_of(current: Question, target: Target) -> str:
    says = spoken("“{word}” at {first}") if len(target.rows) == 1 else spoken("“{word}” at {first} to {last}, whole")
    return says.format(word=target_word(current, target), first=target.rows[0], last=target.rows[-1])


def _typed_target(current: Question, typed: str) -> tuple[Target | None, str]:
    """The target that was typed, as "shore", "shore at 6" or "6:shore"; or None, and why it cannot be asked."""
    place, _, word = typed.partition(":")
    if not (place.isdecimal() and word):
        word, at, place = typed.rpartition(" at ")
        if not (at and place.isdecimal()):
            word, place = typed, ""
    if not word.strip() or not current.loaded.has_mlm:
        return None, ""
    try:
        tokenizer, position = current.loaded.tokenizer, int(place) if place else None
        return word_target(tokenizer, current.encoding, word, position=position), ""
    except Refused as error:
        return None, str(error)


def _target_typed() -> None:
    """Forget the word that the last target stood against, since another target was chosen or typed."""
    state = st.session_state
    state["_typed"], state[OWN_TARGET], state.contrast = True, True, ""


def _against(current: Question, target: Target, place: DeltaGenerator) -> Target:
    """Draw the control of the other word; the target against it, if there is one."""
    state, position = st.session_state, target.rows[0]
    prediction = current.run().prediction_at(position)
    likely = [] if prediction is None else [current.word(token) for token, _ in prediction.top[:4]]
    offered = ["", *(word for word in likely if word != target_word(current, target))]
    chosen = target
    if state.contrast:
        try:
            chosen = word_target(
                current.loaded.tokenizer, current.encoding, target_word(current, target), position=position,
                against=state.contrast,
            )  # fmt: skip
        except Refused as error:
            place.warning(helped(sentence(error)))
            state.contrast = ""
    if chosen.against == target.token_id:
        state.contrast, chosen = "", target
    than, nothing = spoken("rather than “{word}”"), spoken("rather than …")
    control(
        place.selectbox, spoken("Rather than"), "contrast",
        options=[*offered, *([state.contrast] if state.contrast not in offered else [])],
        format_func=lambda word: than.format(word=word) if word else nothing,
        accept_new_options=True, label_visibility="collapsed",
        help=spoken("Why this word rather than that one? Choose, or type a word of one piece"),
    )  # fmt: skip
    return chosen


CHOICES = {"target": Choice("", about="text"), "contrast": Choice("", about="text")}
