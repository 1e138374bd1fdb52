"""Stage ``draft-model``: a plain draft model for SmolLM2, a Llama 32 wide.

Nearly all of it is the embedding of 49,152 tokens, which is its output head too. It starts as the
target's own, in the 32 directions that hold most of it. Each position of the corpus teaches the
target's distribution of the next token, the prompts' less than the answers', by the loss of
:mod:`vllm_av.training.loss` over the frequent tokens and some of the others. It learns on the
corpus's first instalment: what a later one adds does not change it.

Rule: what is random in a step follows from its number.
"""

from dataclasses import asdict, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from vllm_av.training import corpus_files, prompts, tiny_export, tiny_loop
from vllm_av.training.data import Corpus, SequenceOrder, frequent, open_corpus
from vllm_av.training.layers import Norm
from vllm_av.training.loss import CROSS_ENTROPY, VARIATION, attach, compared
from vllm_av.training.tiny_model import Layer, Shape, compute_in
from vllm_av.training.whole import digest, is_made, machine, write_json

FOLDER = "smollm2-draft"
VERSION = 1
"""Of this script; a change of what it makes raises it."""

SHAPE = Shape(
    vocabulary=49152,
    hidden=32,
    intermediate=512,
    layers=2,
    heads=4,
    kv_heads=2,
    bias=False,
    positions=8192,
)
PLAN = tiny_loop.LoopPlan(steps=500, matrix_rate=8e-3, rate=8e-3)
_SEQUENCES = 8  # of a step
_CHUNK = 256  # rows whose distributions are in memory at once
_PROMPT = 0.3  # weight of a position there
_SPREAD = 0.1  # root mean square of the embedding's elements at the start


class Body(nn.Module):
    """What the checkpoint keeps below ``model.``."""

    def __init__(self, shape: Shape, embedding: Tensor) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding.from_pretrained(embedding, freeze=False)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = Norm(shape.hidden, shape.epsilon)


class DraftModel(nn.Module):
    """A Llama whose embedding is its output head.

    Args:
        shape: its sizes.
        embedding: float32 ``[vocabulary, hidden]``, to start from.
    """

    def __init__(self, shape: Shape, embedding: Tensor) -> None:
        super().__init__()
        self.shape = shape
        self.model = Body(shape, embedding)

    def forward(self, tokens: Tensor) -> Tensor:
        """int64 ``[B, T]`` -> ``[B, T, hidden]``; the logits are its product with the embedding."""
        positions = torch.arange(tokens.shape[1])
        x = self.model.embed_tokens(tokens)
        for layer in self.model.layers:
            x, _ = layer(x, positions)
        normed: Tensor = self.model.norm(x)
        return normed


def run(work: Path) -> None:
    """Train the model into ``work/smollm2-draft``; nothing where that is whole."""
    folder = work / FOLDER
    instalments = [row["round"] for row in corpus_files.described(work / "corpus")]
    corpus = of_first_instalment(open_corpus(work), instalments)
    wanted = identity(SHAPE, PLAN, corpus)
    if is_made(folder / "training.json", wanted):
        return
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = DraftModel(SHAPE, projected(corpus.embedding, SHAPE.hidden))
    compute_in(model, torch.bfloat16)
    figures = train(model, corpus, PLAN, folder / "state.pt")
    export(model, folder)
    record = {
        "version": VERSION,
        "digest": wanted,
        "made_on": machine(),
        "requests": prompts.digest(),
        "left_out": corpus.left_out,
        "shape": asdict(SHAPE),
        "batch": _SEQUENCES,
        "seed": 0,
    }
    write_json(folder / "training.json", record | asdict(PLAN) | figures)


def identity(shape: Shape, plan: tiny_loop.LoopPlan, corpus: Corpus) -> str:
    """Of what a run makes its model from."""
    return digest("draft model", VERSION, shape, plan, _SEQUENCES, corpus.digest)


def of_first_instalment(corpus: Corpus, instalments: list[int]) -> Corpus:
    """``corpus`` where whatever is of another instalment than 0 counts as held out."""
    held_out = [held or each > 0 for held, each in zip(corpus.held_out, instalments, strict=True)]
    spans = zip(corpus.offsets, corpus.offsets[1:], held_out, strict=False)
    trained = torch.cat([corpus.ids[start:end] for start, end, held in spans if not held])
    vocabulary = frequent(trained, len(corpus.embedding), len(corpus.vocabulary))
    return replace(corpus, held_out=held_out, vocabulary=vocabulary)


