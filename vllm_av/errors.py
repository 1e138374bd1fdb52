"""The exception tree and its stable codes.

    VllmAvError
    ├── SetupError      the machine or the environment lacks something
    ├── PatchError      a patch series or a vLLM tree is not as it should be
    ├── KernelError     a Triton kernel cannot be compiled for the CPU
    ├── ConfigError     a config has a mistake
    ├── ScorerError     a scorer does not exist, does not fit the drafter, or failed
    ├── DemoError       the demonstration cannot run as asked
    ├── TrainingError   a drafter cannot be trained or taken over as asked
    ├── TraceError      a trace cannot be read, written or used as asked
    ├── StateError      a scorer's state cannot be kept, or is not this server's
    ├── CostTableError  what steps cost cannot be read or kept, or is not this engine's
    ├── CheckError      a question to the preflight check is wrong
    └── RefusedError    an engine cannot do adaptive verification; it has a line for each reason

Every error is one line: what was given, what is allowed, what to do.
The code never changes its meaning once released; a code is retired, not reused.
"""

from collections.abc import Callable
from enum import StrEnum


class Code(StrEnum):
    """Stable codes, one meaning each."""

    USAGE = "AV-USAGE"
    """The command line names a verb, an option or a value that does not exist."""
    VERB_IMPORT = "AV-VERB-IMPORT"
    """The command or the module of a verb cannot be imported in this environment."""
    INTERNAL = "AV-INTERNAL"
    """A fault of vllm_av itself; the line names the file that holds the traceback."""
    STDOUT = "AV-STDOUT"
    """The answer cannot be written to standard output."""
    SETUP_PYTHON = "AV-SETUP-PYTHON"
    """Set-up found no Python of the version that the lock is made for."""
    SETUP_MACHINE = "AV-SETUP-MACHINE"
    """Set-up needs something that this machine lacks: a compiler, the venv module, disk, x86_64."""
    SETUP_LOCK = "AV-SETUP-LOCK"
    """``requirements.lock`` is not a list of ``name==version``, or lacks a package."""
    SETUP_WRITE = "AV-SETUP-WRITE"
    """Set-up cannot read or write a file, or start a program: a full disk, missing rights."""
    SETUP_VENV = "AV-SETUP-VENV"
    """``.venv`` cannot be made."""
    SETUP_INSTALL = "AV-SETUP-INSTALL"
    """pip could not install what the lock pins."""
    SETUP_IMPORT = "AV-SETUP-IMPORT"
    """torch, transformers or vllm do not import after they were installed."""
    SETUP_PATCHES = "AV-SETUP-PATCHES"
    """The patch series could not be applied during set-up."""
    ENV_NO_VLLM = "AV-ENV-NO-VLLM"
    """doctor: no vLLM is installed in this environment."""
    ENV_TWO_VLLM = "AV-ENV-TWO-VLLM"
    """doctor: two distributions of vLLM share one package folder."""
    ENV_MIXTURE = "AV-ENV-MIXTURE"
    """doctor: this vLLM is one version's Python over another's operators, made for tests."""
    ENV_PATCHES = "AV-ENV-PATCHES"
    """doctor: there is a patch series for this vLLM, and it is not applied."""
    ENV_PLUGIN = "AV-ENV-PLUGIN"
    """doctor: vLLM will not load vllm_av's plugin."""
    ENV_BACKENDS = "AV-ENV-BACKENDS"
    """doctor: two packages register a Triton backend under one name."""
    ENV_COMPANION = "AV-ENV-COMPANION"
    """doctor: a build of torchvision, torchaudio or torchcodec for CUDA lies beside a CPU torch."""
    ENV_MISSING = "AV-ENV-MISSING"
    """doctor: a package that the CPU engine needs is not installed."""
    ENV_METADATA = "AV-ENV-METADATA"
    """doctor: a distribution's metadata is broken."""
    ENV_COMPILER = "AV-ENV-COMPILER"
    """doctor: there is no C compiler."""
    ENV_THREADS = "AV-ENV-THREADS"
    """doctor: OpenMP's threads are bound to the cores of a machine that has few."""
    KERNEL_UNSUPPORTED = "AV-KERNEL-UNSUPPORTED"
    """A Triton kernel has a construct that is not compiled for the CPU; the interpreter runs it."""
    KERNEL_ARGUMENT = "AV-KERNEL-ARGUMENT"
    """A Triton kernel was launched on the CPU with an argument that it cannot take."""
    KERNEL_ASSERTION = "AV-KERNEL-ASSERTION"
    """A Triton kernel's static_assert does not hold for the constants of a launch."""
    KERNEL_NEITHER = "AV-KERNEL-NEITHER"
    """A Triton kernel is not compiled for the CPU, and Triton's interpreter cannot run it."""
    KERNEL_NO_HOOK = "AV-KERNEL-NO-HOOK"
    """A Triton kernel was launched on the CPU, and vllm_av's plugin is not loaded."""
    CACHE_DIR = "AV-CACHE-DIR"
    """The cache folder cannot be made or written."""
    PATCH_NO_VLLM = "AV-PATCH-NO-VLLM"
    """No vLLM distribution is installed where the patches should go."""
    PATCH_TWO_VLLM = "AV-PATCH-TWO-VLLM"
    """More than one vLLM, or more than one environment, lies where one was expected."""
    PATCH_NO_SERIES = "AV-PATCH-NO-SERIES"
    """No series, group or patch of that name is shipped for the installed vLLM version."""
    PATCH_SERIES = "AV-PATCH-SERIES"
    """A patch or its message is not in the form that the series requires."""
    PATCH_CONFLICT = "AV-PATCH-CONFLICT"
    """A patch does not apply exactly."""
    PATCH_NOT_PRISTINE = "AV-PATCH-NOT-PRISTINE"
    """A file that the series touches is not as the vLLM wheel brought it."""
    PATCH_DRIFT = "AV-PATCH-DRIFT"
    """A file was edited after the series had been applied."""
    PATCH_IN_USE = "AV-PATCH-IN-USE"
    """A running process uses the vLLM tree."""
    PATCH_BUSY = "AV-PATCH-BUSY"
    """Another patch command holds the vLLM tree."""
    PATCH_WRITE = "AV-PATCH-WRITE"
    """The vLLM tree cannot be read or written."""
    PATCH_STATE = "AV-PATCH-STATE"
    """The record of what was applied is damaged or does not fit the tree."""
    PATCH_EXPORT = "AV-PATCH-EXPORT"
    """It is not clear which patch an edit belongs to, or there is nothing to export."""
    PATCH_WHEEL = "AV-PATCH-WHEEL"
    """The pristine wheel that a series is checked against cannot be had, or is another one."""
    PATCH_VERSION = "AV-PATCH-VERSION"
    """A new series is asked for what is no version of vLLM, has a series, or is older than all."""
    PATCH_UPSTREAM = "AV-PATCH-UPSTREAM"
    """A patch lacks what it is sent to vLLM with, or that is not as it must be."""
    IMAGE_BASE = "AV-IMAGE-BASE"
    """An image is to be made from another one than its target is for, or at no time."""
    IMAGE_NEEDS = "AV-IMAGE-NEEDS"
    """The base of an image lacks a package that vllm_av needs, or has one too old for it."""
    IMAGE_WHEEL = "AV-IMAGE-WHEEL"
    """There is not one whole wheel of vllm_av to put into an image."""
    IMAGE_LABELS = "AV-IMAGE-LABELS"
    """The labels in the Dockerfile are not those of the series."""
    IMAGE_PINS = "AV-IMAGE-PINS"
    """A file of vLLM, before or after patching, is not the one that the series pins."""
    IMAGE_WRITE = "AV-IMAGE-WRITE"
    """An image's files cannot be read or written; the line says what the image is now."""
    CONFIG_JSON = "AV-CONFIG-JSON"
    """A config is not JSON, or gives a key twice."""
    CONFIG_FILE = "AV-CONFIG-FILE"
    """A config file cannot be read."""
    CONFIG_OBJECT = "AV-CONFIG-OBJECT"
    """``adaptive_verification_config``, or the whole config, is not a JSON object."""
    CONFIG_KEY = "AV-CONFIG-KEY"
    """A config has a key that does not exist there."""
    CONFIG_TYPE = "AV-CONFIG-TYPE"
    """A config's value is of the wrong type, such as a number in quotes."""
    CONFIG_RANGE = "AV-CONFIG-RANGE"
    """A config's number is out of its range, infinite or no number, or a word is none of few."""
    CONFIG_COUNT = "AV-CONFIG-COUNT"
    """A config's list has more or fewer values than there are draft positions."""
    CONFIG_SCORER = "AV-CONFIG-SCORER"
    """A config names a scorer that no installed package brings."""
    CONFIG_METHOD = "AV-CONFIG-METHOD"
    """A config asks what its method or a setting beside it rules out: a scorer, or any estimate."""
    CONFIG_UNUSED = "AV-CONFIG-UNUSED"
    """A config sets what the scorer that it names never uses."""
    CONFIG_OFF = "AV-CONFIG-OFF"
    """``adaptive_verification_config`` is set, and ``enable_adaptive_verification`` is not."""
    CONFIG_UNPATCHED = "AV-CONFIG-UNPATCHED"
    """``adaptive_verification_config`` is set, and the installed vLLM is not patched."""
    SCORER_UNKNOWN = "AV-SCORER-UNKNOWN"
    """No installed package brings a scorer of that name."""
    SCORER_DUPLICATE = "AV-SCORER-DUPLICATE"
    """Two scorers have one name."""
    SCORER_BROKEN = "AV-SCORER-BROKEN"
    """A scorer of another package cannot be imported, or is not what a scorer must be."""
    SCORER_NEEDS = "AV-SCORER-NEEDS"
    """A scorer needs draft logits or a confidence head, and the drafter has none."""
    SCORER_LOSSY = "AV-SCORER-LOSSY"
    """A scorer would bias what the engine generates, and ``allow_lossy`` is not set."""
    SCORER_FAILED = "AV-SCORER-FAILED"
    """A scorer raised an exception, which stopped the engine."""
    DEMO_CHECKPOINT = "AV-DEMO-CHECKPOINT"
    """The demonstration's target or drafter is not there, or is another one or damaged."""
    DEMO_PROMPTS = "AV-DEMO-PROMPTS"
    """A source of the demonstration's prompts is not installed, or holds too few."""
    DEMO_OPTION = "AV-DEMO-OPTION"
    """An option of the demonstration is out of its range."""
    DEMO_ENGINE = "AV-DEMO-ENGINE"
    """An arm of the demonstration did not finish."""
    DEMO_PROBE = "AV-DEMO-PROBE"
    """The engine lacks a name that the demonstration reads its figures from."""
    TRAINING_WORK = "AV-TRAINING-WORK"
    """A file of the work folder was made by another plan, script or corpus, or is not whole."""
    TRAINING_WRITE = "AV-TRAINING-WRITE"
    """The work folder, or the package at an install, cannot be made or written."""
    TRAINING_PROCESS = "AV-TRAINING-PROCESS"
    """One of a stage's processes failed."""
    TRAINING_NOTHING = "AV-TRAINING-NOTHING"
    """A drafter is to be taken over, and the work folder holds none that is whole."""
    TRACE_LIBRARY = "AV-TRACE-LIBRARY"
    """A trace is to be read or written, and pyarrow is not installed."""
    TRACE_FILE = "AV-TRACE-FILE"
    """A trace is not there, cannot be read, or is not Parquet."""
    TRACE_VERSION = "AV-TRACE-VERSION"
    """A trace is of a version of the format that this package does not read."""
    TRACE_INFO = "AV-TRACE-INFO"
    """What a trace says about itself is missing or not as the format requires."""
    TRACE_COLUMN = "AV-TRACE-COLUMN"
    """A trace lacks a column, or a column is of the wrong type or out of its range."""
    TRACE_WRITE = "AV-TRACE-WRITE"
    """A trace cannot be written: its folder is in use, holds something, or the disk refuses."""
    TRACE_OPTION = "AV-TRACE-OPTION"
    """An option of a recording is out of its range, or does not go with another one."""
    TRACE_PROMPTS = "AV-TRACE-PROMPTS"
    """A file of prompts for a recording cannot be read, or holds none."""
    TRACE_ENGINE = "AV-TRACE-ENGINE"
    """A recording cannot start, or not reach, the engine that it is to record from."""
    TRACE_ROWS = "AV-TRACE-ROWS"
    """The rows of a trace contradict each other, are out of order, or there are none."""
    TRACE_REPORT = "AV-TRACE-REPORT"
    """The page of a report cannot be written where it is asked for."""
    REPLAY_EMPTY = "AV-REPLAY-EMPTY"
    """A replay is asked for rows of which the trace has none."""
    REPLAY_SCORER = "AV-REPLAY-SCORER"
    """A scorer is to be replayed that cannot be."""
    REPLAY_OPTION = "AV-REPLAY-OPTION"
    """An option of a replay is out of its range or cannot be read."""
    STATE_NONE = "AV-STATE-NONE"
    """A ``state_file`` is named for a scorer that keeps no state."""
    STATE_WRITE = "AV-STATE-WRITE"
    """The ``state_file`` cannot be written."""
    STATE_BUSY = "AV-STATE-BUSY"
    """Another server writes the ``state_file``: this one reads it and keeps nothing."""
    STATE_OTHER = "AV-STATE-OTHER"
    """The ``state_file`` is of another pair, K, estimator or version: the server starts cold."""
    STATE_DAMAGED = "AV-STATE-DAMAGED"
    """The ``state_file`` cannot be read: the server starts cold."""
    COST_TABLE_FILE = "AV-COST-TABLE-FILE"
    """The file at ``cost_table_path`` cannot be read, or is no cost table: no engine starts."""
    COST_TABLE_OTHER = "AV-COST-TABLE-OTHER"
    """The cost table is of another engine, and the line says in what: no engine starts."""
    COST_TABLE_WRITE = "AV-COST-TABLE-WRITE"
    """There is no file at ``cost_table_path`` yet, and none can be written."""
    QUESTION_FLAG = "AV-QUESTION-FLAG"
    """A flag that the check reads is misspelt, lacks its value or has a wrong one."""
    QUESTION_GPU = "AV-QUESTION-GPU"
    """The check does not know a GPU of that name."""
    QUESTION_MODEL = "AV-QUESTION-MODEL"
    """The target's config is not there or cannot be read."""
    QUESTION_DRAFT = "AV-QUESTION-DRAFT"
    """The drafter's config is not there or cannot be read."""
    QUESTION_SPEC = "AV-QUESTION-SPEC"
    """The speculative config asks for nothing that could be checked."""
    CHECK_REFUSED = "AV-CHECK-REFUSED"
    """An engine cannot do adaptive verification; the lines that follow say why."""


