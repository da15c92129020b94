"""The frame around every page: the text and its chips, the model, the target, the notices.

`open_frame` draws it; a page then asks `current()` for what was chosen, and for the run of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator
from streamlit.navigation.page import StreamlitPage

from bert_core.analysis.cautions import cautions
from bert_core.checkpoint import CheckpointError
from bert_core.loading import LoadedModel
from bert_core.records import HeadSweep, HeadVectors, MaskPrediction, ModelRun, Target, Walk, hidden_pieces, word_target
from bert_core.run import MOST_REFERENCES
from bert_core.run.ablation import ablate_heads
from bert_core.run.capture import capture
from bert_core.run.inputs import head_mask_without
from bert_core.run.vectors import head_vectors
from bert_core.run.walk import asked_at, walk
from bert_core.tokenizer import MASK, Encoding
from viz_app.components.address import keep_history
from viz_app.components.attention_view import ViewChoice
from viz_app.components.floor_plan import StageClick
from viz_app.components.head_grid import HeadClick
from viz_app.components.token_strip import Chip, TokenClick, token_strip
from viz_app.shell import examples, screen
from viz_app.shell.controls import control, missing, put
from viz_app.shell.jobs import Job
from viz_app.shell.session import (
    CHOSEN,
    LONGEST_LINK,
    STAGES,
    Head,
    added_models,
    as_written,
    kept,
    loaded_model,
    models_on_offer,
    queue,
    result_of,
    serves_localhost,
    shown_name,
    steps,
    still_running,
    whole_name,
)

LONGEST_TEXT = 200_000  # characters that are read at all
NO_TOKENS = ("query", ())
LAST_TARGET = "_last_target"  # what was explained last, to go back to when what was typed cannot be
OWN_TARGET = "_target_chosen"  # whether the visitor chose what is explained
FRAME = "_frame"  # what was drawn above the page; None above a page that is not about the text
LOAD_PROBLEM = "_load_problem"  # why the model that was named last could not be loaded
EXAMPLES = "examples_open"  # whether the list of examples is open
STATUS = "_status"  # where the status line stands
QUICK_WALK = 1e10  # multiplications of a second walk that nobody is asked for: well under a second
OFFERED_CLASSES = 20  # as targets, the likeliest first
UNSURE = 0.2  # a best guess below this probability is called unsure
LOGO = str(Path(__file__).parent / "headlight.svg")


@dataclass(frozen=True)
class Frame:
    """The shared state as a page uses it.

    encoding: what the model reads, masks in place. original: the same without the masks that were clicked.
    target: what gradients explain; None if nothing is masked, there is no second sentence, and no classifier.
    head_mask: (layer, head), 0 for a head that is off.
    """

    loaded: LoadedModel
    encoding: Encoding
    original: Encoding
    target: Target | None
    off: tuple[Head, ...]
    dark: bool
    lecture: bool

    @property
    def head_mask(self) -> np.ndarray:
        return head_mask_without(self.loaded.config, self.off)

    @property
    def weights(self) -> int:
        """How many weights every token goes through."""
        return sum(weight.numel() for weight in self.loaded.model.bert.encoder.parameters())

    def truth_at(self, position: int) -> int | None:
        """The piece that was typed where now a mask is; None where a [MASK] was typed."""
        hidden = self.encoding.tokens[position] != self.original.tokens[position]
        return self.original.input_ids[position] if hidden else None

    def gap(self, position: int) -> str:
        """What is hidden at a position, in Markdown: "The hidden word “door” at position 4"."""
        piece, word = self.encoding.hidden_piece(position), self.encoding.words[position]
        if piece is None or word is None:
            return f"[MASK] at position {position}"
        what = "word" if len(self.encoding.pieces_of(word)) == 1 else "piece"
        return f"The hidden {what} “{as_written(piece)}” at position {position}"

    def run(self, *, gradients: bool = False, all_heads_on: bool = False) -> ModelRun:
        """The record of this text, from the queue. gradients: for the frame's target, if there is one."""
        target = self.target if gradients else None
        gates = np.ones_like(self.head_mask) if all_heads_on else self.head_mask
        key = (self.loaded.name, self.encoding, target, gates.tobytes())
        job = queue().submit(
            key,
            f"{shown_name(self.loaded.name)} reads {len(self.encoding)} tokens",
            lambda _: capture(self.loaded, self.encoding, target=target, head_mask=gates, top_k=20),
        )
        run: ModelRun = result_of(job)
        st.session_state["_seconds"] = job.seconds
        return run

    def sweep(self) -> HeadSweep:
        """The record of this text without each head in turn, all others on, from the queue.

        Raises ValueError if other texts are to stand in for a head, and there are none.
        """
        of, method = int(self.head_mask.size), st.session_state.instead
        reference = () if method == "zero" else self.reference()
        job = queue().submit(
            ("sweep", self.loaded.name, self.encoding, self.target, method, reference),
            f"{shown_name(self.loaded.name)} without each of its {of} heads",
            lambda job: ablate_heads(
                self.loaded, self.encoding, target=self.target, method=method, reference=reference,
                report=lambda done, of: job.report(done / of),
            ),
        )  # fmt: skip
        found: HeadSweep = result_of(job)
        return found

    def reference(self) -> tuple[Encoding, ...]:
        """The texts that stand in for a head. Raises ValueError if there are none, or too many."""
        lines = [line for line in st.session_state.reference.splitlines() if line.strip()]
        if not 1 <= len(lines) <= MOST_REFERENCES:
            raise ValueError(
                f"there are {len(lines)} other texts to replace a head with: give 1 to {MOST_REFERENCES}, one per line"
            )
        longest = self.loaded.config.max_position_embeddings
        return tuple(self.loaded.tokenizer.encode(line, max_length=longest) for line in lines)

    def walk(self, layer: int, position: int, *, pads: int, engine: str) -> Walk:
        """The record of every value on the way, from the queue; see `bert_core.run.walk.walk`."""
        job = self._walk(layer, pads, engine)
        seen: Walk = result_of(job)
        st.session_state["_seconds"] = job.seconds
        return asked_at(self.loaded, seen, position)

    def second_walk(
        self, layer: int, position: int, *, pads: int, engine: str, on_stop: Callable[[], None]
    ) -> Walk | None:
        """The same beside the first; None while it runs, and its place in the queue is shown here."""
        job = self._walk(layer, pads, engine)
        return None if still_running(job, on_stop) else asked_at(self.loaded, job.result, position)

    def _walk(self, layer: int, pads: int, engine: str) -> Job:
        # One walk for every token: `asked_at` asks the masked-word head anew, and that alone.
        gates = self.head_mask
        return queue().submit(
            ("walk", self.loaded.name, self.encoding, layer, pads, engine, gates.tobytes()),
            f"{shown_name(self.loaded.name)} computes every step with {engine}",
            lambda job: walk(
                self.loaded, self.encoding, layer, head_mask=gates, pads=pads, engine=engine,
                report=lambda done, of: job.report(done / of),
            ),
        )  # fmt: skip

    def vectors(self, layer: int, head: int) -> HeadVectors:
        """What one head makes its attention from, from the queue. Raises ValueError for a head that was pruned."""
        gates = self.head_mask
        job = queue().submit(
            ("vectors", self.loaded.name, self.encoding, layer, head, gates.tobytes()),
            f"{shown_name(self.loaded.name)} gives the vectors of L{layer} H{head}",
            lambda _: head_vectors(self.loaded, self.encoding, layer, head, head_mask=gates),
        )
        found: HeadVectors = result_of(job)
        return found

    def kept(self, *name: Hashable, make: Callable[[], Any]) -> Any:
        """What `make` gives, made once for this text, model, target and head mask; for what a run is reduced to."""
        encoding = self.encoding
        text = (encoding.input_ids, encoding.token_type_ids, encoding.words)
        return kept((*name, self.loaded.name, *text, repr(self.target), self.head_mask.tobytes()), make)

    def word(self, token_id: int) -> str:
        """A piece as text."""
        return self.loaded.tokenizer.token_of(token_id)


