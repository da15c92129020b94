"""What a fine-tuning run keeps beside its best weights: those of some of its steps, its log, and where it stopped."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bert_core import checkpoint
from bert_core.refused import Refused
from bert_core.training.launch import copy_tokenizer
from bert_core.training.runs import LOG_FILE, STATE_FILE, keep_lines, read_lines

STEPS_FOLDER = "steps"
MOST_BYTES = 4 * 2**30  # that the kept steps of a run take together
LEAST_KEPT = 2  # the start and the end


def stride_of(step: int, most: int) -> int:
    """Every how many steps weights are kept when so many are done: a power of 2, so that all up to here fit.

    most: how many are kept in all; one place is left for the last step of the run. Step 0, the start, is always kept.
    """
    stride = 1
    while step // stride + 1 > most - 1 and stride <= step:
        stride *= 2
    return stride


def kept_steps(folder: Path) -> dict[int, Path]:
    """The steps whose weights a run has kept so far, rising, each with the folder that `load` opens."""
    there = (path for path in (folder / STEPS_FOLDER).glob("*") if path.name.isdecimal() and path.is_dir())
    return {int(path.name): path for path in sorted(there, key=lambda path: int(path.name))}


class StepKeeper:
    """Writes the weights of some steps of a run: many at first, fewer as it goes on, evenly over what is done.

    folder: of the run, which holds the tokenizer. most: how many are kept; 0 for none. write: the weights as they now
    are, with their configuration, to a folder. nbytes: what they take.
    Raises Refused for fewer than two, or where two do not fit `MOST_BYTES`.
    """

    def __init__(self, folder: Path, most: int, write: Callable[[Path], None], nbytes: int) -> None:
        if most and most < LEAST_KEPT:
            raise Refused(
                f"{most} step is to be kept: {LEAST_KEPT} are the least, the start and the end, or 0 for none"
            )
        fit = MOST_BYTES // max(nbytes, 1)
        if most and fit < LEAST_KEPT:
            raise Refused(
                f"the weights of a step take {nbytes / 2**30:.1f} GiB, and all that are kept "
                f"{MOST_BYTES >> 30} at most: keep none"
            )
        self.folder, self.most, self._write = folder, min(most, fit), write

    def begin(self, step: int) -> None:
        """Forget what was kept of later steps, by a run that was killed; keep the start of one that begins."""
        for other, path in kept_steps(self.folder).items():
            if other > step or not step or not self.most:
                shutil.rmtree(path)
        if not step:
            self.add(0)

    def add(self, step: int, *, last: bool = False) -> None:
        """Keep the weights, if it is their turn, and let go of those whose turn it no longer is. last: of the run."""
        if not self.most:
            return
        stride = stride_of(step, self.most)
        there = kept_steps(self.folder)
        if step not in there and (last or step % stride == 0):
            unfinished = self.folder / STEPS_FOLDER / f".{step}"
            shutil.rmtree(unfinished, ignore_errors=True)
            self._write(unfinished)
            copy_tokenizer(self.folder, unfinished)
            unfinished.rename(unfinished.with_name(str(step)))
        for other, path in there.items():
            if other % stride:
                shutil.rmtree(path)


# ---------------------------------------------------------------------------- where it stopped


@dataclass
class Place:
    """How far a run is.

    step: updates done. judged: epochs whose weights were judged. best_epoch, best: of those, the best, and its rank;
    0 and nothing before there is one. smooth: the running mean of the loss.
    """

    step: int = 0
    judged: int = 0
    best_epoch: int = 0
    best: tuple[float, ...] | None = None
    smooth: float | None = None


def save_place(folder: Path, place: Place, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Write what `resume_place` goes on from, whole or not at all."""
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "place": vars(place)}
    checkpoint.write_whole(folder / STATE_FILE, lambda path: torch.save(state, path))


def resume_place(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> Place:
    """Put a saved state back; where there is none, the beginning. The log is cut to where it stopped.

    Raises Refused for a file that holds something else.
    """
    path = folder / STATE_FILE
    if not path.is_file():
        (folder / LOG_FILE).unlink(missing_ok=True)  # of a run that was killed
        return Place()
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        place = Place(**state["place"])
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    except Exception as error:  # of a file that is cut off, or of another model
        raise Refused(f"{path} is not what an earlier run left: delete it to begin anew") from error
    place.best = None if place.best is None else tuple(place.best)
    keep_lines(folder, lambda line: _is_before(line, place))
    return place


def _is_before(line: Mapping[str, Any], place: Place) -> bool:
    name, most = ("epoch", place.judged) if "held_out" in line else ("step", place.step)
    return bool(line.get(name, 0) <= most)


# ---------------------------------------------------------------------------- its log


@dataclass(frozen=True)
class TuningLog:
    """What a run has said so far.

    steps: how many updates there are in all, 0 while it has not begun. losses: step and running mean of the loss.
    held_out: step and figures of each look at the held-out examples. kept: the steps of those that were the best yet.
    """

    steps: int
    losses: tuple[tuple[int, float], ...]
    held_out: tuple[tuple[int, Mapping[str, Any]], ...]
    kept: tuple[int, ...]

    @property
    def step(self) -> int:
        """How many updates are done."""
        return max((step for step, _ in self.losses), default=0)


def read_log(folder: Path) -> TuningLog:
    """The log of a fine-tuning run in a folder; an empty one where there is none yet."""
    lines = read_lines(folder)
    looks = [(int(line["step"]), line) for line in lines if "held_out" in line and "step" in line]
    return TuningLog(
        max((int(line["steps"]) for line in lines if "steps" in line), default=0),
        tuple((int(line["step"]), float(line["loss"])) for line in lines if "loss" in line and "step" in line),
        tuple((step, line["held_out"]) for step, line in looks),
        tuple(step for step, line in looks if line.get("kept")),
    )
