"""What the fields of :mod:`vllm_av.config.model` allow, in words, read from the fields themselves.

Rule: no range is written twice.
"""

from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from vllm_av.config.model import AdaptiveVerificationConfig, BudgetConfig, EstimatorConfig

Path = tuple[str | int, ...]

GROUPS: dict[str | int, type[BaseModel]] = {"estimator": EstimatorConfig, "budget": BudgetConfig}
"""The keys whose value is an object with keys of its own."""
_MODELS: tuple[type[BaseModel], ...] = (AdaptiveVerificationConfig, *GROUPS.values())
_SCHEMA = {model: model.model_json_schema() for model in _MODELS}


def keys_of() -> list[str]:
    """The keys of the block itself."""
    return list(AdaptiveVerificationConfig.model_fields)


def model_at(path: Path) -> type[BaseModel]:
    """The model that holds the keys of the object at ``path``."""
    return GROUPS.get(path[0], AdaptiveVerificationConfig) if path else AdaptiveVerificationConfig


def field_at(path: Path) -> FieldInfo:
    """The field that ``path`` lies in."""
    names = [part for part in path if isinstance(part, str)]
    return model_at(tuple(names[:-1])).model_fields[names[-1]]


def default_of(path: Path) -> Any:
    """Its default, as JSON."""
    default = field_at(path).get_default(call_default_factory=True)
    return {} if isinstance(default, BaseModel) else default


def allowed(path: Path) -> str:
    """What may stand at ``path``, with its unit."""
    names = [part for part in path if isinstance(part, str)]
    schema = _SCHEMA[model_at(tuple(names[:-1]))]["properties"][names[-1]]
    if "$ref" in schema:
        return f"an object with some of the keys {', '.join(GROUPS[names[-1]].model_fields)}"
    every = schema.get("oneOf") or schema.get("anyOf", [schema])
    shapes = [shape for shape in every if shape["type"] != "null"]
    if isinstance(path[-1], int):
        every = shapes = [shape["items"] for shape in shapes if "items" in shape]
    unit = schema.get("unit")
    words = ", or ".join(_words(shape, unit) for shape in shapes)
    if unit and shapes[0]["type"] in ("number", "integer"):
        words += f" ({unit})"
    return words if len(every) == len(shapes) else f"{words}, or null"


def _words(shape: dict[str, Any], unit: str | None) -> str:
    kind = shape["type"]
    if kind == "boolean":
        return "true or false, without quotes"
    if "enum" in shape:
        return " or ".join(f'"{word}"' for word in shape["enum"])
    if kind == "string":
        return f"a {unit} in quotes"
    if kind == "array":
        return f"a list of {shape['minItems']} to {shape['maxItems']} such numbers"
    whole = "a whole number" if kind == "integer" else "a number"
    return f"{whole} from {shape['minimum']:g} to {shape['maximum']:.7g}"