def open_frame(notices: list[str], *, text: bool = True, models: bool = True, switches: bool = False) -> bool:
    """Draw the shared frame, with notices under the text; whether there is something for a page to show.

    text: False for a page that is not about the shared text: settings and notices only. models: whether the settings
    offer them. switches: whether heads are switched on the page, which must not move when one goes off.
    """
    state = st.session_state
    with st.container(key="history"):
        keep_history(steps())
    with screen.settings():
        _settings(models=models)
    with screen.strip():
        if models:
            _say_load_problem()
        state[FRAME] = _frame(notices, switches) if text else None
        if not text:
            _say(notices)
    return not text or state[FRAME] is not None


def is_dark() -> bool:
    """Whether the page is dark."""
    return st.context.theme.type == "dark"


def fade() -> None:
    """Grey out what is drawn in a container that answers an earlier question: one whose key begins with "stale_"."""
    st.html("<style>[class*=st-key-stale_] { opacity: 0.4; }</style>")


def show(page: StreamlitPage) -> None:
    """Run a page; a mistake in what was chosen becomes a sentence, and nothing chosen is lost."""
    try:
        page.run()
    except (ValueError, RuntimeError, MemoryError) as error:
        screen.picture().error(_sentence(error), icon=":material/error:")
    # Again, now that the page's own run has been timed.
    if st.session_state[FRAME] is not None:
        st.session_state[STATUS].caption(_status(current()))


