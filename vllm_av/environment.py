"""Facts about an environment that set-up, which has only the standard library, and doctor share."""

COMPANIONS = ("torchaudio", "torchcodec", "torchvision")
"""Of torch. Text models need none of them; a build of one for CUDA beside a CPU torch ends
``import transformers`` with "operator torchvision::nms does not exist"."""

MIXER = "ci.hybrid"
"""The installer of a vLLM that is one version's Python over another's compiled operators."""

COMPILERS = ("cc", "gcc", "clang")
"""Names of C compilers, the first choice first."""
