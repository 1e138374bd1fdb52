"""Elementary functions in float32 as branch-free LLVM text, so that loops over lanes vectorise.

Rule: within 2 units in the last place of the exact value, and right at 0, infinities, NaN and
denormals.

    exp    x = n ln2 + r, |r| <= ln2 / 2; e^r by a polynomial of degree 6, times 2^n in two
           factors, so that results below the normal range are still right
    exp2   the same from x = n + r
    log    x = 2^e m, m in [sqrt(1/2), sqrt(2)), f = m - 1; e ln2 + f - f^2 / 2 + f^3 P(f), P of
           degree 8
    log2   the same times 1 / ln2, but for e, so that powers of two are exact
    log1p  log(u) + (x - (u - 1)) / u with u = 1 + x rounded: the second term mends that rounding

float64 goes through the C library.

The polynomials were fitted for this file: least squares on 4,000 Chebyshev points, reweighted by
the error (Lawson) until the largest relative error was the least. tests/kernels/test_maths.py
fits them again and compares.
"""

import math
import struct


def _hex(value: float) -> str:
    single = struct.unpack("<f", struct.pack("<f", value))[0]
    return f"0x{struct.unpack('<Q', struct.pack('<d', single))[0]:016X}"


_LN2_HIGH, _LN2_LOW = 0.693145751953125, 1.428606765330187e-06
# Lowest power first. e^r = 1 + r + r^2 Q(r) for |r| <= ln2 / 2 within 3.1e-9, and
# log(1 + f) = f - f^2 / 2 + f^3 P(f) for sqrt(1/2) - 1 <= f <= sqrt(2) - 1 within 7.5e-10.
EXP = [
    1.0, 1.0, 0.499999935, 0.166665207, 0.0416683874, 0.00836870983, 0.00138146131,
]  # fmt: skip
LOG = [
    0.333333126, -0.250000096, 0.200021187, -0.166679959, 0.142195524, -0.124055889,
    0.118881621, -0.11675652, 0.0674664105,
]  # fmt: skip
# ln2 in two parts; the first has so few bits that its product with an exponent is exact.
_LOG_HIGH = 355 / 512
_LOG_LOW = math.log(2) - _LOG_HIGH


def _polynomial(x: str, coefficients: list[float], stem: str) -> tuple[str, str]:
    """Horner's rule, highest power first: the text and the name of the result."""
    lines, last = [], _hex(coefficients[0])
    for k, c in enumerate(coefficients[1:]):
        name = f"%{stem}{k}"
        lines.append(f"{name} = call float @llvm.fma.f32(float {last}, float {x}, float {_hex(c)})")
        last = name
    return "\n  ".join(lines), last


def _exponential(name: str, reduce: str, low: float, high: float) -> str:
    text, last = _polynomial("%r", EXP[::-1], "p")
    return f"""
define internal float @{name}(float %x) alwaysinline {{
  %a = call float @llvm.maxnum.f32(float %x, float {_hex(low)})
  %c = call float @llvm.minnum.f32(float %a, float {_hex(high)})
  {reduce}
  {text}
  %i = fptosi float %n to i32
  %h = ashr i32 %i, 1
  %k = sub i32 %i, %h
  %h1 = add i32 %h, 127
  %k1 = add i32 %k, 127
  %h2 = shl i32 %h1, 23
  %k2 = shl i32 %k1, 23
  %hf = bitcast i32 %h2 to float
  %kf = bitcast i32 %k2 to float
  %s = fmul float {last}, %hf
  %t = fmul float %s, %kf
  %nan = fcmp uno float %x, %x
  %y = select i1 %nan, float %x, float %t
  ret float %y
}}"""


_NATURAL = f"""%low = call float @llvm.fma.f32(float %e, float {_hex(_LOG_LOW)}, float %half)
  %y0 = fadd float %cubic, %low
  %y1 = fadd float %f, %y0
  %y2 = call float @llvm.fma.f32(float %e, float {_hex(_LOG_HIGH)}, float %y1)"""
# 1 / ln2 is 1 and a rest; the sum goes from the smallest part to the largest.
_BINARY = f"""%s = fadd float %cubic, %half
  %sr = fmul float %s, {_hex(1 / math.log(2) - 1)}
  %y0 = call float @llvm.fma.f32(float %f, float {_hex(1 / math.log(2) - 1)}, float %sr)
  %ys = fadd float %y0, %s
  %y1 = fadd float %ys, %f
  %y2 = fadd float %y1, %e"""