def welcome() -> None:
    """What this is, on the first page; not in a lecture, where somebody says it."""
    if not st.session_state.lecture:
        screen.text().markdown(
            "**Headlight** shows how BERT, a language model, reads your sentence: what it predicts, where it looks, "
            "and why."
        )


def title(question: str, says: str, place: DeltaGenerator | None = None) -> None:
    """The question of a page and the line that says what it answers; in a lecture the line is on hover, for room.

    place: where, if not in the place of titles.
    """
    place = screen.title() if place is None else place
    lecture = bool(st.session_state.lecture)
    if lecture:
        place.header(question, anchor=False, help=says)
        return
    with place.container(key=f"title_{question}", gap=None):
        st.header(question, anchor=False)
        st.caption(says)


def current() -> Frame:
    """The frame that was drawn above this page."""
    drawn: Frame = st.session_state[FRAME]
    return drawn


def compared() -> tuple[Frame, Frame] | None:
    """The frames that the page Compare puts side by side, before and after; None where there are no two, and why.

    Raises CheckpointError or ValueError for a model that cannot be loaded or a text that cannot be read.
    """
    state, drawn = st.session_state, current()
    if state.against == "heads":
        if not drawn.off:
            layer, head = state.head
            missing(
                "All heads are on. Switch some off on the page Heads; then this page shows what changes.",
                f"Switch L{layer} H{head} off", put, "off", (state.head,),
            )  # fmt: skip
            return None
        return replace(drawn, off=()), drawn
    if state.against == "masked":
        if drawn.encoding == drawn.original:
            say_no_word_hidden(
                drawn, "No word is hidden. Click a word above; then this page shows how attention changes."
            )
            return None
        return replace(drawn, encoding=drawn.original, target=None), drawn
    loaded, text, pair = drawn.loaded, state.text, state.pair
    if state.against == "text":
        if not state.other.strip():
            missing(
                "Type another text to compare with this one.", f"Take “{examples.OTHER}”", put, "other", examples.OTHER
            )
            return None
        text, pair = state.other, ""
    elif state.other_model == state.model:
        others = [name for name in models_on_offer() if name != state.model]
        if others:
            missing(
                "Both models are the same: choose another one.", f"Take {as_written(shown_name(others[0]))}",
                put, "other_model", others[0],
            )  # fmt: skip
        else:
            st.info("This is the only model here: load another one under “Another model”.")
        return None
    else:
        loaded = loaded_model(state.other_model)
    original = loaded.tokenizer.encode(text, pair, max_length=loaded.config.max_position_embeddings)
    return drawn, replace(drawn, loaded=loaded, encoding=original, original=original, target=None)


def _frame(notices: list[str], switches: bool) -> Frame | None:
    state = st.session_state
    loaded = chosen_model()
    if loaded is None:
        return None
    _text_inputs()
    text, pair = state.text, state.pair
    _say(notices)
    if len(text) + len(pair) > LONGEST_TEXT:
        st.error(f"The text has {len(text) + len(pair):,} characters: at most {LONGEST_TEXT:,} can be read.")
        return None
    try:
        original = loaded.tokenizer.encode(text, pair, max_length=loaded.config.max_position_embeddings)
    except ValueError as error:
        st.error(_sentence(error), icon=":material/edit:")
        if not text.strip():
            first = examples.first()
            st.button(f"Begin with “{first.text}”", on_click=take_example, args=(first,), type="primary", key="begin")
        return None
    masked = tuple(word for word in state.masked if word < original.word_count)
    encoding = loaded.tokenizer.mask_words(original, masked)
    drawn = Frame(loaded, encoding, original, None, _existing_heads(loaded), is_dark(), bool(state.lecture))
    token_strip(_chips(drawn), key="strip", lecture=drawn.lecture, on_click=mask_word)
    _notices(drawn, switches)
    return _with_target(drawn)