def projected(embedding: Tensor, hidden: int) -> Tensor:
    """The rows in the ``hidden`` directions that hold most of them, float32 ``[V, hidden]``."""
    rows = embedding.float()
    rows = rows - rows.mean(0)
    # Ascending eigenvalues: the last directions hold most. Their sign is nobody's: fix it.
    directions = torch.linalg.eigh(rows.T @ rows).eigenvectors[:, -hidden:]
    directions = directions * directions.sum(0).sign()
    small = rows @ directions
    return small * (_SPREAD / small.square().mean().sqrt())


def train(
    model: DraftModel, corpus: Corpus, plan: tiny_loop.LoopPlan, state: Path
) -> dict[str, float]:
    """Train on the part of ``corpus`` that is not held out. Returns smoothed figures.

    ``accepted`` is the probability, at temperature 1, that a draft is accepted where the answer
    is the target's.
    """
    lengths = {
        number: corpus.offsets[number + 1] - corpus.offsets[number]
        for number in corpus.sequences(held_out=False)
    }
    batches = SequenceOrder(lengths, _SEQUENCES)

    def loss(step: int) -> tuple[Tensor, dict[str, float]]:
        batch = corpus.batch(batches[step])
        place = torch.arange(batch.ids.shape[1])
        known = place < batch.lengths[:, None] - 1
        weights = torch.where(place < batch.prompt_lengths[:, None] - 1, _PROMPT, 1.0)[known]
        tokens, bias = corpus.some_tokens(step)
        return distilled(
            model,
            model(batch.ids)[known],
            batch.features[known][:, 3] @ corpus.embedding[tokens].T,
            weights,
            tokens,
            bias,
        )

    wanted = identity(model.shape, plan, corpus)
    return tiny_loop.train(
        model.named_parameters(),
        loss,
        plan,
        state,
        wanted,
        lambda line: print(f"draft {line}", flush=True),
    )


def distilled(
    model: DraftModel,
    features: Tensor,
    wanted: Tensor,
    weights: Tensor,
    tokens: Tensor,
    bias: Tensor,
) -> tuple[Tensor, dict[str, float]]:
    """A scalar with the loss's gradient, and figures.

    Args:
        model: whose embedding turns ``features`` into logits.
        features: ``[n, hidden]``, with their graph.
        wanted: ``[n, V]``, the target's logits of ``tokens``, any dtype.
        weights: float32 ``[n]``; a weight of 1 marks what the target wrote.
        tokens: int64 ``[V]``.
        bias: float32 ``[V]``, added to both logits.
    """
    rows = model.model.embed_tokens.weight[tokens]
    # No [n, V] graph outlives its chunk: gradients are gathered at these two.
    read, head = features.detach().requires_grad_(), rows.detach().requires_grad_()
    share, accepted, entropy = weights / weights.sum(), 0.0, 0.0
    for start in range(0, len(read), _CHUNK):
        part = slice(start, start + _CHUNK)
        p = (wanted[part].float() + bias).softmax(-1)
        log_q = ((read[part].bfloat16() @ head.bfloat16().T).float() + bias).log_softmax(-1)
        cross_entropy, variation = compared(p, log_q)
        (share[part] @ (CROSS_ENTROPY * cross_entropy + VARIATION * variation)).backward()
        answered = weights[part] == 1
        accepted += (1 - variation.detach())[answered].sum().item()
        entropy += cross_entropy.detach()[answered].sum().item()
    assert read.grad is not None
    assert head.grad is not None
    count = max(int((weights == 1).sum()), 1)
    figures = {"cross_entropy": entropy / count, "accepted": accepted / count}
    return attach(features, read.grad) + attach(rows, head.grad), figures


def export(model: DraftModel, folder: Path) -> None:
    """Write config and bfloat16 weights as vLLM and transformers load them."""
    shape = model.shape
    names = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    rest = {
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    config = names | shape.config(head_dim=shape.head) | rest
    tiny_export.write(folder, config, model, torch.bfloat16)
