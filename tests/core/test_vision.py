"""A picture to a sentence: patches, files, the words of a caption, and where each of them looks."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from bert_core import scenes
from bert_core.checkpoint import CheckpointError
from bert_core.config import BertConfig
from bert_core.loading import ASSETS, bundled_models
from bert_core.recording import record
from bert_core.run.captioning import describe
from bert_core.scenes import VOCABULARY
from bert_core.training.captioner import caption_scenes, evaluation_scenes
from bert_core.vision import (
    BUNDLED_CAPTIONER,
    Captioner,
    CaptionerConfig,
    LoadedCaptioner,
    PatchEmbeddings,
    fit_image,
    load_captioner,
    save_captioner,
)
from tests.near import assert_near


@pytest.fixture(scope="module")
def tiny() -> CaptionerConfig:
    """Pictures of 32 pixels in 4 x 4 patches; both halves two layers of two heads."""
    small = CaptionerConfig.small(len(VOCABULARY), image_size=32, patch_size=8, hidden=16, heads=2)
    # Wide weights: with narrow ones every caption ends at once, and every map is flat.
    vision, text = (half.replace(initializer_range=0.5) for half in (small.vision, small.text))
    return CaptionerConfig(image_size=32, patch_size=8, vision=vision, text=text)


@pytest.fixture(scope="module")
def folder(tiny: CaptionerConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A captioner with random weights; read it, do not write to it."""
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("captioner") / "tiny"
    save_captioner(Captioner(tiny), VOCABULARY, path)
    return path


@pytest.fixture(scope="module")
def loaded(folder: Path) -> LoadedCaptioner:
    """That captioner, on the CPU."""
    return load_captioner(folder, device="cpu")


def pictures(count: int, size: int = 32) -> np.ndarray:
    """Some noise, uint8 (count, size, size, 3)."""
    return np.random.default_rng(0).integers(0, 256, (count, size, size, 3), np.uint8)


# ---------------------------------------------------------------------------- the model


def test_patches_are_squares_in_reading_order(tiny: CaptionerConfig) -> None:
    """Cut by hand, standardised over the whole picture, and put through the same layers: the same embeddings."""
    torch.manual_seed(0)
    module, image = PatchEmbeddings(tiny), pictures(1)[0]
    pixels = (image.astype(np.float64) - image.mean()) / image.std(ddof=1)
    with torch.no_grad():
        found = module(torch.from_numpy(image[None]))[0]
        for number in range(16):
            row, column = divmod(number, 4)
            patch = torch.from_numpy(pixels[8 * row : 8 * row + 8, 8 * column : 8 * column + 8].reshape(-1)).float()
            place = module.row_embeddings.weight[row] + module.column_embeddings.weight[column]
            shown = module.projection(torch.nn.functional.gelu(module.dense(patch) + place))
            expected = module.LayerNorm(shown + place)
            assert_near(found[number], expected)


def test_a_plain_picture_can_be_read(loaded: LoadedCaptioner) -> None:
    """One colour everywhere has no contrast to divide by: the states are finite, and a caption comes out."""
    plain = torch.full((1, 32, 32, 3), 200, dtype=torch.uint8)
    assert torch.isfinite(loaded.model.encode(plain)).all()
    assert isinstance(loaded.caption(plain[0].numpy()), str)


def test_the_encoder_takes_patches_as_they_are(loaded: LoadedCaptioner) -> None:
    """The states are those of the plain encoder over the patch embeddings: no word or position is added."""
    images = torch.from_numpy(pictures(2))
    with torch.no_grad():
        expected = loaded.model.vision.encoder(loaded.model.patches(images)).last_hidden_state
        assert torch.equal(loaded.model.encode(images), expected)


def test_captions_do_not_depend_on_what_shares_the_batch(loaded: LoadedCaptioner) -> None:
    """Each picture alone and all together give the same words, [CLS] first, and end where they end."""
    images = pictures(3)
    together = loaded.caption_ids(images)
    assert together == [loaded.caption_ids(images[i : i + 1])[0] for i in range(3)]
    assert all(VOCABULARY[ids[0]] == "[CLS]" and len(ids) <= 32 for ids in together)
    assert set(" ".join(loaded.captions(images)).split()) <= set(VOCABULARY)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"image_size": 90}, "image_size is 90: it must be a multiple of patch_size, which is 8"),
        ({"patch_size": 0}, "patch_size is 0: it must be a whole number from 1 to 4,096"),
        ({"text": BertConfig(hidden_size=16, num_attention_heads=2)}, "must set is_decoder and add_cross_attention"),
        (
            {"vision": BertConfig(hidden_size=32, num_attention_heads=2)},
            "decoder is 16: it must be the hidden_size of the encoder, which is 32",
        ),
    ],
)
def test_sizes_that_do_not_fit_are_refused(tiny: CaptionerConfig, changes: dict[str, object], reason: str) -> None:
    """A picture that cannot be cut, and halves that do not belong together."""
    values = {"image_size": 32, "patch_size": 8, "vision": tiny.vision, "text": tiny.text, **changes}
    with pytest.raises(ValueError, match=reason):
        CaptionerConfig(**values)  # type: ignore[arg-type]