def _say(notices: list[str]) -> None:
    for notice in notices:
        st.warning(as_written(notice), icon=":material/link_off:")


def _sentence(error: Exception) -> str:
    text = str(error)
    return as_written(text[:1].upper() + text[1:] + ".")


def _settings(*, models: bool) -> None:
    if models:
        _model_settings()
    control(st.toggle, "Lecture mode", "lecture", help="Larger type, thicker lines, for a projector")


def _model_settings() -> None:
    state = st.session_state
    offered = models_on_offer()
    if "_other_model" in state:
        state.model = state.pop("_other_model")
    if state.model not in offered:
        state.model = offered[0]
    control(st.selectbox, "Model", "model", options=offered, format_func=shown_name, help=whole_name(state.model))
    if serves_localhost():
        # In a form Enter loads.
        with st.popover("Another model", width="stretch"), st.form("another_model_form", border=False):
            st.text_input(
                "Checkpoint folder or hub id", key="another_model", placeholder="bert-base-uncased",
                help="A folder with config.json and the weights, the same files in one .zip, or a name on the hub.",
            )  # fmt: skip
            st.form_submit_button("Load", on_click=_add_model, key="add_model")


def _say_load_problem() -> None:
    """Say on the page why the model that was named last is not there, until that is put away or another is named."""
    state = st.session_state
    if LOAD_PROBLEM not in state:
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.error(state[LOAD_PROBLEM], icon=":material/folder_off:", width="stretch")
        st.button("Close", on_click=state.pop, args=(LOAD_PROBLEM,), key="close_problem")


def _add_model() -> None:
    """Offer the model that was named, and choose it."""
    state = st.session_state
    name = state.another_model.strip()
    state.pop(LOAD_PROBLEM, None)
    if not name:
        state[LOAD_PROBLEM] = "The name is empty: type a folder, a .zip file with a model, or a name on the hub."
        return
    if name.startswith("~"):
        name = str(Path(name).expanduser())
    if name not in models_on_offer():
        added_models().append(name)
    state["_model_before"], state.model = state.model, name


def chosen_model() -> LoadedModel | None:
    """The model, or None where it cannot be loaded, and why is said; one that was just added is taken back."""
    state = st.session_state
    name = state.model
    try:
        return loaded_model(name)
    except (CheckpointError, ValueError) as error:
        if name in added_models():
            added_models().remove(name)
            state[LOAD_PROBLEM] = _sentence(error)
            state["_other_model"] = state.get("_model_before", models_on_offer()[0])
            st.rerun()
        st.error(f"{_sentence(error)} Choose another model in the sidebar.", icon=":material/folder_off:")
        return None


def _text_inputs() -> None:
    row = screen.text().container(horizontal=True, vertical_alignment="bottom")
    control(row.text_input, "Sentence", "text", on_change=_text_changed, placeholder="Type a sentence")
    control(
        row.text_input, "Second sentence", "pair", on_change=_text_changed,
        placeholder="Optional: does this one follow?",
    )  # fmt: skip
    # What is closed costs nothing.
    with row.popover("Examples", width="content", key=EXAMPLES, on_change="rerun") as opened:
        for kind, some in examples.by_kind().items() if opened.open else ():
            st.caption(kind)
            for number, example in enumerate(some):
                st.button(
                    f"**{as_written(example.title)}** &nbsp; {as_written(example.both)}", key=f"{kind} {number}",
                    on_click=take_example, args=(example,), width="stretch",
                )  # fmt: skip


def _text_changed() -> None:
    state = st.session_state
    state.masked, state.tokens, state.contrast = (), NO_TOKENS, ""
    if state.target.partition(":")[0].isdigit() and not state.get(OWN_TARGET):
        state.target = ""  # the best guess of the last text is none of this one's


def take_example(example: examples.Example) -> None:
    """Put an example in the place of what was chosen, and close the list; a click on a button."""
    state = st.session_state
    state[EXAMPLES] = False
    state.text, state.pair, state.masked = example.text, example.pair, example.masked
    state.target = example.target
    state.contrast = ""
    state.tokens = NO_TOKENS


def swap_sentences() -> None:
    """A becomes B and B becomes A; a click on a button."""
    state = st.session_state
    state.text, state.pair, state.masked, state.tokens = state.pair, state.text, (), NO_TOKENS