def _logarithm(name: str, whole: str) -> str:
    text, last = _polynomial("%f", LOG[::-1], "p")
    return f"""
define internal float @{name}(float %x) alwaysinline {{
  %small = fcmp olt float %x, {_hex(2.0**-126)}
  %up = fmul float %x, {_hex(2.0**23)}
  %v = select i1 %small, float %up, float %x
  %shift = select i1 %small, i32 -23, i32 0
  %bits = bitcast float %v to i32
  %moved = sub i32 %bits, 1060439283
  %exp = ashr i32 %moved, 23
  %whole = shl i32 %exp, 23
  %mbits = sub i32 %bits, %whole
  %m = bitcast i32 %mbits to float
  %ei = add i32 %exp, %shift
  %e = sitofp i32 %ei to float
  %f = fsub float %m, {_hex(1.0)}
  %z = fmul float %f, %f
  {text}
  %fz = fmul float %f, %z
  %cubic = fmul float {last}, %fz
  %half = fmul float %z, {_hex(-0.5)}
  {whole}
  %zero = fcmp oeq float %x, {_hex(0.0)}
  %y3 = select i1 %zero, float {_hex(float("-inf"))}, float %y2
  %inf = fcmp oeq float %x, {_hex(float("inf"))}
  %y4 = select i1 %inf, float %x, float %y3
  %bad = fcmp ult float %x, {_hex(0.0)}
  %y5 = select i1 %bad, float {_hex(float("nan"))}, float %y4
  ret float %y5
}}"""


_LOG1P = f"""
define internal float @av_log1p(float %x) alwaysinline {{
  %u = fadd float %x, {_hex(1.0)}
  %log = call float @av_log(float %u)
  %u1 = fsub float %u, {_hex(1.0)}
  %lost = fsub float %x, %u1
  %c = fdiv float %lost, %u
  %y = fadd float %log, %c
  %finite = fcmp olt float %u, {_hex(float("inf"))}
  %positive = fcmp ogt float %u, {_hex(0.0)}
  %inside = and i1 %finite, %positive
  %y1 = select i1 %inside, float %y, float %log
  %tiny = fcmp oeq float %u, {_hex(1.0)}
  %y2 = select i1 %tiny, float %x, float %y1
  ret float %y2
}}"""

_TO_BF16 = """
define internal i16 @av_to_bf16(float %x) alwaysinline {
  %u = bitcast float %x to i32
  %top = lshr i32 %u, 16
  %odd = and i32 %top, 1
  %bias = add i32 %odd, 32767
  %sum = add i32 %u, %bias
  %near = lshr i32 %sum, 16
  %quiet = or i32 %top, 64
  %nan = fcmp uno float %x, %x
  %r = select i1 %nan, i32 %quiet, i32 %near
  %y = trunc i32 %r to i16
  ret i16 %y
}"""

_REDUCE_EXP = f"""%q = fmul float %c, {_hex(1.4426950408889634)}
  %n = call float @llvm.rint.f32(float %q)
  %r0 = call float @llvm.fma.f32(float %n, float {_hex(-_LN2_HIGH)}, float %c)
  %r = call float @llvm.fma.f32(float %n, float {_hex(-_LN2_LOW)}, float %r0)"""
_REDUCE_EXP2 = f"""%n = call float @llvm.rint.f32(float %c)
  %r0 = fsub float %c, %n
  %r = fmul float %r0, {_hex(0.6931471805599453)}"""

_FUNCTIONS = {
    "av_exp": _exponential("av_exp", _REDUCE_EXP, -105.0, 89.0),
    "av_exp2": _exponential("av_exp2", _REDUCE_EXP2, -151.0, 129.0),
    "av_log": _logarithm("av_log", _NATURAL),
    "av_log2": _logarithm("av_log2", _BINARY),
    "av_log1p": _LOG1P,
    "av_to_bf16": _TO_BF16,
}
_NEEDS = {"av_log1p": {"av_log"}}
_INTRINSICS = [
    "declare float @llvm.fma.f32(float, float, float)",
    "declare float @llvm.rint.f32(float)",
    "declare float @llvm.maxnum.f32(float, float)",
    "declare float @llvm.minnum.f32(float, float)",
]


def text_of(names: set[str]) -> tuple[list[str], set[str]]:
    """The definitions of the helpers named, and the declarations that they need."""
    wanted = set(names)
    for name in names:
        wanted |= _NEEDS.get(name, set())
    return [_FUNCTIONS[name] for name in sorted(wanted)], set(_INTRINSICS) if wanted else set()