def test_pictures_of_another_size_are_refused(loaded: LoadedCaptioner) -> None:
    """The sentence says what came and what is taken."""
    with pytest.raises(ValueError, match=r"the images have shape \(1, 16, 16, 3\) and .* \(batch, 32, 32, 3\)"):
        loaded.model.encode(torch.zeros(1, 16, 16, 3, dtype=torch.uint8))


def test_fit_takes_the_middle_square() -> None:
    """A wide picture loses its sides, a plain one keeps its colour at any size, other arrays are refused."""
    wide = np.zeros((20, 60, 3), np.uint8)
    wide[:, 20:40] = (10, 200, 30)
    assert (fit_image(wide, 20) == (10, 200, 30)).all()
    assert (fit_image(wide, 32) == (10, 200, 30)).all() and fit_image(wide, 32).shape == (32, 32, 3)
    for wrong in (wide[..., 0], wide.astype(np.float32), wide[..., :2], wide[:0]):
        with pytest.raises(ValueError, match=r"must be .*uint8 .*\(rows, columns, 3\)"):
            fit_image(wrong, 20)


# ---------------------------------------------------------------------------- files


def test_a_saved_captioner_says_the_same(loaded: LoadedCaptioner, tiny: CaptionerConfig, tmp_path: Path) -> None:
    """Configuration, weights and words come back; the tied word table is written once; float16 halves the file."""
    save_captioner(loaded.model, VOCABULARY, tmp_path / "whole")
    save_captioner(loaded.model, VOCABULARY, tmp_path / "half", torch.float16)
    again = load_captioner(tmp_path / "whole", device="cpu")
    assert again.config == tiny
    assert again.captions(pictures(4)) == loaded.captions(pictures(4))
    names = load_file(tmp_path / "whole" / "model.safetensors")
    assert sum(tensor.shape == (len(VOCABULARY), 16) for tensor in names.values()) == 1
    whole, half = ((tmp_path / name / "model.safetensors").stat().st_size for name in ("whole", "half"))
    assert half < 0.7 * whole
    assert load_captioner(tmp_path / "half", device="cpu").model.patches.dense.weight.dtype == torch.float32


def test_broken_folders_are_said(folder: Path, tmp_path: Path) -> None:
    """No captioner, a lost weight, another shape, another vocabulary, a broken file: one sentence each."""
    with pytest.raises(CheckpointError, match="is no captioner: give headlight-shapes or a folder with captioner"):
        load_captioner(tmp_path)

    def broken(name: str) -> Path:
        return Path(shutil.copytree(folder, tmp_path / name))

    weights = load_file(folder / "model.safetensors")
    lost = broken("lost")
    save_file({k: v for k, v in weights.items() if k != "patches.dense.bias"}, lost / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"1 weights are missing and 0 unknown, first patches\.dense\.bias"):
        load_captioner(lost)
    shape = broken("shape")
    save_file({**weights, "patches.dense.bias": torch.zeros(3)}, shape / "model.safetensors")
    with pytest.raises(
        CheckpointError, match=r"patches\.dense\.bias has shape \(3,\): the configuration requires \(16,\)"
    ):
        load_captioner(shape)
    words = broken("words")
    (words / "vocab.txt").write_text("\n".join(VOCABULARY[:-1]) + "\n", encoding="utf-8")
    with pytest.raises(CheckpointError, match="the numbers must be equal"):
        load_captioner(words)
    cut = broken("cut")
    (cut / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:100])
    with pytest.raises(CheckpointError, match="cannot be used"):
        load_captioner(cut)
    sizes = broken("sizes")
    (sizes / "captioner.json").write_text(json.dumps({"image_size": 32}), encoding="utf-8")
    with pytest.raises(CheckpointError, match="the configuration of a captioner must have patch_size, vision, text"):
        load_captioner(sizes)


