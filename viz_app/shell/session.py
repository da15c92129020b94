"""What the visitor chose, and what is kept for them.

Every choice that defines a view lives in `st.session_state` under the name of its URL parameter, so the address bar
is a link to the view. Models are loaded and run by one queue (`jobs`), and the records are shared between visitors.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx
from streamlit.runtime.state import SessionStateProxy

from bert_core import scenes
from bert_core.analysis import patterns
from bert_core.loading import LoadedModel, bundled_models, load
from bert_core.methods import METHODS
from bert_core.refused import Refused
from bert_core.run import ablation, perturbation, plans, walk
from bert_core.vision import BUNDLED, LoadedCaptioner, load_captioner
from viz_app.shell import examples
from viz_app.shell.jobs import Job, JobQueue

LONGEST_LINK = 2_000  # characters of text that the address bar takes
PATIENCE = 2.0  # seconds a page waits before it shows the queue
# A link always names its text, and what it does not say of that text is this: nothing of the first example stays.
ALONE: dict[str, Any] = {"text": None, "pair": "", "masked": ()}
# Free texts, each group with what means nothing without it: too long together, they stay out of the address.
TEXTS = {
    ("text", "pair"): ("masked", "target", "contrast"),
    ("several",): ("like",),
    ("one", "two"): (),
    ("reference",): (),
}
FIRST_SCENE = 71
CHOSEN = "_head_chosen"  # whether a head was chosen, by the visitor or by the link; else pages may open on their own
UNSAID = "_unsaid"  # whether the address that brought a new visitor named no text
PUBLISHED = "_published"  # the address that was written last

Head = tuple[int, int]
Tokens = tuple[str, tuple[int, ...]]  # selected on the side of the "query" or the "key", and where


# ---------------------------------------------------------------------------- choices and the address bar


@dataclass(frozen=True)
class Choice:
    """One choice: its default, and how it is written into and read from the address bar.

    parse raises ValueError for a value that is no possible choice.
    step: whether one press of the browser's Back takes a change of it back. What is no step is part of the step before.
    """

    default: Any
    parse: Callable[[str], Any] = str
    write: Callable[[Any], str] = str
    step: bool = False


def _one_of(*allowed: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value not in allowed:
            raise Refused(f"one of {', '.join(allowed)}")
        return value

    return parse


def parse_whole(value: str) -> int:
    """A whole number. Raises Refused for anything else."""
    try:
        return int(value)
    except ValueError as error:
        raise Refused("a whole number is needed") from error


def _parse_words(value: str) -> tuple[int, ...]:
    return tuple(sorted({parse_whole(part) for part in value.split(",") if part}))


def _parse_head(value: str) -> Head:
    layer, _, head = value.partition(".")
    try:
        return int(layer), int(head)
    except ValueError as error:
        raise Refused("write a head as layer.head, such as 2.11") from error


def _write_head(head: Head) -> str:
    return f"{head[0]}.{head[1]}"


def _parse_heads(value: str) -> tuple[Head, ...]:
    return tuple(sorted({_parse_head(part) for part in value.split(",") if part}))


def _parse_seed(value: str) -> int:
    seed = parse_whole(value)
    if seed < 0:
        raise Refused("a scene's number is 0 or more")
    return seed


def _parse_shapes(value: str) -> list[str]:
    names = [name.replace("-", " ") for name in value.split(",") if name]
    scenes.check_names(names)
    return names


def _parse_numbers(value: str) -> tuple[int, ...]:
    numbers = tuple(dict.fromkeys(parse_whole(part) for part in value.split(",") if part))
    if any(number < 0 for number in numbers):
        raise Refused("numbers count from 0")
    return numbers


def _write_numbers(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))


def _parse_tokens(value: str) -> Tokens:
    side = {"q": "query", "k": "key"}.get(value[:1])
    if side is None:
        raise Refused("q or k, then positions")
    return side, _parse_numbers(value[1:])


def parse_weights(value: str) -> tuple[float, ...]:
    """Numbers between commas. Raises Refused for what is none, or is negative."""
    try:
        weights = tuple(float(part) for part in value.replace(";", ",").split(",") if part.strip())
    except ValueError as error:
        raise Refused(f"weights {value[:60]!r}: numbers between commas, such as 2, 1, 0.5") from error
    if not all(0 <= weight < float("inf") for weight in weights):
        raise Refused(f"weights {value[:60]!r}: they must not be negative or infinite")
    return weights


def write_weights(weights: tuple[float, ...]) -> str:
    """The same numbers as they are read."""
    return ",".join(f"{weight:g}" for weight in weights)


def _parse_share(value: str) -> float:
    try:
        share = float(value)
    except ValueError:
        share = 0.0
    if not 5 <= share <= 100:
        raise Refused("5 to 100")
    return share / 100


def _parse_percent(value: str) -> int:
    percent = parse_whole(value)
    if not 0 <= percent <= 100:
        raise Refused("0 to 100")
    return percent


VIEWS = {"heads": "All heads", "curves": "Curves", "matrix": "Matrix", "neuron": "Neuron"}
COMPARE_VIEWS = ("heads", "curves", "matrix")
ROW_SORTS = ("number", "entropy", "to_sep", "distance")
SORTS = (*ROW_SORTS, "role")
COMBINED = ("apart", *patterns.WAYS)
AMONG = ("chosen", "layer", "all")
AGAINST = ("masked", "text", "model", "heads")
SHOWN = ("attention", "gradient", "product")
COLOURED_BY = ("slope", "removal")
INSTEAD = ablation.METHODS
ROLES_OVER = ("text", "file", "treebank")
PICTURES = ("random", "composed", "uploaded")
COUNTS = ("any", "1", "2", "3")
PARTS = patterns.PARTS
STAGES = (
    *("pieces", "embeddings", "norm", "qkv", "scores", "mask", "softmax", "context"),
    *("output", "feed_forward", "next", "pooler", "heads"),
)
ENGINES = walk.ENGINES
ORDERS = tuple(name for name in plans.METHODS if name != "random")  # that is the band the others stand beside
FIGURES = ("loss", "mlm", "nsp", "parameters", "tokens_per_second")
THROUGH = ("words", "answer", "states", "sentences", "kinds")
LENSES = ("logit", "tuned")
PLANES = ("axes", "neighbours")
BY = ("probability", "divergence", "entropy", "rank")
COMPARED = ("pair", "table")
VARIANTS = perturbation.VARIANTS
MEASURES = ("aopc", "comprehensiveness", "sufficiency")


def _choices() -> dict[str, Choice]:
    first = examples.first()
    flag = Choice(False, parse=lambda value: value == "1", write=lambda value: "1" if value else "0")
    return {
        "text": Choice(first.text, step=True),
        "pair": Choice(first.pair, step=True),
        "masked": Choice(first.masked, _parse_words, lambda words: ",".join(map(str, words)), step=True),
        "model": Choice(models_on_offer()[0], _one_of(*models_on_offer()), step=True),
        "target": Choice(""),
        "contrast": Choice(""),
        "method": Choice("DecompX", _one_of(*(method.name for method in METHODS))),
        "measure": Choice(MEASURES[0], _one_of(*MEASURES)),
        "off": Choice((), _parse_heads, lambda heads: ",".join(map(_write_head, heads)), step=True),
        "head": Choice((0, 0), _parse_head, _write_head, step=True),
        "also": Choice((), _parse_numbers, _write_numbers, step=True),
        "tokens": Choice(("query", ()), _parse_tokens, lambda tokens: tokens[0][0] + _write_numbers(tokens[1])),
        "kept": Choice(0.7, _parse_share, lambda share: f"{100 * share:.0f}"),
        "sort": Choice("number", _one_of(*SORTS)),
        "rows": Choice("number", _one_of(*ROW_SORTS)),
        "view": Choice("curves", _one_of(*VIEWS)),
        "show": Choice("attention", _one_of(*SHOWN)),
        "part": Choice("all", _one_of(*PARTS)),
        "hide": flag,
        "share": flag,  # whether the rows of a part are renormalised
        "combine": Choice("apart", _one_of(*COMBINED)),
        "among": Choice("chosen", _one_of(*AMONG)),
        "weights": Choice((), parse_weights, write_weights),  # none: by importance
        "against": Choice("masked", _one_of(*AGAINST)),
        "compare_view": Choice("curves", _one_of(*COMPARE_VIEWS)),
        "other": Choice("", step=True),
        "other_model": Choice(models_on_offer()[-1], _one_of(*models_on_offer())),
        "edges": flag,
        "colour": Choice("slope", _one_of(*COLOURED_BY)),
        "instead": Choice(INSTEAD[0], _one_of(*INSTEAD)),
        "reference": Choice(examples.REFERENCE),
        "over": Choice("text", _one_of(*ROLES_OVER)),
        "normal": flag,
        "removal": flag,
        "stage": Choice(STAGES[0], _one_of(*STAGES), step=True),
        "token": Choice(None, parse_whole),  # None: the first that is hidden
        "engine": Choice(ENGINES[0], _one_of(*ENGINES)),
        "order": Choice(ORDERS[0], _one_of(*ORDERS)),
        "going": Choice(30, _parse_percent),
        "figure": Choice(FIGURES[0], _one_of(*FIGURES)),
        "pads": flag,
        "words": flag,
        "picture": Choice("random", _one_of(*PICTURES)),  # the file of an upload is in no link
        "seed": Choice(FIRST_SCENE, _parse_seed, step=True),
        "count": Choice("any", _one_of(*COUNTS)),
        "shapes": Choice([], _parse_shapes, lambda shapes: ",".join(shapes).replace(" ", "-"), step=True),
        "word": Choice(None, parse_whole, step=True),
        "look": Choice(None, _parse_head, _write_head),
        "heat": Choice("product", _one_of(*SHOWN)),
        "boxes": flag,
        "through": Choice(THROUGH[0], _one_of(*THROUGH)),
        "lens": Choice(LENSES[0], _one_of(*LENSES)),
        "by": Choice(BY[0], _one_of(*BY)),
        "laid": Choice(PLANES[0], _one_of(*PLANES)),
        "cell": Choice(None, _parse_head, _write_head, step=True),  # depth and position; None: the answer
        "depth": Choice(None, parse_whole),
        "several": Choice(examples.SEVERAL, step=True),
        "like": Choice(examples.LIKE),
        "compared": Choice(COMPARED[0], _one_of(*COMPARED)),
        "one": Choice(examples.COMPARED.text, step=True),
        "two": Choice(examples.COMPARED.pair, step=True),
        "variant": Choice(VARIANTS[0], _one_of(*VARIANTS)),
        "lecture": flag,
    }


def restore() -> list[str]:
    """Bring the choices of the address into the session: at first, and whenever the visitor goes back or forward.

    Returns notices.
    """
    state, context = st.session_state, get_script_run_ctx()
    is_new = "text" not in state
    if not is_new and not (context is not None and context.is_history_navigation):
        return []
    notices: list[str] = []
    given = st.query_params.to_dict()
    state[CHOSEN] = "head" in given
    # An address without a text is that of a new visitor, or of a text that is too long for it, and stays.
    unsaid = {name for texts, of_them in TEXTS.items() for name in (*texts, *of_them) if texts[0] not in given}
    for name, choice in _choices().items():
        if name in unsaid and not is_new and name not in given:
            continue
        value = ALONE.get(name, choice.default) if "text" in given else choice.default
        if name in given:
            try:
                value = choice.parse(given[name])
            except Refused as error:
                notices.append(f"The link says {name}={given[name][:60]!r}, which is not possible: {error}.")
        state[name] = value
    state[UNSAID] = is_new and "text" not in given
    return notices


def open_example(page: str) -> None:
    """Begin with the example of a page, where a new visitor opens it by an address that names no text."""
    state = st.session_state
    if state.pop(UNSAID, False):
        own = examples.of_page(page)
        state.text, state.pair, state.masked, state.target = own.text, own.pair, own.masked, own.target


def surprise(page: str) -> str:
    """What there is to see in the example of a page, while it is the one that is shown; else nothing."""
    state = st.session_state
    if page == "score":
        own = examples.COMPARED
        return own.remark if (state.one, state.two) == (own.text, own.pair) else ""
    own = examples.of_page(page)
    return own.remark if examples.is_shown(own, state.text, state.pair, state.masked) else ""


def publish() -> None:
    """Write the text and what is not the default into the address bar."""
    state = st.session_state
    link = link_of(state, head_chosen=state.get(CHOSEN, False))
    # The browser tells its address when a run starts: what a run cut short wrote after that is known here alone.
    if link != st.query_params.to_dict() or link != state.get(PUBLISHED):
        state[PUBLISHED] = link
        st.query_params.from_dict(link)


def end_run() -> NoReturn:
    """Draw nothing more, with the address bar as it should be: what is written after `st.stop` is lost."""
    publish()
    st.stop()


def link_of(state: Mapping[str, Any] | SessionStateProxy, *, head_chosen: bool = False) -> dict[str, str]:
    """The address of some choices: the text and what is not the default, without texts that are too long for it.

    head_chosen: whether the head was chosen, which a link says of the first head too.
    """
    link = {
        name: choice.write(state[name])
        for name, choice in _choices().items()
        if state[name] != ALONE.get(name, choice.default) or (head_chosen and name == "head")
    }
    for texts, of_them in TEXTS.items():
        if sum(len(state[name]) for name in texts) > LONGEST_LINK:
            for name in (*texts, *of_them):
                link.pop(name, None)
    return link


def steps() -> tuple[str, ...]:
    """The parameters of the address that Back takes back one by one."""
    return tuple(name for name, choice in _choices().items() if choice.step)


def as_written(text: str) -> str:
    """A text for a place that reads Markdown, so that it shows as it was written: no link, picture or formula."""
    # An address becomes a link even behind backslashes: a joiner that nobody sees takes it apart.
    apart = re.sub(r"(?=://|@)|(?<=www)(?=\.)", "\u2060", text, flags=re.IGNORECASE)
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", apart)


def sentence(error: Exception) -> str:
    """What an error says, as a sentence for a place that reads Markdown."""
    text = str(error)
    return as_written(text[:1].upper() + text[1:] + ".")


def settings_without_texts() -> str:
    """What is chosen and is not the first choice, as "name=value" with spaces between; nothing that is typed."""
    chosen = {name: (choice, st.session_state.get(name, choice.default)) for name, choice in _choices().items()}
    said = [
        f"{name}={choice.write(value)}"
        for name, (choice, value) in chosen.items()
        if choice.parse is not str and not name.endswith("model") and value != choice.default
    ]
    return " ".join([f"model={Path(st.session_state.get('model', '')).name}", *said])


# ---------------------------------------------------------------------------- models and the queue


def serves_localhost() -> bool:
    """Whether only this machine can open the page; then any folder and the hub may be loaded."""
    return st.get_option("server.address") in ("localhost", "127.0.0.1", "::1")


def models_on_offer() -> tuple[str, ...]:
    """The bundled models, those named at start, and those that were added on this machine, in that order."""
    named = json.loads(os.environ.get("HEADLIGHT_MODELS", "[]"))
    return tuple(dict.fromkeys((*bundled_models(), *named, *added_models())))


def shown_name(model: str) -> str:
    """A model's name as it is shown: of a path its end, as much of it as tells it from all others on offer."""
    path = Path(model)
    if not path.expanduser().exists():
        return model
    others = [Path(name).parts for name in models_on_offer() if name != model]
    ends = (
        "/".join(path.parts[-n:])
        for n in range(1, len(path.parts))
        if all(other[-n:] != path.parts[-n:] for other in others)
    )
    return next(ends, model)


