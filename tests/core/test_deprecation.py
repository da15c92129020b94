"""Old names of attributes and parameters keep working, with a warning that has the new name."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

import bert_core
from bert_core.deprecation import RenamedAttribute, accept_old_overrides, renamed_fields, renamed_parameters

# --- table of old names ---
# Public function or method -> its renamed parameters, each old name -> new name.
PARAMETERS: Mapping[str, Mapping[str, str]] = {
    "BertSelfAttention.position_scores": {"places": "positions"},
    "combine_heads": {"how": "mode"},
    "curve_points": {"what": "part_kind", "known": "previous_points"},
    "differences": {"one": "first", "other": "second"},
    "estimate_patches": {"what": "part_kind", "apart": "per_position"},
    "explained_rows": {"needed": "required_columns"},
    "heads_agreement": {"one": "first", "other": "second"},
    "label_erasers": {"at_random": "random_erasers"},
    "linear_cka": {"one": "first", "other": "second"},
    "make_patch": {"what": "part_kind"},
    "map_between_words": {"what": "kind"},
    "parse_target": {"written": "text", "what": "label"},
    "patch": {"what": "part_kind", "apart": "per_position"},
    "patch_band": {"found": "patches"},
    "patch_path": {"through": "receiver_input"},
    "predict_with_patch": {"found": "patches"},
    "probe_points": {"known": "previous_points"},
    "propose_plan": {"what": "part_kind"},
    "pruning_costs": {"what": "part_kind"},
    "pruning_curve": {
        "estimated": "estimation_examples",
        "asked": "test_examples",
        "what": "part_kind",
        "made_on": "example_columns",
        "found_on": "estimation_source",
        "reference_is": "reference_name",
    },
    "read_totals": {"least": "min_texts"},
    "RelationTally.rows": {"least": "min_count"},
    "RelationTally.rows_of_head": {"least": "min_count"},
    "search": {"alike": "head_similarity"},
    "similarity_target": {"other": "reference"},
    "sink_contribution": {"brought": "value_weighted"},
    "suppress_neurons": {"among": "random_pool"},
    "token_profiles": {"most": "max_pieces"},
    "word_totals": {"least": "min_texts"},
    "write_examples": {"found": "stats"},
    "write_neuron_table": {"found": "stats"},
    "write_profiles": {"found": "profiles"},
}
# Public class -> its renamed fields, which are also keywords of its constructor.
FIELDS: Mapping[str, Mapping[str, str]] = {
    "ActivationPatch": {"what": "component"},
    "Difference": {"reach": "scale"},
    "Eraser": {"taken": "readout", "put": "directions"},
    "FileQuestion": {"judged": "faithfulness_kinds", "of_target": "loss_from_targets", "apart": "separate_texts"},
    "LoadedModel": {"tuned": "task_models", "files": "files_version"},
    "Partners": {"alone": "unmatched", "theirs": "unmatched_source"},
    "Patches": {"what": "kind"},
    "Paths": {"through": "receiver_input"},
    "Plane": {"shown": "explained_variance"},
    "SinkContribution": {"of": "head_count", "brought": "value_weighted"},
    "Suppression": {"among": "random_pool"},
    "TagSpan": {"begun": "has_begin_tag"},
    "TargetKind": {"offer": "title", "speaks_for": "supports", "says": "value_text"},
}
# Public class -> its other renamed attributes and its renamed methods.
ATTRIBUTES: Mapping[str, Mapping[str, str]] = {
    "BertAttention": {"output_maps": "head_projections"},
    "BertConfig": {"layers_together": "layers_per_group", "word_act": "mlm_act", "names_labels": "has_label_names"},
    "BertEmbeddings": {"last": "output_module", "positions_of": "create_position_ids"},
    "BertIntermediate": {"scaled": "scaled_neurons", "activated": "activate"},
    "BertLayer": {
        "whole": "computes_all_positions",
        "gone": "removed",
        "take_out": "remove",
        "points": "compute_activations",
    },
    "BertPreTrainedModel": {"without": "pruned_parts"},
    "BertSelfAttention": {"cuts": "knockouts", "put": "pattern_patches", "arrows_cut": "blocked_edges"},
    "Cautions": {"mostly_sunk": "mostly_special"},
    "CorpusSettings": {"asks_loss": "needs_loss"},
    "DecoderRun": {"shown": "select_map"},
    "Encoding": {"duties": "roles", "with_duty": "has_role", "hidden_piece": "masked_piece", "cut": "truncated_count"},
    "HeadProfile": {"sinks": "sink_share", "standing_out": "distinctive_groups"},
    "HeadTable": {"loss_in_words": "loss_text"},
    "Index": {"every_head": "all_heads", "known_heads": "validate_heads"},
    "LoadedCaptioner": {"sentence": "decode"},
    "LoadedModel": {
        "own_of": "head_weights",
        "trained": "trained_parameters",
        "asks_order": "predicts_order",
        "asks_nsp": "supports_nsp",
        "pools": "effective_pooling",
        "longest_sentence": "max_sentence_tokens",
    },
    "LoadReport": {"joined": "merge", "unused": "unused_note"},
    "ModelRun": {"there": "existing_heads", "shown": "select_map", "brought": "value_weighted"},
    "NeuronAttribution": {"of_neurons": "neuron_scores"},
    "NeuronProfile": {"standing_out": "distinctive_groups"},
    "NeuronRun": {"added": "contributions"},
    "PairScore": {"believed": "preferred", "both": "scores"},
    "PatchBand": {"holds": "contains"},
    "Patches": {"read": "text"},
    "Pooling": {"rows": "pooled_positions", "shares": "weights", "pooled": "pool"},
    "Profiles": {
        "every": "all_profiles",
        "corpus": "corpus_name",
        "of": "find_head",
        "of_token": "find_token",
        "of_neuron": "find_neuron",
    },
    "RelationTally": {"of_head": "rows_of_head", "asked": "counts"},
    "Target": {"asks": "target_kind", "asked": "target_pieces"},
    "TargetKind": {"is_written": "has_text_form", "said": "format_value"},
    "TaskHead": {
        "says": "subtitle",
        "is_held": "is_in_checkpoint",
        "lack": "missing_reason",
        "own_module": "head_module",
        "predicted": "prediction_of",
        "offered": "suggested_targets",
        "offer": "target_title",
        "names": "template_values",
    },
    "Tokenizer": {"has": "has_token"},
    "Walk": {"of_layer": "layer_value", "entering": "layer_input"},
}
# --- end of the table ---


@dataclass(frozen=True)
class Record:
    value: int
    number = RenamedAttribute("value")
    twice = RenamedAttribute("doubled")

    def doubled(self) -> int:
        return 2 * self.value


@renamed_parameters(number="value")
def negated(value: int) -> int:
    return -value


def test_an_old_attribute_is_the_new_one() -> None:
    """Fields and methods are reached by their old names; the warning has both names and the file of the caller."""
    with pytest.warns(DeprecationWarning, match=r"^Record\.number is now Record\.value; .* version 0\.4$") as warned:
        assert Record(3).number == 3
    assert warned[0].filename == __file__
    with pytest.warns(DeprecationWarning, match="Record.twice is now Record.doubled"):
        assert Record(3).twice() == 6


def test_an_old_attribute_is_no_field() -> None:
    """The alias takes no part in the constructor, comparison or representation of a record."""
    assert repr(Record(3)) == "Record(value=3)"
    assert Record(3) == Record(3)
    with pytest.raises(TypeError):
        Record(number=3)  # type: ignore[call-arg]


def test_an_old_parameter_is_the_new_one() -> None:
    """A call with the old name gives the same result and a warning; one with both names is an error."""
    assert negated(value=2) == negated(2) == -2
    with pytest.warns(DeprecationWarning, match="the parameter number of negated is now value") as warned:
        assert negated(number=2) == -2  # type: ignore[call-arg]
    assert warned[0].filename == __file__
    with pytest.raises(TypeError, match="both value and its old name number"):
        negated(value=1, number=2)  # type: ignore[call-arg]


@renamed_fields(number="value")
@dataclass(frozen=True)
class Row:
    value: int


@renamed_fields(number="value")
class Pair(NamedTuple):
    value: int
    text: str = ""


@pytest.mark.parametrize("record", [Row, Pair])
def test_an_old_field_is_the_new_one(record: Any) -> None:
    """Of a dataclass and a named tuple, an old field is an attribute and a keyword of the constructor."""
    assert record(3) == record(value=3) and record(3).value == 3
    with pytest.warns(DeprecationWarning, match="the parameter number of .* is now value") as warned:
        assert record(number=3) == record(3)
    assert warned[0].filename == __file__
    with pytest.warns(DeprecationWarning, match=rf"{record.__name__}\.number is now {record.__name__}\.value"):
        assert record(3).number == 3
    assert inspect.signature(record).parameters.keys() == ({"value", "text"} if record is Pair else {"value"})


class Base:
    old = RenamedAttribute("new")

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        accept_old_overrides(cls, Base)

    def new(self) -> str:
        return "base"


def test_an_old_method_can_be_overridden() -> None:
    """A subclass that defines the old name of a method overrides the method; one with the new name does not warn."""
    with pytest.warns(DeprecationWarning, match=r"^Derived\.old is now Derived\.new; ") as warned:

        class Derived(Base):
            def old(self) -> str:
                return "derived"

    assert warned[0].filename == __file__ and Derived().new() == "derived"

    class Current(Base):
        def new(self) -> str:
            return "current"

    with pytest.warns(DeprecationWarning, match=r"^Base\.old is now Base\.new; "):
        assert Current().old() == "current"


# ---------------------------------------------------------------------------- all old names of the library


def public_object(path: str) -> Any:
    value: Any = bert_core
    for name in path.split("."):
        value = getattr(value, name)
    return value


def entries(*tables: Mapping[str, Mapping[str, str]]) -> list[tuple[str, str, str]]:
    return [(path, old, new) for table in tables for path, names in table.items() for old, new in names.items()]


@pytest.mark.parametrize(("path", "old", "new"), entries(PARAMETERS, FIELDS))
def test_the_old_name_of_a_parameter_is_accepted(path: str, old: str, new: str) -> None:
    """The keyword is passed on under its new name, which the signature has."""
    function = public_object(path)
    parameters = inspect.signature(function).parameters
    assert new in parameters and old not in parameters
    with pytest.raises(TypeError, match=f"got both {new} and its old name {old}"):
        function(**{old: None, new: None})
    with pytest.warns(DeprecationWarning, match=f"the parameter {old} of .* is now {new};"), suppress(Exception):
        function(**{old: None})  # fails for lack of other arguments


@pytest.mark.parametrize(("path", "old", "new"), entries(FIELDS, ATTRIBUTES))
def test_the_old_name_of_an_attribute_is_the_new_one(path: str, old: str, new: str) -> None:
    """It is read on the class for methods and properties, and on an instance for values."""
    owner = public_object(path)
    assert isinstance(inspect.getattr_static(owner, old), RenamedAttribute)
    member = getattr(owner, new, None)
    if issubclass(owner, tuple):
        place = owner._make(range(len(owner._fields)))
    elif callable(member) or isinstance(member, property):
        place = owner
    else:  # a value that instances have
        place = owner.__new__(owner)
        place.__dict__[new] = owner
    with pytest.warns(DeprecationWarning, match=rf"\.{old} is now \w+\.{new};"):
        assert getattr(place, old) == getattr(place, new)
