"""``vllm-av doctor``: what a bug report needs, and what is wrong."""

from collections.abc import Iterable
from typing import Annotated

import typer

from vllm_av import __version__
from vllm_av.cli.output import EXIT_NO, emit
from vllm_av.doctor import Report, examine
from vllm_av.doctor.servers import running
from vllm_av.doctor.settings import plain

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def doctor(
    ask_vllm: Annotated[
        bool,
        typer.Option(
            help="Let vLLM's own classes judge the running servers, which takes seconds each; "
            "else the tables of this package do."
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say what is installed here and what is wrong with it; exit 1 if something is.

    Servers of this user that run now are put to the check; what it says of them changes no exit
    code.
    """
    report = examine(running=running(), ask_vllm=ask_vllm)
    emit(report.as_dict(), as_json=as_json, text=lambda: _print(report))
    if not report.healthy:
        raise typer.Exit(EXIT_NO)


def _print(report: Report) -> None:
    machine = report.machine
    typer.echo("environment")
    _row("vllm_av", __version__)
    _row("python", f"{machine.python} ({machine.executable})")
    _row("system", machine.system)
    _row("cpu", f"{machine.cpu or 'unknown'}, {machine.cores} cores")
    _row("cpu flags", ", ".join(machine.cpu_flags) or "none that matter")
    _row("memory", f"{machine.memory_gib} GiB" if machine.memory_gib else "unknown")
    _row("compiler", machine.compiler or "none")
    for gpu in machine.gpus:
        facts = (
            gpu.capability and f"capability {gpu.capability}",
            gpu.driver and f"driver {gpu.driver}",
        )
        memory = f"{gpu.memory_mib} MiB" if gpu.memory_mib else None
        _row("gpu", ", ".join(filter(None, (gpu.name, *facts, memory))))
    if not machine.gpus:
        _row("gpu", "none")
    _section("packages")
    for name, version in report.packages().items():
        dist = report.installed.dists.get(name)
        place = f" ({dist.location})" if dist and name.startswith("vllm") else ""
        _row(name, (version or "not installed") + place)
    _section("patches")
    _row(report.patches.state, report.patches.line)
    for name in report.patches.patches:
        _row("", name)
    _section("plugins")
    _rows("", (f"{p.group}: {p.name} = {p.value} ({p.dist})" for p in report.plugins))
    _section("triton backends")
    _rows("", (f"{b.name} ({b.dist}): active: {b.active}, {b.why}" for b in report.backends))
    _section("attention backends, by kind of layers")
    _rows("", report.attention, nothing="not known: no vLLM, or no GPU that it would run on")
    _row("flashinfer", _flashinfer(report))
    _section("running servers, by `vllm-av check`")
    for server in report.servers:
        _row("", str(server))
        for line in server.lines:
            _row("", f"  {line}")
    for process in report.titled:
        _row("", f"process {process.pid}: {process}")
    if not (report.servers or report.titled):
        _row("", "none")
    _section("settings")
    _rows("", (f"{name}={value}" for name, value in report.settings.items()))
    _section("findings")
    _rows("", report.findings, nothing="nothing is wrong")


def _flashinfer(report: Report) -> str:
    found = report.flashinfer
    if found.version is None:
        return "not installed"
    takes = {True: "takes", False: "does not take", None: "may or may not take"}
    kernel = f"; decodes with {report.decode_kernel} here" if report.decode_kernel else ""
    return f"{found.version}, {takes[found.takes_lengths]} queries of several lengths{kernel}"


def _section(title: str) -> None:
    typer.echo(f"\n{title}")


def _row(name: str, value: str) -> None:
    typer.echo(plain(f"  {name:<20} {value}" if name else f"  {value}"))


def _rows(name: str, values: Iterable[object], nothing: str = "none") -> None:
    for value in list(values) or [nothing]:
        _row(name, str(value))
