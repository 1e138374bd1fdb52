"""Whether a folder holds a drafter as its stage writes it.

vLLM, which loads it otherwise, names neither the file nor what is wrong with it.

Rule: every file is there; the weights are read to their end and finite; the config has the
drafter's architecture, and the weights' reduced vocabulary, number of layers, and hidden and
intermediate size. No other name or shape is looked at.
"""

from pathlib import Path
from typing import Any

from vllm_av.demo.contents import CONFIG, WEIGHTS, damaged, read
from vllm_av.demo.drafter import Drafter

ARCHITECTURES = {
    "eagle": "LlamaForCausalLM",
    "eagle3": "Eagle3LlamaForCausalLM",
    "dflash": "DFlashDraftModel",
    "dspark": "Qwen3DSparkModel",
    "mtp": "MiMoForCausalLM",
    "draft_model": "LlamaForCausalLM",
}
"""What ``config.json`` says, by vLLM's method."""

TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
"""What a drafter that holds its target has beside its weights."""

_LAYERS = "layers."
_OF_A_LAYER = ".mlp.down_proj.weight"
_FIX = "give a folder that the stage of this drafter has finished"


def check(drafter: Drafter, folder: Path) -> None:
    """Refuse ``folder`` where it is not ``drafter``, whole.

    Raises:
        DemoError: ``AV-DEMO-CHECKPOINT`` naming the file and what is wrong with it.
    """
    names = (CONFIG, WEIGHTS, *(TOKENIZER if drafter.own_target else ()))
    for name in names:
        if not (folder / name).is_file():
            raise damaged(folder / name, "is not there", fix=_FIX)
    contents = read(folder)
    wrong = _wrong(drafter, contents.config, contents.weights)
    if wrong is not None:
        raise damaged(folder / CONFIG, wrong, fix=_FIX)


def _wrong(drafter: Drafter, config: dict[str, Any], weights: dict[str, Any]) -> str | None:
    wanted = ARCHITECTURES[drafter.method]
    if config.get("architectures") != [wanted]:
        said = repr(config.get("architectures"))
        return f"architectures is {said:.60} and not ['{wanted}'], which {drafter.name} is"
    layers = [
        tuple(weight.shape)
        for name, weight in weights.items()
        if name.removeprefix("model.").startswith(_LAYERS) and name.endswith(_OF_A_LAYER)
    ]
    size = config.get("hidden_size"), config.get("intermediate_size")
    if layers != [size] * len(layers) or len(layers) != config.get("num_hidden_layers"):
        said = f"{config.get('num_hidden_layers')!r:.20} layers of {list(size)!r:.40}"
        return f"it says {said}, and those in {WEIGHTS} are {layers!r:.60}"
    return None