def put_chosen_word(current: Frame, position: int, key: str) -> None:
    """Put in the word that was picked in the control `key`."""
    word = st.session_state[key]
    if word is not None:
        put_word(current, position, word)


def put_word(current: Frame, position: int, word: str) -> None:
    """Write a word into the text where a mask is, and take the mask away."""
    encoding, state = current.encoding, st.session_state
    number, side = encoding.words[position], "text" if encoding.sides[position] == "A" else "pair"
    pieces = encoding.pieces_of(number) if number is not None else (position,)
    start, end = encoding.offsets[pieces[0]][0], encoding.offsets[pieces[-1]][1]
    source = state[side]
    state[side] = source[:start] + word.removeprefix("##") + source[end:]
    state.masked = tuple(w for w in state.masked if w != number)


def choose_head(click: HeadClick) -> None:
    """Make the clicked head the chosen one; a click in a grid."""
    if click.layer is not None and click.head is not None:
        take_head((click.layer, click.head))


def take_head(head: Head, also: tuple[int, ...] = ()) -> None:
    """Make a head the chosen one. also: others of its layer."""
    st.session_state.head, st.session_state.also, st.session_state[CHOSEN] = head, also, True


def view_choice(first: Head | None = None) -> ViewChoice:
    """The layer, heads and tokens that the large view shows. first: the head as long as none was chosen."""
    state = st.session_state
    (layer, head), (side, positions) = state.head, state.tokens
    if first is not None and not state.get(CHOSEN) and (layer, head, *state.also) == (0, 0):
        layer, head = first
    return ViewChoice(layer, (head, *state.also), "key" if side == "key" else "query", positions, state.kept)


def open_head(click: HeadClick, control: str) -> None:
    """Make the clicked head the chosen one and show it large; control: that of the page's view."""
    choose_head(click)
    st.session_state[control] = "curves"


def choose_view(choice: ViewChoice) -> None:
    """Take over what was chosen in the large view."""
    state = st.session_state
    take_head((choice.layer, choice.heads[0]), choice.heads[1:])
    state.tokens, state.kept = (choice.side, choice.positions), choice.kept


def choose_layer_and_head(layer_key: str, head_key: str) -> None:
    """Make the head of two controls the chosen one."""
    state = st.session_state
    take_head((state[layer_key], state[head_key]), state.also)


def choose_token(key: str) -> None:
    """Make the token of a control the chosen one."""
    st.session_state.token = st.session_state[key]


def chosen_token(current: Frame) -> int:
    """Where the chosen token is; the first hidden one, or the first word, if none was chosen that is there."""
    token, encoding = st.session_state.token, current.encoding
    if token is not None and 0 <= token < len(encoding):
        return int(token)
    return next(iter(encoding.mask_positions), 1)


def step_stage(by: int) -> None:
    """Go some stages on, or back; a click on a button."""
    place = STAGES.index(st.session_state.stage) + by
    st.session_state.stage = STAGES[min(max(place, 0), len(STAGES) - 1)]


def go_to_stage(click: StageClick) -> None:
    """Go to the clicked stage; a click in the floor plan."""
    st.session_state.stage = click.name


def enter_next_layer(layers: int) -> None:
    """Go to the same head's query, key and value one layer up; a click on a button."""
    state = st.session_state
    take_head((min(state.head[0] + 1, layers - 1), state.head[1]), state.also)
    state.stage = "qkv"


def head_title(current: Frame, layer: int, head: int, what: str, values: np.ndarray | None, unit: str = "") -> str:
    """A head's name with its figure (layer, head) and the unit of that, for hover."""
    name = f"L{layer} H{head}"
    if head not in current.loaded.config.heads_of(layer):
        return f"{name}: pruned"
    if values is None:
        return name
    figure = values[layer, head]
    return f"{name}: {what} {figure:{'+' if np.nanmin(values) < 0 else ''}.3g} {unit}".rstrip()


def switch_heads(click: HeadClick) -> None:
    """Switch the clicked heads off, or on again where all of them are off; a click in a grid."""
    config = current().loaded.config
    touched = {
        (layer, head)
        for layer in (range(config.num_hidden_layers) if click.layer is None else [click.layer])
        for head in config.heads_of(layer)
        if click.head in (None, head)
    }
    if not touched:
        return
    off = set(st.session_state.off)
    st.session_state.off = tuple(sorted(off - touched if touched <= off else off | touched))


