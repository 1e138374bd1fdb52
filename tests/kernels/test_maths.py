"""The elementary functions in float32 against NumPy in float64."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
import triton.language.extra.libdevice as libdevice

from vllm_av.cpu import maths

N = 1024
SPECIAL = [
    0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 2.0, -2.0, 0.5, 1e-45, -1e-45, 1e-39, 1.2e-38,
    88.72, 88.73, 89.0, -87.4, -88.0, -103.0, -104.0, -105.0, 127.0, 128.0, -126.5, -149.0, -151.0,
    3.4e38, -3.4e38, 0.99999994, 1.0000001, 0.70710678, 1.41421356,
]  # fmt: skip


@triton.jit
def _apply(x_ptr, out_ptr, NAME: tl.constexpr, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    x = tl.load(x_ptr + i)
    if NAME == "exp":
        y = tl.exp(x)
    elif NAME == "exp2":
        y = tl.exp2(x)
    elif NAME == "log":
        y = tl.log(x)
    elif NAME == "log2":
        y = tl.log2(x)
    else:
        y = libdevice.log1p(x)
    tl.store(out_ptr + i, y)


def apply(name: str, x: np.ndarray) -> np.ndarray:
    """The compiled function of float32 values."""
    x = np.resize(x.astype(np.float32), -(-len(x) // N) * N)
    out = torch.empty(len(x))
    _apply[(len(x) // N,)](torch.from_numpy(x), out, name, N)
    return x, out.numpy()


CASES: dict[str, tuple[Callable[[np.ndarray], np.ndarray], list[np.ndarray]]] = {}
_rng = np.random.default_rng(0)
CASES["exp"] = (np.exp, [_rng.uniform(-104, 89, 1 << 18), _rng.uniform(-1, 1, 1 << 16)])
CASES["exp2"] = (np.exp2, [_rng.uniform(-150, 128, 1 << 18), _rng.uniform(-1, 1, 1 << 16)])
CASES["log"] = (np.log, [np.exp(_rng.uniform(-103, 88, 1 << 18)), _rng.uniform(0.5, 2, 1 << 18)])
CASES["log2"] = (np.log2, CASES["log"][1])
CASES["log1p"] = (
    np.log1p,
    [
        _rng.uniform(-1, 3, 1 << 18),
        -np.exp(_rng.uniform(-40, 0, 1 << 17)),
        np.exp(_rng.uniform(-40, 80, 1 << 17)),
    ],
)


@pytest.mark.parametrize("name", CASES)
def test_within_two_units_in_the_last_place(name):
    reference, ranges = CASES[name]
    for values in ranges:
        x, y = apply(name, values)
        with np.errstate(all="ignore"):
            exact = reference(x.astype(np.float64))
            unit = np.spacing(np.maximum(np.abs(exact), 1e-45).astype(np.float32)).astype(float)
        finite = np.isfinite(exact) & (np.abs(exact) < 3.4e38)
        error = np.abs(y.astype(np.float64) - exact)[finite] / unit[finite]
        assert error.max() <= 2.0


@pytest.mark.parametrize("name", CASES)
def test_special_values(name):
    x, y = apply(name, np.array(SPECIAL))
    with np.errstate(all="ignore"):
        exact = CASES[name][0](x.astype(np.float64)).astype(np.float32)
    assert np.array_equal(np.isnan(y), np.isnan(exact))
    assert np.array_equal(np.isinf(y), np.isinf(exact))
    assert np.array_equal(y == 0, exact == 0)
    good = np.isfinite(exact)
    assert np.array_equal(np.signbit(y[good]), np.signbit(exact[good]))
    assert np.allclose(y[good], exact[good], rtol=3e-7, atol=2e-45)


def test_log2_of_powers_of_two_is_exact():
    exponents = np.arange(-149, 128)
    x = np.ldexp(np.float32(1), exponents)
    _, y = apply("log2", x)
    assert y[: len(x)].tolist() == exponents.tolist()


def fitted(
    target: Callable[[np.ndarray], np.ndarray], weight: np.ndarray, x: np.ndarray, powers: range
) -> np.ndarray:
    """Coefficients of these powers with the least largest weighted error on ``x`` (Lawson)."""
    rows = weight[:, None] * np.stack([x**k for k in powers], 1)
    wanted, emphasis = weight * target(x), np.ones(len(x))
    for _ in range(400):
        root = np.sqrt(emphasis)
        found = np.linalg.lstsq(rows * root[:, None], wanted * root, rcond=None)[0]
        emphasis *= np.abs(rows @ found - wanted)
        emphasis /= emphasis.sum()
    return found


def test_the_polynomials_are_what_the_fit_gives():
    nodes = np.cos(np.pi * (np.arange(4000) + 0.5) / 4000)
    r = np.log(2) / 2 * nodes
    exp = fitted(lambda r: np.exp(r) - 1 - r, np.exp(-r), r, range(2, 7))
    low, high = np.sqrt(0.5) - 1, np.sqrt(2) - 1
    f = (low + high) / 2 + (high - low) / 2 * nodes
    log = fitted(lambda f: np.log1p(f) - f + f * f / 2, 1 / np.log1p(f), f, range(3, 12))
    assert maths.EXP[:2] == [1, 1]
    assert np.allclose(maths.EXP[2:], exp, rtol=1e-6, atol=0)
    assert np.allclose(maths.LOG, log, rtol=1e-6, atol=0)


def test_exp_of_every_float_between_0_and_1_rises():
    x = np.arange(0x3F000000, 0x3F800000, 7, dtype=np.uint32).view(np.float32)
    _, y = apply("exp", x)
    assert (np.diff(y[: len(x)]) >= -np.spacing(y[: len(x) - 1])).all()
