# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Engines with and without adaptive verification share no compile cache."""

import pytest

from vllm.config.speculative import SpeculativeConfig


def hash_of(method, enabled):
    # Unvalidated: a draft model's config is not at hand.
    config = SpeculativeConfig.__new__(SpeculativeConfig)
    config.method = method
    config.draft_model_config = None
    config.enable_adaptive_verification = enabled
    return config.compute_hash()


@pytest.mark.parametrize(
    "method", ["eagle", "eagle3", "mtp", "dflash", "dspark", "draft_model"]
)
def test_hash_tells_engines_apart(method):
    assert hash_of(method, True) != hash_of(method, False)


def test_hash_of_engines_without_it_stays():
    # As it was before other methods than DSpark had adaptive verification.
    assert hash_of("draft_model", False) == hash_of("ngram", False)