def told(value: object, how: Callable[[object], str] = str) -> str:
    """``how(value)``, whatever the value's own method does."""
    try:
        return how(value)
    except (Exception, SystemExit):
        return f"<its {how.__name__}() fails>"


def one_line(text: str) -> str:
    """``text`` for a terminal."""
    # What others raise may hold a terminal's commands, or what no terminal can show.
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


REFUSALS = frozenset(
    {
        Code.PATCH_BUSY,
        Code.PATCH_CONFLICT,
        Code.PATCH_DRIFT,
        Code.PATCH_IN_USE,
        Code.PATCH_NOT_PRISTINE,
        Code.PATCH_STATE,
        Code.PATCH_WRITE,
    }
)
"""What answers a right question with no: the tree stands in the way, not the command line."""


class VllmAvError(Exception):
    """A mistake that the user can mend.

    Args:
        code: the stable code.
        given: what was found or asked for.
        allowed: what would have been right.
        fix: what to do now.
    """

    def __init__(self, code: Code, given: str, allowed: str, fix: str) -> None:
        super().__init__(code, given, allowed, fix)
        self.code = code
        self.given = given
        self.allowed = allowed
        self.fix = fix

    def __str__(self) -> str:
        return one_line(f"[{self.code}] {self.given}; {self.allowed}; {self.fix}")

    def as_dict(self) -> dict[str, str]:
        """The same, for ``--json``."""
        return {
            "code": str(self.code),
            "given": self.given,
            "allowed": self.allowed,
            "fix": self.fix,
        }