def whole_name(model: str) -> str | None:
    """All of a model's path as a help text; None where all of it is shown."""
    return None if shown_name(model) == model else as_written(model)


@st.cache_resource
def added_models() -> list[str]:
    """Models that a visitor on this machine named while the app ran."""
    return []


@st.cache_resource
def queue() -> JobQueue:
    """The one queue of this server."""
    return JobQueue()


@st.cache_resource(max_entries=64, show_spinner=False)
def kept(key: tuple[Any, ...], _make: Callable[[], Any]) -> Any:
    """What `_make` gives, made once for everyone who asks by this key; for small things that take long to make."""
    return _make()


def result_of(job: Job) -> Any:
    """What a job gives; while it runs, the page shows its place in the queue instead, and comes back by itself.

    Raises what the job raised.
    """
    if (label := st.session_state.pop("_stopped", None)) is not None:
        st.info(f"{as_written(label)} was stopped. Change anything, or reload the page, to start it again.")
        end_run()
    if not job.wait(PATIENCE):
        _waiting_room(job)
        end_run()
    return given_by(job)


def given_by(job: Job) -> Any:
    """What a job that is done gave; what it raised is raised, and it can be asked for again."""
    if job.error is not None:
        queue().forget(job.key)
        raise job.error
    return job.result


