"""Trains one head that drafts a token a step, and writes it as vLLM loads it.

Master weights are float32, the computation bfloat16. The loss of a draft step is
:func:`vllm_av.training.loss.distance` over the 6,144 most frequent tokens; a head that drafts from
the whole vocabulary also meets a random sample of the others, each standing for as many as were
left out, and is drawn towards the target's own state.

Rule: everything random in a step follows from the step's number, so a run that was killed goes on
to the same weights.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call

from vllm_av.demo.checkpoint import smollm2
from vllm_av.training import prompts, reading
from vllm_av.training.autoregressive import OneLayerHead, Window
from vllm_av.training.data import Corpus, SequenceOrder, open_corpus
from vllm_av.training.loss import attach, distance
from vllm_av.training.schedule import Schedule
from vllm_av.training.whole import (
    digest,
    is_made,
    machine,
    require,
    write_json,
    write_state,
    write_tensors,
)

VERSION = 2
"""Of this script; a change of what it makes raises it."""

_SAVED_EVERY = 50
_TOLD_EVERY = 25


@dataclass(frozen=True)
class HeadPlan:
    """How one head is trained.

    Args:
        name: of its folder.
        drafter: makes the module; called after the seed is set.
        config: the checkpoint's ``config.json``, from the target's.
        reduced: it drafts from the reduced vocabulary alone.
        state_weight: of the distance between what it puts out and the target's final state.
        schedule: learning rate and rollout.
        batch: sequences of a step.
        discount: of each further draft step: the engine gets there less often.
        noise: what is added to each of the target's states that the head reads is uniform, up to
            this part of the state's root mean square: a head of few texts learns them by heart.
        before: tokens of the prompt that are trained on too, those before the answer.
        before_weight: of a draft there, that of a draft in an answer being 1.
        seed: of the first weights.
    """

    name: str
    drafter: Callable[[], OneLayerHead]
    config: Callable[[dict[str, object]], dict[str, object]]
    reduced: bool
    state_weight: float
    schedule: Schedule
    batch: int = 8
    discount: float = 0.7
    noise: float = 0.2
    before: int = 96
    before_weight: float = 0.5
    seed: int = 0


def train(work: Path, plan: HeadPlan) -> None:
    """Train ``plan`` into ``work / plan.name``; does nothing where that is whole."""
    folder = work / plan.name
    corpus = open_corpus(work)
    if is_made(folder / "training.json", identity(plan, corpus)):
        return
    folder.mkdir(parents=True, exist_ok=True)
    export(folder, plan, corpus, fit(folder, plan, corpus))


def identity(plan: HeadPlan, corpus: Corpus) -> str:
    """Of what a run makes its head from."""
    return digest("head", VERSION, plan, corpus.digest)


def fit(folder: Path, plan: HeadPlan, corpus: Corpus) -> "Run":
    """Train to the end of the schedule, from where an earlier run was killed if ``folder`` says."""
    torch.set_num_threads(1)
    torch.manual_seed(plan.seed)
    run = Run(corpus, plan)
    saved, wanted = folder / "state.pt", identity(plan, corpus)
    if saved.exists():
        state = reading.state(saved, dict)
        require(state.get("digest"), wanted, saved)
        run.load(state)
    while run.step < plan.schedule.steps:
        run.advance()
        if run.step % _TOLD_EVERY == 0:
            print(
                f"{plan.name}: step {run.step} of {plan.schedule.steps}: {run.told()}", flush=True
            )
        if run.step % _SAVED_EVERY == 0:
            write_state(saved, run.state() | {"digest": wanted})
    return run


class Run:
    """A training run at some step."""

    def __init__(self, corpus: Corpus, plan: HeadPlan) -> None:
        self.step = 0
        self.averages: dict[str, list[float]] = {}
        self.drafter = plan.drafter()
        self._corpus = corpus
        self._plan = plan
        self._optimiser = torch.optim.AdamW(
            self.drafter.parameters(), betas=(0.9, 0.95), weight_decay=0.01
        )
        self._batches = SequenceOrder(
            {
                number: corpus.offsets[number + 1]
                - corpus.offsets[number]
                - max(corpus.prompt_lengths[number] - plan.before, 0)
                for number in corpus.sequences(held_out=False)
            },
            plan.batch,
        )

    def state(self) -> dict[str, object]:
        """All that :meth:`load` needs to go on."""
        return {
            "step": self.step,
            "averages": self.averages,
            "drafter": self.drafter.state_dict(),
            "optimiser": self._optimiser.state_dict(),
        }

    def load(self, state: dict[str, object]) -> None:
        """Go on from ``state``."""
        self.step = state["step"]  # type: ignore[assignment]
        self.averages = state["averages"]  # type: ignore[assignment]
        self.drafter.load_state_dict(state["drafter"])
        self._optimiser.load_state_dict(state["optimiser"])

    def told(self) -> str:
        """Running averages, by draft step."""
        return ", ".join(
            f"{name} {' '.join(f'{value:.3f}' for value in values)}"
            for name, values in self.averages.items()
        )

    def advance(self) -> None:
        """One step of the optimiser."""
        for group in self._optimiser.param_groups:
            group["lr"] = self._plan.schedule.learning_rate(self.step)
        self._optimiser.zero_grad()
        self._loss().backward()
        torch.nn.utils.clip_grad_norm_(self.drafter.parameters(), 1.0)
        self._optimiser.step()
        self.step += 1

    def _loss(self) -> Tensor:
        """A scalar with the loss's gradient."""
        corpus, plan = self._corpus, self._plan
        batch = corpus.batch(self._batches[self.step])
        window = Window.of(batch, plan.before)
        steps = plan.schedule.draft_steps(self.step)
        narrow = {name: p.bfloat16() for name, p in self.drafter.named_parameters()}
        read = replace(batch, features=noisy(batch.features, plan.noise, self.step))
        drafts = functional_call(self.drafter, narrow, (read, window, corpus.embedding, steps))
        rows = window.valid
        drafts = drafts[:, rows]
        target = window.take(batch.features[..., 3, :], 1)[rows]
        # Step s has no draft for the first s positions of the window.
        place = torch.arange(rows.shape[1]).expand_as(rows)[rows]
        weights = (place >= torch.arange(steps)[:, None]).float()
        weights *= torch.where(window.asked[rows], plan.before_weight, 1.0)
        weights *= plan.discount ** torch.arange(steps)[:, None] / weights[0].sum()
        head, bias = self._head()
        loss = distance(drafts.detach(), target, weights, head, bias)
        self._note("cross-entropy", loss.cross_entropy)
        self._note("acceptance", loss.acceptance)
        self._note("agreement", loss.agreement)
        total = attach(drafts, loss.gradient)
        if plan.state_weight:
            apart = F.smooth_l1_loss(
                drafts.float(), target.float().expand_as(drafts), reduction="none"
            )
            apart = (apart.mean(-1) * weights).sum()
            self._note("state", apart.detach()[None])
            total = total + plan.state_weight * apart
        return total

    def _head(self) -> tuple[Tensor, Tensor | None]:
        """Rows of the output head for this step, and what is added to their logits."""
        if self._plan.reduced:
            return self._corpus.head, None
        tokens, bias = self._corpus.some_tokens(self.step)
        return self._corpus.embedding[tokens], bias

    def _note(self, name: str, values: Tensor) -> None:
        """Running averages, each begun at the first value of its draft step."""
        known = self.averages.setdefault(name, [])
        for place, value in enumerate(values.tolist()):
            if place == len(known):
                known.append(value)
            known[place] += 0.05 * (value - known[place])