def test_the_captioner_is_no_text_model() -> None:
    """It is bundled, at most 10 MB with its card, and is not offered where texts are read."""
    assert BUNDLED_CAPTIONER not in bundled_models()
    files = [path for path in (ASSETS / BUNDLED_CAPTIONER).iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 10e6
    assert {"MODEL_CARD.md", "captioner.json", "model.safetensors", "vocab.txt"} <= {path.name for path in files}


def test_the_bundled_captioner_is_right_about_scenes_it_never_saw() -> None:
    """On unseen combinations of colour, shape and relation at least 0.95 of 300 captions are right (its card: more)."""
    shown = evaluation_scenes(300, held_out=True, seed=5)
    verdicts = [verdict for _, verdict in caption_scenes(load_captioner(device="cpu"), shown)]
    assert np.mean([verdict.correct for verdict in verdicts]) >= 0.95


# ---------------------------------------------------------------------------- one look


def test_a_look_is_what_the_decoder_did(loaded: LoadedCaptioner) -> None:
    """Words are those of the caption; each map sums to 1 and is the one that output_attentions gives."""
    image = pictures(1)[0]
    run = describe(loaded, image)
    ids = loaded.caption_ids(image[None])[0]
    assert run.words == tuple(VOCABULARY[number] for number in ids[1:])
    assert run.sentence == loaded.caption(image)
    assert run.cross_attention.shape == (len(run.words), 2, 2, 16) == run.cross_gradient.shape
    assert_near(run.cross_attention.sum(-1), 1)
    with torch.no_grad():
        outputs = loaded.model(
            torch.from_numpy(image[None]), torch.tensor([ids[:-1]]), output_attentions=True, use_cache=False
        )
    for layer, maps in enumerate(outputs.cross_attentions):
        assert_near(run.cross_attention[:, layer], maps[0].transpose(0, 1))
    probabilities = outputs.logits[0].softmax(-1)
    for word, (share, likeliest) in enumerate(zip(run.probabilities, run.alternatives, strict=True)):
        assert_near(share, float(probabilities[word, ids[word + 1]]))
        assert likeliest[0] == (run.words[word], pytest.approx(float(share), rel=1e-5))


def test_what_is_brought_is_the_value_through_the_heads_output(loaded: LoadedCaptioner) -> None:
    """Attention times the length of the patch's value through the head's columns of the output map, by hand."""
    image = pictures(1)[0]
    run = describe(loaded, image)
    with torch.no_grad():
        states = loaded.model.encode(torch.from_numpy(image[None]))[0]
        for number, layer in enumerate(loaded.model.text.bert.encoder.layer):
            crossing = layer.crossattention
            size = crossing.self.attention_head_size
            for head in range(2):
                some = slice(head * size, (head + 1) * size)
                values = states @ crossing.self.value.weight[some].T + crossing.self.value.bias[some]
                lengths = (values @ crossing.output.dense.weight[:, some].T).norm(dim=-1)
                assert_near(run.cross_norms[number, head], lengths)
                attention, brought = run.cross_attention[:, number, head], run.select_map("brought")[:, number, head]
                assert_near(brought, attention * lengths.numpy())


def test_the_gradient_is_that_of_the_word_itself(loaded: LoadedCaptioner) -> None:
    """A plain backward pass from one word's log-probability leaves the same numbers in the recording."""
    image = pictures(1)[0]
    run, ids = describe(loaded, image), loaded.caption_ids(image[None])[0]
    assert len(run.words) > 3
    for word in (0, 2, len(run.words) - 1):
        states = loaded.model.encode(torch.from_numpy(image[None])).detach().requires_grad_()
        with record() as recording:
            logits = loaded.model.text(torch.tensor([ids[:-1]]), encoder_hidden_states=states, use_cache=False).logits
            logits[0, word].log_softmax(-1)[ids[word + 1]].backward()
        for layer in range(2):
            expected = recording.cross_gradients[layer][0, :, word]
            assert_near(run.cross_gradient[word, layer], expected)
            assert np.abs(run.cross_gradient[word, layer]).max() > 0


def test_a_look_writes_nothing_and_can_be_shared(loaded: LoadedCaptioner) -> None:
    """Eight threads over one model find what one finds; no parameter has a gradient; the record cannot be changed."""
    images = pictures(8)
    alone = [describe(loaded, image) for image in images]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda image: describe(loaded, image), images))
    for one, other in zip(alone, together, strict=True):
        assert one.words == other.words
        assert_near(one.cross_attention, other.cross_attention)
        assert_near(one.cross_gradient, other.cross_gradient, 1e-4)
    assert all(p.grad is None and not p.requires_grad for p in loaded.model.parameters())
    with pytest.raises(ValueError, match="read-only"):
        alone[0].cross_attention[0, 0, 0, 0] = 1


def test_a_record_shows_what_is_asked_for(loaded: LoadedCaptioner) -> None:
    """The product is attention times gradient; an unknown name is a ValueError that lists those there are."""
    run = describe(loaded, pictures(1)[0])
    assert np.array_equal(run.select_map("product"), run.select_map("attention") * run.select_map("gradient"))
    with pytest.raises(ValueError, match="'heat' is unknown: it must be one of attention, gradient, product"):
        run.select_map("heat")


def test_a_drawn_scene_can_be_described_at_any_size(loaded: LoadedCaptioner) -> None:
    """The record keeps the picture at the size that the model saw."""
    scene = scenes.random_scene(np.random.default_rng(0))
    run = describe(loaded, scenes.draw(scene, 100))
    assert run.image.shape == (32, 32, 3) and run.grid == (4, 4)
