"""The bill of materials, CycloneDX 1.6: to a scanner, which reads metadata, vLLM looks like stock.

    vllm        the component, with its purl and its pedigree: which patches were applied to it
      files     each patched file, with the sum that it has now
    patches     each with the sum of its text; the pedigree refers to the files by URL
    vllm_av     the package

Rule: made from the manifest alone, so the two cannot differ. It is not complete for the image, and
says so: what else is in it came with the base image, whose own bill tells that.
"""

import json
import uuid
from collections.abc import Mapping
from typing import Any

from ci.image.targets import Target

Document = dict[str, Any]

LICENCE = [{"license": {"id": "Apache-2.0"}}]


def sbom(manifest: Mapping[str, Any], target: Target) -> Document:
    """The bill of an image."""
    vllm, package = _vllm(manifest), _package(manifest)
    patches = [_patch_file(patch) for patch in manifest["patches"]]
    image = {
        "type": "container",
        "bom-ref": "image",
        "name": target.title,
        "version": version(manifest["vllm_av"]["version"], target),
        "pedigree": {"ancestors": [_ancestor(manifest["base"])]},
    }
    document: Document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": manifest["created"],
            "lifecycles": [{"phase": "build"}],
            "component": image,
        },
        "components": [vllm, package, *patches],
        "dependencies": [
            {"ref": "image", "dependsOn": [vllm["bom-ref"], package["bom-ref"]]},
            {"ref": package["bom-ref"], "dependsOn": [vllm["bom-ref"]]},
        ],
        "compositions": [{"aggregate": "incomplete", "assemblies": ["image"]}],
    }
    name = json.dumps(document, sort_keys=True)
    return document | {"serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, name)}"}


def version(vllm_av: str, target: Target) -> str:
    """Of an image: that of vllm_av, and of the vLLM in it."""
    return f"{vllm_av}-vllm{target.vllm}"


def _vllm(manifest: Mapping[str, Any]) -> Document:
    here = manifest["vllm"]
    purl = _purl(here["distribution"], here["version"])
    known = {"type": "library", "name": here["distribution"], "version": here["version"]}
    return {
        **known,
        "bom-ref": purl,
        "purl": purl,
        "licenses": LICENCE,
        "pedigree": {
            "ancestors": [{**known, "purl": purl}],
            "patches": [_patch(patch) for patch in manifest["patches"]],
            "notes": "The wheel of the vLLM project, with the patches of the series "
            f"{manifest['series']['version']} of vllm_av ({', '.join(manifest['series']['groups'])}"
            f"; sha256 {manifest['series']['sha256']}) applied.",
        },
        "components": [
            {"type": "file", "name": file["path"], "hashes": _hashes(file["after"])}
            for file in manifest["files"]
            if file["after"] is not None
        ],
    }


def _patch(patch: Mapping[str, Any]) -> Document:
    merged = patch["upstream"].startswith("merged in ")
    return {
        "type": "backport" if merged else "unofficial",
        "diff": {"url": f"file://{patch['file']}"},
        "resolves": [
            {
                "type": "defect" if "[Bugfix]" in patch["title"] else "enhancement",
                "id": patch["id"],
                "name": patch["title"],
                "description": f"The patch {patch['id']}, sha256 {patch['sha256']}; upstream: "
                f"{patch['upstream']}.",
            }
        ],
    }


def _patch_file(patch: Mapping[str, Any]) -> Document:
    return {
        "type": "file",
        "bom-ref": f"patch:{patch['id']}",
        "name": patch["id"],
        "description": patch["title"],
        "hashes": _hashes(patch["sha256"]),
        "externalReferences": [{"type": "other", "url": f"file://{patch['file']}"}],
    }


def _package(manifest: Mapping[str, Any]) -> Document:
    here = manifest["vllm_av"]
    purl = _purl("vllm-av", here["version"])
    return {
        "type": "library",
        "bom-ref": purl,
        "name": "vllm-av",
        "version": here["version"],
        "purl": purl,
        "licenses": LICENCE,
        # Of the wheel that it was installed from.
        "hashes": _hashes(here["sha256"]),
    }


def _ancestor(base: Mapping[str, Any]) -> Document:
    found: Document = {"type": "container", "name": base["name"]}
    if base["digest"] is not None:
        found["version"] = base["digest"]
    return found


def _hashes(sha256: str) -> list[dict[str, str]]:
    return [{"alg": "SHA-256", "content": sha256}]


def _purl(name: str, number: str) -> str:
    return f"pkg:pypi/{name}@{number.replace('+', '%2B')}"
