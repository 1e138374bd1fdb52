"""``vllm-av check``: may this model, GPU and config run adaptive verification? Every reason."""

from typing import Annotated

import typer

from vllm_av.cli.output import EXIT_NO, emit, mistakes, whoever_reads
from vllm_av.config.text import shown
from vllm_av.errors import CheckError, Code
from vllm_av.preflight.backends.gpus import AUTO
from vllm_av.preflight.check import Ways, check
from vllm_av.preflight.flags import asks_for_json, pasted
from vllm_av.preflight.question import Question
from vllm_av.preflight.reasons import Verdict

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_ANY_FLAG = {"allow_extra_args": True, "ignore_unknown_options": True}


@app.command(
    context_settings=_ANY_FLAG,
    help="May this run adaptive verification? Names every reason; exit 0 yes, 1 no or unknown. "
    "Takes the flags of `vllm serve`, or a whole command line of it: "
    "vllm-av check --gpu h100 vllm serve MODEL --speculative-config JSON ...",
    epilog="Nothing is loaded and no GPU is needed: of the model and the drafter, config.json and "
    "the list of tensors are read, from their folders or from the hub's cache.",
)
def main(
    context: typer.Context,
    gpu: Annotated[
        list[str] | None,
        typer.Option(
            help="On which GPU: auto is this machine's; sm80, sm90, sm100, sm120, gfx942, cpu, "
            "or a name such as h100."
        ),
    ] = None,
    capabilities: Annotated[
        list[str] | None,
        typer.Option(
            help="Who is asked about attention backends: table (fast), vllm (the installed one's "
            "own classes), or auto: vllm where it is installed, else table."
        ),
    ] = None,
    vllm_version: Annotated[
        list[str] | None, typer.Option(help="Of which vLLM; without it the installed one.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Answer with one JSON object.")] = False,
) -> None:
    """Answer."""
    as_json = as_json or asks_for_json(context.args)
    with mistakes(as_json=as_json):
        served = pasted(context.args)
        name, version = _once("--gpu", gpu), _once("--vllm-version", vllm_version)
        question = Question(served.args, gpu=AUTO if name is None else name, vllm=version)
        question = question.started_by(served)
        answer = check(question, _ways(_once("--capabilities", capabilities)))

    def text() -> None:
        for line in answer.lines():
            typer.echo(line)

    with whoever_reads():  # the verdict is the exit code, as in `check ... | grep -q AV-CHECK-LORA`
        emit(answer.as_dict(), as_json=as_json, text=text)
    if answer.verdict is not Verdict.YES:
        raise typer.Exit(EXIT_NO)


def _once(option: str, values: list[str] | None) -> str | None:
    if values is not None and len(values) > 1:
        raise CheckError(
            Code.QUESTION_FLAG,
            given=f"{option} is given twice: {' and '.join(map(shown, values[:2]))}",
            allowed="one answer at a time",
            fix="remove one",
        )
    return values[0] if values else None


def _ways(name: str | None) -> Ways:
    try:
        return Ways.AUTO if name is None else Ways(name)
    except ValueError:
        raise CheckError(
            Code.QUESTION_FLAG,
            given=f"--capabilities is {shown(name)}",
            allowed=f"one of {', '.join(Ways)}",
            fix="correct it, or leave it out",
        ) from None
