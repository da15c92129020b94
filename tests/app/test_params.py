"""What an address carries: the names of its parameters, and what each means where a link does not say it."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from bert_core import Refused
from viz_app.pages import PAGES
from viz_app.shell import examples
from viz_app.shell.frame import params_of_pages
from viz_app.shell.lesson_records import CURRENT_NAMES
from viz_app.shell.model_names import added_models
from viz_app.shell.params import GROUPS, Page, Param, merge_params
from viz_app.texts import PageTexts

# Links that somebody keeps hold these names. One that is taken away, or means something else, breaks them.
CARRIED = """
text pair masked words model target contrast off cut scaled put put_from head other_heads tokens kept_share edge instead
reference lecture lang token_range
sort rows view show part hide share combine among weights
against differs compare_view other other_model
attributed method measure score_side graph_method graph_window graph_threshold graph_edge
source origin noise patched direction estimated around place
ranked neuron_cell neuron times
layers_view alike lens rank_by projection cell depth query_position sentences common_word
colour
over normal removal
profile_of counted piece firing aspect whole tenth hidden plane_text plane_colour
label seeds probes_view erased_at steer_depth steer_factor steer_direction steer_from steer_to
parts order pruned_percent figure
tuned tuned_step tuned_by
compared sentence_a sentence_b variant bias_measure bias_category bias_order bias_page
picture seed count shapes word look heat boxes edges
stage token engine pads
calibrated choices
lesson step
term find class teach
dataset slices slice_measure slice expected predicted outcome row_text row_order row_page data_row
"""
DEFAULTS = {
    "pair": "The room was dark and nobody was there.", "masked": (3,), "model": "headlight-mini", "target": "",
    "contrast": "", "off": (), "cut": (), "scaled": (), "put": None, "put_from": "", "head": (0, 0), "other_heads": (),
    "tokens": ("query", ()), "kept_share": 0.7, "edge": None, "instead": "zero", "reference": examples.REFERENCE,
    "text": "She opened the door and walked in.",
    "sort": "number", "rows": "number", "view": "curves", "show": "attention", "part": "all", "combine": "apart",
    "among": "chosen", "weights": (), "against": "masked", "differs": "attention", "compare_view": "curves",
    "other": "",
    "other_model": "headlight-mini", "attributed": "tokens", "method": "DecompX", "measure": "aopc",
    "score_side": "key", "graph_method": "ALTI", "graph_window": "32", "graph_threshold": None, "graph_edge": None,
    "layers_view": "words", "alike": "state",
    "lens": "logit",
    "rank_by": "probability", "projection": "axes", "cell": None, "depth": None,
    "query_position": None, "token_range": None, "common_word": "bank",
    "sentences": "They sat on the bank of the river and looked at the water.\n"
    "The boat was tied up at the bank of the stream.\nShe put her money in the bank every month.\n"
    "The bank raised its interest rates and lent less money.",
    "colour": "slope", "over": "text", "parts": "heads", "order": "importance", "pruned_percent": 30, "figure": "loss",
    "tuned": "", "tuned_step": 0, "tuned_by": "divergence",
    "compared": "pair",
    "sentence_a": "The picture with the flowers is on the wall.",
    "sentence_b": "The picture with the flowers are on the wall.",
    "bias_measure": "shared words", "bias_category": None, "bias_order": "row", "bias_page": 1,
    "variant": "original", "removal": "0", "picture": "random", "seed": 71, "count": "any",
    "shapes": ["large blue circle", "small red star"], "word": None, "look": None,
    "heat": "product", "stage": "pieces", "token": None, "engine": "torch", "calibrated": True,
    "choices": "",
    "source": "", "origin": "text", "noise": 3.0, "patched": "state", "direction": "into",
    "around": None, "place": None,
    "profile_of": "head", "counted": "model", "piece": "", "firing": None, "aspect": "offset", "tenth": 10,
    "plane_text": 0, "plane_colour": "kind",
    "label": "", "seeds": 3, "probes_view": "probe", "erased_at": 0, "steer_depth": 4, "steer_factor": 1.0,
    "steer_direction": "means", "steer_from": "", "steer_to": "",
    "ranked": "added", "neuron_cell": None, "neuron": None, "times": 0.0,
    "dataset": "agreement", "slices": "", "slice_measure": "accuracy", "slice": None, "expected": "", "predicted": "",
    "outcome": "all", "row_text": "", "row_order": "loss", "row_page": 1, "data_row": None,
    "lesson": "", "step": "predict", "term": "", "find": "", "lang": "en", "class": "",
}  # fmt: skip
STEPS = """
graph_edge
text pair masked model off cut scaled put head other_heads edge other stage seed shapes word cell sentences sentence_a
sentence_b source place tenth query_position neuron_cell neuron tuned lesson step choices profile_of counted piece
firing token_range slice expected predicted outcome row_page data_row plane_text bias_category bias_page
"""


def test_an_address_carries_the_names_that_it_always_did() -> None:
    """Every name, what it means where a link does not say it, and whether Back takes a change of it back."""
    table = params_of_pages(PAGES)
    assert set(table) == set(CARRIED.split())
    begins = {name: choice.first(with_text=False) for name, choice in table.items()}
    flags = {name: False for name in CARRIED.split() if name not in DEFAULTS}
    assert begins == DEFAULTS | flags
    assert {name for name, choice in table.items() if choice.step} == set(STEPS.split())
    alone = {name: choice.first(with_text=True) for name, choice in table.items()}
    assert alone == begins | {"text": None, "pair": "", "masked": ()}


def test_every_choice_is_read_as_it_is_written() -> None:
    """What a choice is at first comes back from a link; None is what no link can say."""
    for name, choice in params_of_pages(PAGES).items():
        first = choice.first(with_text=False)
        assert first is None or choice.parse(choice.write(first)) == first, name


def test_lessons_of_version_0_2_name_the_choices_of_now() -> None:
    """What a check reads by another name than version 0.2 wrote is the parameter whose old name that was."""
    table = params_of_pages(PAGES)
    assert {old: table[name].old_name for old, name in CURRENT_NAMES.items()} == {old: old for old in CURRENT_NAMES}


def test_the_table_is_collected_once() -> None:
    """Every run of every visitor is given the same one."""
    assert params_of_pages(PAGES) is params_of_pages(PAGES)


def test_a_model_that_is_added_while_the_app_runs_can_stand_in_a_link() -> None:
    """The table is made once, and asks each time which models are on offer."""
    read = params_of_pages(PAGES)["model"].parse
    with pytest.raises(Refused, match="one of headlight-mini"):
        read("added-now")
    added_models().append("added-now")
    assert read("added-now") == "added-now"
    added_models().clear()


def test_a_name_means_one_thing() -> None:
    """Two pages cannot declare the same parameter."""
    page = Page(
        PageTexts("extra", {"title": "Extra"}), ":material/star:", group="Look", params=(Param("seed", 0, int),)
    )
    with pytest.raises(ValueError, match="two parameters are named seed: give one of them another name"):
        params_of_pages((*PAGES, page))
    with pytest.raises(ValueError, match="text"):
        merge_params([[Param("text")], [Param("text")]])


def draw_params() -> None:
    """Draw a multiselect, and a selectbox that has None as an option."""
    from viz_app.shell.params import Param

    Param("tokens", list, widget="multiselect", label="Tokens")(options=range(4))
    Param("centre", None, widget="selectbox", label="Centre")(options=[None, 3, 5], format_func=str)


def test_a_multiselect_keeps_the_options_of_its_list() -> None:
    """Values that are no option any more are removed, and the others stay."""
    app = AppTest.from_function(draw_params, default_timeout=60)
    app.session_state.tokens = [1, 3, 9]
    app.run()
    assert not app.exception and app.multiselect(key="tokens").value == [1, 3]


def test_none_can_be_selected_if_it_is_an_option() -> None:
    """It replaces a value that was selected before, instead of being taken for an emptied control."""
    app = AppTest.from_function(draw_params, default_timeout=60).run()
    app.selectbox(key="centre").set_value(5).run()
    assert app.session_state.centre == 5
    app.selectbox(key="centre").set_value(None).run()
    assert app.session_state.centre is None and not app.exception


def test_a_page_stands_in_the_folder_of_its_path() -> None:
    """Its script is there, and no other page has its title or its line."""
    for distinct in ({page.path for page in PAGES}, {page.title for page in PAGES}, {page.line for page in PAGES}):
        assert len(distinct) == len(PAGES)


def test_every_page_is_in_one_of_the_groups() -> None:
    """None but the page on which a visit starts is outside of them, no group is empty, and each stands together."""
    assert [page.path for page in PAGES if not page.group] == ["start"]
    assert tuple(dict.fromkeys(page.group for page in PAGES if page.group)) == GROUPS
    assert [page.group for page in PAGES[1:]] == sorted((page.group for page in PAGES[1:]), key=GROUPS.index)