def mask_word(click: TokenClick) -> None:
    """Hide the clicked word from the model, or show it again."""
    st.session_state.masked = tuple(sorted(set(st.session_state.masked) ^ {click.word}))


def _existing_heads(loaded: LoadedModel) -> tuple[Head, ...]:
    """The heads that are off; one that this model does not have is said and left out."""
    layers, heads = loaded.config.num_hidden_layers, loaded.config.num_attention_heads
    state = st.session_state
    # A head that was pruned is off for good: it is nothing to be said, and nothing to be switched.
    state.off = tuple(head for head in state.off if head[1] not in loaded.config.pruned_heads.get(head[0], ()))
    wrong = [head for head in (*state.off, state.head) if not (0 <= head[0] < layers and 0 <= head[1] < heads)]
    if wrong:
        layer, head = wrong[0]
        st.warning(
            f"L{layer} H{head} does not exist: {as_written(shown_name(loaded.name))} has layers 0 to {layers - 1} "
            f"and heads 0 to {heads - 1}. It is ignored."
        )
        state.off = tuple(h for h in state.off if h not in wrong)
        if state.head in wrong:
            state.head, state[CHOSEN] = (0, 0), False
    left = loaded.config.heads_of(state.head[0])
    if left and state.head[1] not in left:
        state.head = (state.head[0], left[0])
    state.also = tuple(head for head in state.also if head < heads and head != state.head[1])
    return tuple(state.off)


def _chips(current: Frame) -> list[Chip]:
    encoding, original = current.encoding, current.original
    chips = []
    for position, token in enumerate(encoding.tokens):
        masked = token != original.tokens[position]
        piece = original.tokens[position]
        title = f"{piece}: position {position}, number {original.input_ids[position]:,} in the vocabulary"
        what = "Hidden: the model reads [MASK] here. Click to show it again." if masked else "Click to hide it."
        ends = masked and encoding.words[position + 1] != encoding.words[position]
        chips.append(
            Chip(
                text=f"{piece}, hidden" if ends else piece,
                title=title if encoding.special[position] else f"{title}\n{what}",
                word=encoding.words[position],
                side=encoding.sides[position],
                special=encoding.special[position],
                masked=masked or token == MASK,
                target=_target_position(current) == position,
            )
        )
    return chips


def _notices(current: Frame, switches: bool) -> None:
    encoding, loaded = current.encoding, current.loaded
    said = []
    if encoding.cut:
        said.append(
            f":orange[:material/content_cut:] The text has {encoding.full_length:,} tokens, but "
            f"{as_written(shown_name(loaded.name))} reads at most {len(encoding):,}: the last {encoding.cut:,} are "
            "left out."
        )
    if unknown := current.original.unknown_count:
        sentence = (
            f"{unknown:,} of {current.original.typed_count:,} tokens are [UNK]: these characters are not in the "
            "vocabulary, so the model cannot tell them apart."
        )
        if current.original.mostly_unknown:
            st.warning(sentence)
        else:
            said.append(sentence)
    if len(st.session_state.text) + len(st.session_state.pair) > LONGEST_LINK:
        said.append(
            f"The text is longer than {LONGEST_LINK:,} characters, so the link in the address bar does not contain it."
        )
    if said:
        st.caption(" ".join(said))
    if not loaded.has_mlm or not loaded.has_nsp:
        missing = [n for n, there in (("masked-word", loaded.has_mlm), ("next-sentence", loaded.has_nsp)) if not there]
        st.info(
            f"{as_written(shown_name(loaded.name))} has no trained {' or '.join(missing)} output, so it makes no such "
            "predictions."
        )
    _say_off(current.off, keep_place=switches)


def heads_off(loaded: LoadedModel) -> np.ndarray:
    """The head mask (layer, head) of a page without the shared text, 0 for a head that is off; says which are."""
    off = _existing_heads(loaded)
    _say_off(off)
    return head_mask_without(loaded.config, off)


