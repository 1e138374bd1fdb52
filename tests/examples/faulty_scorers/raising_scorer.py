"""A scorer that fails in the middle of its work."""

from typing import Any

from sure_scorer import Sure


class Raises(Sure):
    """Does well until a request is hot, then raises in ``predict``."""

    def predict(
        self, logits: Any, idx_mapping: Any, draft_step: Any, temperature: Any, out: Any
    ) -> None:
        if (temperature > 1.5).any():
            raise LookupError("this scorer has no table for such a temperature")
        super().predict(logits, idx_mapping, draft_step, temperature, out)