def noisy(features: Tensor, noise: float, seed: int) -> Tensor:
    """``features`` ``[..., H]`` with uniform noise of up to ``noise`` of each row's own size."""
    generator = torch.Generator().manual_seed(seed)
    size = features.float().square().mean(-1, keepdim=True).sqrt()
    uniform = torch.rand(features.shape, generator=generator).mul_(2).sub_(1)
    return features + (uniform * (noise * size)).to(features.dtype)


def export(folder: Path, plan: HeadPlan, corpus: Corpus, run: Run) -> None:
    """``model.safetensors``, ``config.json``, and ``training.json`` last."""
    tensors = {name: p.detach().bfloat16() for name, p in run.drafter.named_parameters()}
    if plan.reduced:
        tensors["d2t"] = corpus.d2t
    write_tensors(folder / "model.safetensors", tensors)
    target = json.loads((smollm2() / "config.json").read_text(encoding="utf-8"))
    write_json(folder / "config.json", plan.config(target))
    described = {
        "version": VERSION,
        "digest": identity(plan, corpus),
        "made_on": machine(),
        "requests": prompts.digest(),
        "seed": plan.seed,
        "schedule": asdict(plan.schedule),
        "batch": plan.batch,
        "discount": plan.discount,
        "state_weight": plan.state_weight,
        "noise": plan.noise,
        "before": plan.before,
        "before_weight": plan.before_weight,
        "sequences": len(corpus.sequences(held_out=False)),
        "tokens": sum(
            corpus.offsets[n + 1] - corpus.offsets[n] for n in corpus.sequences(held_out=False)
        ),
        "left_out": corpus.left_out,
        "averages": run.averages,
    }
    write_json(folder / "training.json", described)