def _say_off(off: tuple[Head, ...], *, keep_place: bool = False) -> None:
    """Which heads are off, in one line. keep_place: draw the line also while none is, so that nothing below moves."""
    if not off and not keep_place:
        return
    names = ", ".join(f"L{layer} H{head}" for layer, head in off[:8])
    more = f" and {len(off) - 8} more" if len(off) > 8 else ""
    heads = "head is" if len(off) == 1 else "heads are"
    said = f":orange[:material/visibility_off:] {len(off)} {heads} off: {names}{more}" if off else "All heads are on."
    with st.container(key="heads_off", horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(said)
        st.button("Restore", on_click=_restore_heads, key="restore_heads", disabled=not off)


def say_cautions(run: ModelRun) -> None:
    """Say what should make a reader careful with the attention of this run; nothing where nothing should."""
    found = cautions(run.attention, run.encoding)
    said = []
    if found.mostly_flat:
        said.append(
            f"{int(found.flat.sum())} of {found.flat.size} heads spread their attention evenly over all tokens, as an "
            "untrained model does: are these the right weights?"
        )
    if found.mostly_sunk:
        said.append(
            f"{found.to_cls + found.to_sep:.0%} of all attention goes to [CLS] ({found.to_cls:.0%}) and [SEP] "
            f"({found.to_sep:.0%}), where it has little effect: attention alone overrates them."
        )
    for sentence in said:
        st.caption(f":material/warning: {sentence}")


def _restore_heads() -> None:
    st.session_state.off = ()


# ---------------------------------------------------------------------------- the target


def _target_position(current: Frame) -> int | None:
    """Where the target's word is; before one was chosen, at the first mask."""
    place, masks = st.session_state.target.partition(":")[0], current.encoding.mask_positions
    if place.isdigit() and int(place) in masks:
        return int(place)
    # Of another text, or none: the first mask is what will be chosen.
    return next(iter(masks), None) if current.loaded.has_mlm and (not place or place.isdigit()) else None


def _with_target(current: Frame) -> Frame:
    """Draw the status line with the target's controls, and put the target into the frame."""
    options, labels = _targets(current)
    state = st.session_state
    widths = [4.3, 1.5, 1.1] if options else [4.3, 2.5]
    left, right, *more = screen.target().columns(widths, vertical_alignment="center")
    state[STATUS] = left.empty()
    state[STATUS].caption(_status(current))
    if not options:
        state.target = state.contrast = ""
        right.caption(f"Nothing to explain: {way_to_a_target(current).partition(', or ')[0]}")
        return current
    if state.pop("_typed", False) and state.target not in options:
        typed, problem = _typed_target(current, state.target)
        if problem:
            right.warning(as_written(problem[:1].upper() + problem[1:] + "."))
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
    control(
        right.selectbox, "Explain", "target", options=list(options),
        format_func=lambda key: f"Explain {labels[key]}" if key in labels else key, accept_new_options=True,
        on_change=_target_typed, label_visibility="collapsed",
        help="What to explain. Choose, or type a word; with several hidden words add its position: shore at 6",
    )  # fmt: skip
    target = options[state.target]
    if target.kind == "mlm":
        target = _against(current, target, more[0])
    return replace(current, target=target)


def way_to_a_target(current: Frame) -> str:
    """What a visitor can do so that there is something to explain: the end of a sentence."""
    loaded = current.loaded
    ways = [*["click a word to hide it"] * loaded.has_mlm, *["add a second sentence"] * loaded.has_nsp]
    return ", or ".join(ways) or "this model has no trained output, choose another one"


def say_no_target(current: Frame, what: str) -> None:
    """Say what there is not without a target, and offer to hide a word. what: the beginning of the sentence."""
    sentence = f"{what}: {way_to_a_target(current)}."
    if current.loaded.has_mlm:
        say_no_word_hidden(current, sentence)
    elif current.loaded.has_nsp:
        missing(sentence, "Add an example", put, "pair", examples.first().pair)
    else:
        st.info(sentence)


def say_no_word_hidden(current: Frame, sentence: str) -> None:
    """Say that no word is hidden, and offer to hide the longest of the text."""
    original = current.original
    word = max(range(original.word_count), key=lambda number: len(original.word_text(number)))
    missing(sentence, f"Hide “{as_written(original.word_text(word)[:40])}”", mask_word, TokenClick(word))


def _targets(current: Frame) -> tuple[dict[str, Target], dict[str, str]]:
    """What can be explained without typing, by its key in the address bar, and how each is written."""
    loaded, encoding = current.loaded, current.encoding
    options: dict[str, Target] = {}
    labels: dict[str, str] = {}
    positions = encoding.mask_positions[:20] if loaded.has_mlm else ()
    run = current.run() if positions or loaded.has_classifier else None
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
            options["loss"], labels["loss"] = Target("loss", pieces=hidden), "all hidden words together"
    state = st.session_state
    if run is not None and run.classes is not None:
        likely = run.classes.order[:OFFERED_CLASSES]
        linked = (number for number in range(len(loaded.labels)) if f"class:{number}" == state.target)
        for number in dict.fromkeys((*likely, *linked)):
            options[f"class:{number}"] = Target("class", label=number)
            labels[f"class:{number}"] = f"class “{loaded.labels[number]}”"
    if loaded.has_nsp and encoding.pair is not None:
        options["nsp"] = Target("nsp")
        labels["nsp"] = "“B follows A”"
    return options, labels


def _offer(current: Frame, target: Target, options: dict[str, Target], labels: dict[str, str]) -> None:
    key = _key_of(current, target)
    options[key], labels[key] = target, _label_of(current, target)


def target_word(current: Frame, target: Target) -> str:
    """The word that a target asks for, its pieces put together."""
    first, *others = (current.word(token) for _, token in target.asked)
    return first + "".join(piece.removeprefix("##") for piece in others)


def _key_of(current: Frame, target: Target) -> str:
    """A word's place and the word: what the address bar holds, and `_typed_target` reads."""
    return f"{target.rows[0]}:{target_word(current, target)}"


def _label_of(current: Frame, target: Target) -> str:
    places = "" if len(target.rows) == 1 else f" to {target.rows[-1]}, whole"
    return f"“{target_word(current, target)}” at {target.rows[0]}{places}"


def _typed_target(current: Frame, typed: str) -> tuple[Target | None, str]:
    """The target that was typed, as "shore", "shore at 6" or "6:shore"; or None, and why it cannot be asked."""
    place, _, word = typed.partition(":")
    if not (place.isdigit() and word):
        word, at, place = typed.rpartition(" at ")
        if not (at and place.isdigit()):
            word, place = typed, ""
    if not word.strip() or not current.loaded.has_mlm:
        return None, ""
    try:
        tokenizer, position = current.loaded.tokenizer, int(place) if place else None
        return word_target(tokenizer, current.encoding, word, position=position), ""
    except ValueError as error:
        return None, str(error)


def _target_typed() -> None:
    """Another target was chosen or typed: the word that the last one stood against is not meant any more."""
    state = st.session_state
    state["_typed"], state[OWN_TARGET], state.contrast = True, True, ""


def _against(current: Frame, target: Target, place: DeltaGenerator) -> Target:
    """Draw the control of the other word; the target against it, if there is one."""
    state, position = st.session_state, target.rows[0]
    prediction = current.run().prediction_at(position)
    likely = [] if prediction is None else [current.word(token) for token, _ in prediction.top[:4]]
    offered = ["", *(word for word in likely if word != target_word(current, target))]
    found = target
    if state.contrast:
        try:
            found = word_target(
                current.loaded.tokenizer, current.encoding, target_word(current, target), position=position,
                against=state.contrast,
            )  # fmt: skip
        except ValueError as error:
            place.warning(_sentence(error))
            state.contrast = ""
    if found.against == target.token_id:
        state.contrast, found = "", target
    control(
        place.selectbox, "Rather than", "contrast",
        options=[*offered, *([state.contrast] if state.contrast not in offered else [])],
        format_func=lambda word: f"rather than “{word}”" if word else "rather than …", accept_new_options=True,
        label_visibility="collapsed", help="Why this word rather than that one? Choose, or type a word of one piece",
    )  # fmt: skip
    return found


def _status(current: Frame) -> str:
    config = current.loaded.config
    name = as_written(shown_name(current.loaded.name))
    seconds = st.session_state.get("_seconds")
    parts = [
        "click a word to hide it",
        f"{len(current.encoding)} tokens of {config.max_position_embeddings}",
        f"{name} {config.num_hidden_layers} × {config.num_attention_heads}" + _pruned(current),
        f"{current.loaded.device.type.upper()}, fp32",
    ]
    if seconds is not None:
        parts.append(f"{seconds * 1000:.0f} ms")
    return " &nbsp;·&nbsp; ".join(parts) + " &nbsp;·&nbsp; counts from 0"


def _pruned(current: Frame) -> str:
    """How many heads the model has lost, for the status line; nothing for a whole one."""
    gone = sum(map(len, current.loaded.config.pruned_heads.values()))
    return f", {gone} pruned" if gone else ""


def is_unsure(prediction: MaskPrediction) -> bool:
    """Whether the best guess is too improbable to be called an answer."""
    return prediction.top[0][1] < UNSURE
