"""Stage ``mtp``: a small target of this package's own, with its MTP layer.

1. A tokenizer, and the target, from :mod:`tiny_text`.
2. Rows that the target writes itself, from beginnings of that text.
3. The MTP layer on these rows, the target frozen: it learns the target's distribution at each of
   the next positions, five draft steps deep as the engine runs it, but after the row's own tokens
   instead of its drafts. Draft step s weighs 0.85^s; the loss is :mod:`vllm_av.training.loss`'s.

Rule: what the layer learns to foresee, the target itself has said.
"""

import hashlib
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from vllm_av.training import reading, tiny_export, tiny_loop, tiny_text, tiny_tokenizer
from vllm_av.training.library import is_held_out
from vllm_av.training.loss import CROSS_ENTROPY, VARIATION, compared
from vllm_av.training.tiny_model import Shape, TinyModel, compute_in
from vllm_av.training.whole import claim, digest, is_made, machine, write_json, written

FOLDER = "mimo-mtp"
VERSION = 2
"""Of this script; a change of what it makes raises it."""

SHAPE = Shape()
TARGET = tiny_loop.LoopPlan(steps=700, matrix_rate=8e-3, rate=4e-3)
LAYER = tiny_loop.LoopPlan(steps=300, matrix_rate=8e-3, rate=4e-3)
DRAFTS = 5
TOKENS = 4096  # of a step of the target
_LENGTHS = (256, 256, 256, 512)  # of its windows, in turn
_ROWS, _TOGETHER = 1024, 128  # that the target writes
_PROMPT, NEW = 128, 192  # tokens of such a row
GREEDY = 0.3  # part of the rows
ROWS_A_STEP = 8
_DECAY = 0.85  # of a draft step's weight, from one to the next


def run(work: Path) -> None:
    """Make ``work/mimo-mtp``, or what is missing of it."""
    folder, parts = work / FOLDER, work / "mtp"
    parts.mkdir(parents=True, exist_ok=True)
    tokens, held_out = text(parts)
    constants = (TOKENS, _LENGTHS, _ROWS, _TOGETHER, _PROMPT, NEW, GREEDY, ROWS_A_STEP, DRAFTS)
    wanted = digest("mtp", VERSION, SHAPE, TARGET, LAYER, constants, _of(tokens))
    if is_made(folder / "training.json", wanted):
        return
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = TinyModel(SHAPE)
    compute_in(model, torch.bfloat16)
    target = train_target(model, tokens, TARGET, parts / "target.pt")
    rows = own_rows(model, tokens, parts / "rows.npy")
    layer = train_layer(model, rows, LAYER, parts / "layer.pt")
    tiny_export.save(model, folder)
    tiny_tokenizer.save(_tokenizer(parts), folder, SHAPE.positions)
    record = {
        "version": VERSION,
        "digest": wanted,
        "made_on": machine(),
        "text": _of(tokens),
        "shape": asdict(SHAPE),
        "target": asdict(TARGET) | target | {"held_out": loss_over(model, held_out)},
        "layer": asdict(LAYER) | layer,
        "training_tokens": len(tokens),
        "rows": list(rows.shape),
        "seed": 0,
    }
    write_json(folder / "training.json", record)


def text(parts: Path) -> tuple[Tensor, Tensor]:
    """Token ids of the training text and of the held-out files, int64, documents one after another.

    Each document ends with the token that ends a text.
    """
    paths = [parts / "trained.npy", parts / "held-out.npy"]
    documents = tiny_text.documents()
    for path in paths:
        claim(path, digest("text", VERSION, SHAPE.vocabulary, documents))
    if not all(path.exists() for path in (*paths, parts / "tokenizer.json")):
        tokenizer = tiny_tokenizer.trained(documents, SHAPE.vocabulary)
        with written(parts / "tokenizer.json") as path:
            tokenizer.save(str(path))
        others = [
            path.read_text(encoding="utf-8")
            for name, path in tiny_text.files()
            if is_held_out(name)
        ]
        for path, texts in zip(paths, (documents, others), strict=True):
            ids = [
                i
                for each in tokenizer.encode_batch(texts)
                for i in (*each.ids, tiny_tokenizer.END_ID)
            ]
            _save(path, np.array(ids, np.int16))
    trained, others_ids = (torch.from_numpy(reading.array(path).astype(np.int64)) for path in paths)
    return trained, others_ids


def windows(tokens: Tensor, count: int, length: int, seed: int) -> Tensor:
    """``count`` windows of ``tokens`` at random places, int64 ``[count, length]``."""
    generator = torch.Generator().manual_seed(seed)
    starts = torch.randint(0, len(tokens) - length + 1, (count,), generator=generator)
    return tokens[starts[:, None] + torch.arange(length)]


