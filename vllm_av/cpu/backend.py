"""LLVM text -> machine code for this CPU, through llvmlite, numba's code generator.

Rule: this module knows nothing of Triton. (Why not numba itself: :mod:`vllm_av.cpu`.)
"""

import ctypes
from functools import cache
from typing import Any

import llvmlite
import llvmlite.binding as llvm

Launch = Any  # a ctypes function: bytes of the slots -> None
# Code lives as long as its engine: here, as long as the process.
_ENGINES: list[Any] = []


@cache
def _target() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_triple(llvm.get_process_triple())


def _new_machine() -> Any:
    return _target().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=3,
        jit=True,
    )


_machine = cache(_new_machine)


@cache
def identity() -> str:
    """What machine code depends on besides the text: LLVM and the CPU."""
    version = ".".join(map(str, llvm.llvm_version_info))
    features = llvm.get_host_cpu_features().flatten()
    return f"llvmlite {llvmlite.__version__} LLVM {version} {llvm.get_host_cpu_name()} {features}"


def optimised(text: str) -> Any:
    """The parsed module after LLVM's passes."""
    machine = _machine()
    module = llvm.parse_assembly(text)
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = True
    options.slp_vectorization = True
    options.loop_interleaving = True
    passes = llvm.create_pass_builder(machine, options)
    passes.getModulePassManager().run(module, passes)
    return module


def assemble(text: str) -> bytes:
    """The object file."""
    return bytes(_machine().emit_object(optimised(text)))


def link(code: bytes, entry: str) -> Launch:
    """Load an object file and return its function.

    Raises:
        RuntimeError: it is no object file for this machine.
    """
    # An engine owns its machine, so that one cannot be shared.
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _new_machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    address = engine.get_function_address(entry)
    if not address:
        raise RuntimeError(f"no function {entry} in the object file")
    launch = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(address)
    _ENGINES.append(engine)
    return launch