class SetupError(VllmAvError):
    """The machine or the environment lacks something."""


class PatchError(VllmAvError):
    """A patch series or a vLLM tree is not as it should be."""


class KernelError(VllmAvError):
    """A Triton kernel cannot be compiled for the CPU."""


class ConfigError(VllmAvError):
    """A config has a mistake, and perhaps others, which come later in the text."""

    others: "tuple[ConfigError, ...]" = ()

    def among(self, others: "tuple[ConfigError, ...]") -> "ConfigError":
        """The same error, told as the first of several."""
        copy = type(self)(self.code, self.given, self.allowed, self.fix)
        copy.others = others
        return copy

    def __str__(self) -> str:
        if not self.others:
            return super().__str__()
        codes = ", ".join(error.code for error in self.others[:3])
        more = ", ..." if self.others[3:] else ""
        return f"{super().__str__()} (and {len(self.others)} more: {codes}{more})"


class ScorerError(VllmAvError):
    """A scorer does not exist, does not fit the drafter, or failed."""


class DemoError(VllmAvError):
    """The demonstration cannot run as asked."""


class TrainingError(VllmAvError):
    """A drafter cannot be trained or taken over as asked."""


class TraceError(VllmAvError):
    """A trace cannot be read, written or used as asked."""


class StateError(VllmAvError):
    """A scorer's state cannot be kept, or is not this server's."""


class CostTableError(VllmAvError):
    """What steps cost cannot be read or kept, or is not this engine's."""


class CheckError(VllmAvError):
    """A question to the preflight check is wrong."""


class RefusedError(VllmAvError):
    """An engine cannot do adaptive verification.

    Args:
        reasons: each in one line.
    """

    def __init__(self, *reasons: str) -> None:
        count = "one reason" if len(reasons) == 1 else f"{len(reasons)} reasons"
        super().__init__(
            Code.CHECK_REFUSED,
            given=f"adaptive verification cannot run here, for {count}, below",
            allowed="a model, a GPU and settings without them (`vllm-av check` asks beforehand)",
            fix='mend them, or set "on_unsupported": "fixed_k" in adaptive_verification_config to '
            "serve with a fixed number of drafts where it cannot run",
        )
        # Exceptions are made again of these when they cross to another process.
        self.args = reasons
        self.reasons = reasons

    def __str__(self) -> str:
        return "\n  ".join([super().__str__(), *map(one_line, self.reasons)])