def train_target(
    model: TinyModel, tokens: Tensor, plan: tiny_loop.LoopPlan, state: Path
) -> dict[str, float]:
    """Next-token cross-entropy; the MTP layer is left as it is. Returns smoothed figures."""

    def loss(step: int) -> tuple[Tensor, dict[str, float]]:
        length = _LENGTHS[step % len(_LENGTHS)]
        rows = windows(tokens, TOKENS // length, length + 1, step)
        value = _cross_entropy(model, rows)
        return value, {"cross_entropy": value.item()}

    named = ((name, each) for name, each in model.named_parameters() if "mtp_" not in name)
    wanted = digest("target", VERSION, model.shape, plan, TOKENS, _LENGTHS, _of(tokens))
    return tiny_loop.train(named, loss, plan, state, wanted, _said("target"))


def loss_over(model: TinyModel, tokens: Tensor) -> float:
    """Mean cross-entropy of the target over ``tokens``, in nats a token, in windows of 256."""
    usable = tokens[: (len(tokens) - 1) // 256 * 256 + 1]
    rows = torch.stack([usable[i : i + 257] for i in range(0, len(usable) - 1, 256)])
    with torch.no_grad():
        parts = [float(_cross_entropy(model, each)) * len(each) for each in rows.split(32)]
    return sum(parts) / len(rows)


def own_rows(model: TinyModel, tokens: Tensor, path: Path) -> Tensor:
    """Rows that the target continues, int64 ``[rows, _PROMPT + NEW]``; kept in ``path``.

    Raises:
        TrainingError: ``AV-TRAINING-WORK`` if ``path`` holds another target's.
    """
    weights = [_of(each) for name, each in model.state_dict().items() if "mtp_" not in name]
    sizes = (_ROWS, _TOGETHER, _PROMPT, NEW, GREEDY)
    claim(path, digest("rows", VERSION, sizes, _of(tokens), weights))
    if not path.exists():
        groups = []
        for group in range(_ROWS // _TOGETHER):
            prompts = windows(tokens, _TOGETHER, _PROMPT, 10**6 + group)
            greedy = torch.arange(_TOGETHER) < GREEDY * _TOGETHER
            groups.append(continued(model, prompts, NEW, greedy, group))
            print(f"rows {(group + 1) * _TOGETHER}/{_ROWS}", flush=True)
        _save(path, torch.cat(groups).numpy().astype(np.int16))
    return torch.from_numpy(reading.array(path).astype(np.int64))


def continued(model: TinyModel, prompts: Tensor, new: int, greedy: Tensor, seed: int) -> Tensor:
    """``prompts`` with ``new`` tokens more: the likeliest where ``greedy``, else drawn.

    Args:
        model: whose target continues them.
        prompts: int64 ``[B, T]``.
        new: how many tokens.
        greedy: bool ``[B]``.
        seed: of what is drawn.
    """
    generator = torch.Generator().manual_seed(seed)
    row = [prompts]
    with torch.no_grad():
        hidden, keys = model.hidden(prompts)
        for _ in range(new):
            logits = model.logits(hidden[:, -1])
            drawn = torch.multinomial(logits.softmax(-1), 1, generator=generator)
            token = torch.where(greedy[:, None], logits.argmax(-1, keepdim=True), drawn)
            row.append(token)
            hidden, keys = model.hidden(token, keys)
    return torch.cat(row, 1)


def train_layer(
    model: TinyModel, rows: Tensor, plan: tiny_loop.LoopPlan, state: Path
) -> dict[str, float]:
    """Train the MTP layer on ``rows``, int64 ``[N, T]``. Returns smoothed figures.

    ``accepted_s`` is the probability, at temperature 1, that a draft of step s is accepted, on the
    average over all positions of the rows. The drafts before it are the rows' own tokens there,
    accepted or not, so that it is not the engine's acceptance given the earlier ones.
    """

    def loss(step: int) -> tuple[Tensor, dict[str, float]]:
        batch = rows[torch.randint(0, len(rows), (ROWS_A_STEP,))]
        drafts = 3 if step < plan.steps // 2 else DRAFTS
        accepted, value = draft_loss(model, batch, drafts)
        return value, {f"accepted_{number}": each for number, each in enumerate(accepted)}

    named = ((name, each) for name, each in model.named_parameters() if "mtp_" in name)
    wanted = digest("layer", VERSION, model.shape, plan, ROWS_A_STEP, DRAFTS, _of(rows))
    return tiny_loop.train(named, loss, plan, state, wanted, _said("layer"))


def draft_loss(model: TinyModel, rows: Tensor, drafts: int) -> tuple[list[float], Tensor]:
    """Acceptance of each draft step, and the loss; see the module's head.

    Args:
        model: whose MTP layer drafts for its target.
        rows: int64 ``[B, T]``.
        drafts: how many draft steps.
    """
    # The first position that has all its drafts' targets in the row, and so on to the last.
    starts = rows.shape[1] - drafts
    with torch.no_grad():
        hidden, _ = model.hidden(rows)
        wanted = model.logits(hidden).softmax(-1)
    accepted, value = [], torch.zeros(())
    for step, logits in enumerate(model.drafts(hidden[:, :starts], rows[:, 1:], drafts)):
        p = wanted[:, step + 1 : step + 1 + starts]
        log_q = logits.log_softmax(-1)
        cross_entropy, variation = (each.mean() for each in compared(p, log_q))
        value = value + _DECAY**step * (CROSS_ENTROPY * cross_entropy + VARIATION * variation)
        accepted.append(1 - variation.item())
    return accepted, value


def _cross_entropy(model: TinyModel, rows: Tensor) -> Tensor:
    hidden, _ = model.hidden(rows[:, :-1])
    return functional.cross_entropy(model.logits(hidden).flatten(0, 1), rows[:, 1:].flatten())


def _tokenizer(parts: Path) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(parts / "tokenizer.json"))


def _of(values: Tensor) -> str:
    return hashlib.sha256(values.detach().contiguous().numpy().tobytes()).hexdigest()


def _save(path: Path, values: Any) -> None:
    with written(path) as part, part.open("wb") as stream:
        np.save(stream, values)


def _said(name: str) -> Callable[[str], None]:
    return lambda line: print(f"{name} {line}", flush=True)
