"""The environment that set-up gives to what it starts."""

import pytest

from ci.setup.place import clean_env


def test_a_users_own_python_settings_bend_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "PYTHONPATH",
        "PIP_TARGET",
        "PIP_DRY_RUN",
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONPYCACHEPREFIX",
    ):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("PIP_INDEX_URL", "file:///an/index")
    env = clean_env()
    assert not {"PYTHONPATH", "PIP_TARGET", "PIP_DRY_RUN"} & set(env)
    # Else every import of vLLM, in the demonstration and the tests, compiles it anew.
    assert not {"PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX"} & set(env)
    assert env["PIP_INDEX_URL"] == "file:///an/index"
