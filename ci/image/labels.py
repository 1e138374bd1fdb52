"""``python -m ci.image.labels``: write the images' labels into ``ci/Dockerfile``; ``--check``: are
they those of the series?

An engine reads labels from the Dockerfile before anything is built, so they stand there as text.
Rule: what they say is computed from the series, and the build refuses a Dockerfile that says else.
"""

import sys
from pathlib import Path

import vllm_av
from ci.image.refusal import Refusal
from ci.image.sbom import version
from ci.image.series import series_of
from ci.image.targets import TARGETS, Target

DOCKERFILE = Path(__file__).resolve().parents[1] / "Dockerfile"
FOLDER = "/usr/share/vllm_av"
MANIFEST, SBOM = "manifest.json", "sbom.cdx.json"
DESCRIPTION = (
    "The vLLM project's server image, with a patch series that opens adaptive verification, "
    "and the package that decides it"
)


def labels(target: Target) -> dict[str, str]:
    """The labels of an image, those of the base that would be untrue replaced."""
    series = series_of(target)
    argument = f"{target.name.upper()}_BASE"
    return {
        "org.opencontainers.image.title": target.title,
        "org.opencontainers.image.description": DESCRIPTION,
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.version": version(vllm_av.__version__, target),
        "org.opencontainers.image.base.name": f"${{{argument}}}",
        "org.opencontainers.image.revision": "${REVISION}",
        "org.opencontainers.image.vendor": "",
        "org.opencontainers.image.source": "",
        "org.opencontainers.image.url": "",
        "vllm_av.version": vllm_av.__version__,
        "vllm_av.series": series.version,
        "vllm_av.series.sha256": series.digest,
        "vllm_av.patches": " ".join(patch.name for patch in series.patches),
        "vllm_av.manifest": f"{FOLDER}/{MANIFEST}",
        "vllm_av.sbom": f"{FOLDER}/{SBOM}",
    }


def section(target: Target) -> str:
    """The instruction, between its marks."""
    lines = [f'{key}="{value}"' for key, value in labels(target).items()]
    begin, end = _marks(target)
    return f"{begin}LABEL " + " \\\n      ".join(lines) + f"\n{end}"


def with_labels(text: str) -> str:
    """A Dockerfile with the labels of every stage as they must be."""
    for target in TARGETS.values():
        begin, end = _marks(target)
        before, _, rest = text.partition(begin)
        text = before + section(target) + rest.partition(end)[2]
    return text


def refuse_stale(target: Target, text: str) -> None:
    """See to it that a Dockerfile has the labels of this target.

    Raises:
        Refusal: AV-IMAGE-LABELS.
    """
    if section(target) not in text:
        raise Refusal(
            "AV-IMAGE-LABELS",
            f"the labels of {target.name} in the Dockerfile are not those of the series "
            f"{series_of(target).version}",
            "every patch named, with the series' sum",
            "run: python -m ci.image.labels",
        )


def _marks(target: Target) -> tuple[str, str]:
    return (
        f"# The labels of {target.name}, written by python -m ci.image.labels\n",
        f"# End of the labels of {target.name}\n",
    )


def main() -> None:
    """Write them, or compare."""
    text = DOCKERFILE.read_text(encoding="utf-8")
    if sys.argv[1:] == ["--check"]:
        try:
            for target in TARGETS.values():
                refuse_stale(target, text)
        except Refusal as refusal:
            raise SystemExit(f"error: {refusal}") from None
        return
    DOCKERFILE.write_text(with_labels(text), encoding="utf-8")


if __name__ == "__main__":
    main()