def still_running(job: Job, on_stop: Callable[[], None]) -> bool:
    """Whether a job is not done yet; then its place in the queue is shown here, and the page goes on.

    The page comes back by itself when it is done. on_stop: called if the visitor stops it. Raises what the job raised.
    """
    if not job.wait(PATIENCE):
        _waiting_room(job, on_stop)
        return True
    given_by(job)
    return False


def asked_for(what: str, key: Hashable, label: str) -> bool:
    """Whether the visitor asked for this very thing, by the button that is drawn here until then.

    what: the kind of question; asking for another of its kind forgets this one.
    """
    slot = f"_asked_{what}"
    if st.session_state.get(slot) != key and st.button(label, icon=":material/play_arrow:", type="primary"):
        st.session_state[slot] = key
        st.rerun()
    return bool(st.session_state.get(slot) == key)


def loaded_model(name: str) -> LoadedModel:
    """A model, loaded by the queue and kept for everyone.

    Raises CheckpointError or ValueError, as `load` does.
    """
    device = os.environ.get("HEADLIGHT_DEVICE")
    model: LoadedModel = result_of(
        queue().submit(("model", name), f"Loading {shown_name(name)}", lambda _: load(name, device=device))
    )
    return model


def loaded_captioner() -> LoadedCaptioner:
    """The bundled captioner, loaded by the queue and kept for everyone."""
    device = os.environ.get("HEADLIGHT_DEVICE")
    loaded: LoadedCaptioner = result_of(
        queue().submit(("captioner",), f"Loading {BUNDLED}", lambda _: load_captioner(device=device))
    )
    return loaded


@st.fragment(run_every=0.5)
def _waiting_room(job: Job, on_stop: Callable[[], None] | None = None) -> None:
    if job.done:
        st.rerun()
    place = queue().place(job)
    where = "running" if place == 0 else f"waiting for {place} other {'job' if place == 1 else 'jobs'}"
    st.progress(job.progress or 0.0, text=as_written(f"{job.label}: {where}"))
    if st.button("Stop", key="stop_job" if on_stop is None else "stop_here"):
        queue().forget(job.key)
        if on_stop is None:
            st.session_state["_stopped"] = job.label
        else:
            on_stop()
        st.rerun()
