"""Writes src/run/backend/cpu/kernels/act_quadratics.h: the activations in bf16 as 32 quadratics each.

Needs numpy and scipy. Run: python3 tools/act_quadratics.py > src/run/backend/cpu/kernels/act_quadratics.h

act of a bf16 number, rounded to bf16, is one of few numbers, so a piece of act may be any quadratic that lies between the
right two middles of neighbouring bf16 numbers for every argument of the piece: a linear program, which makes the least
distance to a middle (in units of the result's last place) as large as it can be. The result is then evaluated in f32 as the
kernels do and compared for every argument."""
import sys
from fractions import Fraction

import numpy as np
from scipy.optimize import linprog
from scipy.special import ndtr

LEAST = 0x2060  # 2^13 words below the bound, some 2^-62: zeros and what is smaller take another way
STEP, DOUBLE = 0.18, 5  # the pieces' width, and twice that from DOUBLE steps on
BOUND = 3.5


def number(bits):
    return (np.asarray(bits).astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def gelu_tanh(x):
    return x / (1 + np.exp(-2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


ACTS = {"tanh": gelu_tanh, "erf": lambda x: x * ndtr(x), "silu": lambda x: x / (1 + np.exp(-x))}


def rounded(y):
    """The bf16 bits of y, to nearest even: by f64's own bits, once."""
    bits = np.abs(y).view(np.uint64)
    half = np.uint64(1 << 44)
    kept = (bits + (half - np.uint64(1) + ((bits >> np.uint64(45)) & np.uint64(1)))) >> np.uint64(45)
    value = (kept << np.uint64(45)).view(np.float64).astype(np.float32)
    return (value.view(np.uint32) >> 16).astype(np.int64)


def fma(a, b, c):
    return (a.astype(np.float64) * np.float64(b) + np.float64(c)).astype(np.float32)


def as_powers(c, center, width):
    """A polynomial in (x - center) / width as one in x."""
    base, out = [Fraction(1)], [Fraction(0)] * len(c)
    for k in c:
        for i, b in enumerate(base):
            out[i] += Fraction(float(k)) * b
        base = [
            (base[i - 1] if i else 0) / Fraction(width) - (base[i] if i < len(base) else 0) * Fraction(center) / Fraction(width)
            for i in range(len(base) + 1)
        ]
    return [np.float32(float(v)) for v in out]


def piece(x, magnitude):
    """Three coefficients for arguments x whose results are to have these bits."""
    zero = x.min() < 0 < x.max()
    use = np.abs(x) >= 2.0**-14  # below, x/2 it is
    center, width = (0.0, np.abs(x).max()) if zero else ((x.min() + x.max()) / 2, max((x.max() - x.min()) / 2, 1e-3))
    low = (number(magnitude - 1) + number(magnitude)) / 2
    high = (number(magnitude + 1) + number(magnitude)) / 2
    low, high = np.where(x < 0, -high, low)[use], np.where(x < 0, -low, high)[use]
    d, unit = ((x - center) / width)[use], (high - low)[:, None]
    a = np.stack([x[use], x[use] * d] if zero else [np.ones_like(d), d, d * d], 1) / unit
    one = np.ones((len(d), 1))
    r = linprog(
        np.r_[np.zeros(a.shape[1]), -1],
        A_ub=np.vstack([np.hstack([a, one]), np.hstack([-a, one])]),
        b_ub=np.concatenate([high / unit[:, 0], -low / unit[:, 0]]),
        bounds=[(None, None)] * (a.shape[1] + 1),
        method="highs",
    )
    if r.status != 0 or r.x[-1] <= 0:
        sys.exit(f"no quadratic for {x.min()} to {x.max()}")
    c = as_powers(r.x[:-1], center, width)
    return ([np.float32(0)] if zero else []) + c, r.x[-1]


def tables(name):
    bits = np.arange(65536)
    inside = ((bits & 0x7FFF) >= LEAST) & (np.abs(number(np.minimum(bits & 0x7FFF, 0x7F7F))) < BOUND)
    bits = bits[inside]
    x = number(bits)
    want = rounded(ACTS[name](x))
    n = fma(x.astype(np.float32), np.float32(1 / STEP), np.float32(2**24 - DOUBLE))
    at = n.view(np.uint32) & 31
    out, margin = np.zeros((3, 32), np.float32), 1.0
    for value in np.unique(n):
        now = n == value
        c, m = piece(x[now], want[now])
        k = at[now][0]
        if out[:, k].any():
            sys.exit("two pieces have one place")
        out[:, k], margin = c, min(margin, m)
    x32 = x.astype(np.float32)
    y = out[2][at]
    for k in (1, 0):
        y = (y.astype(np.float64) * x32 + out[k][at]).astype(np.float32)
    got = ((y.view(np.uint32).astype(np.int64) + 0x8000) >> 16) & 0x7FFF
    wrong = int((got != want).sum()) + int((np.signbit(y) != np.signbit(x32)).sum())
    print(f"{name}: {len(np.unique(n))} pieces, {len(x)} arguments, least distance {margin:.5f}, {wrong} wrong", file=sys.stderr)
    if wrong:
        sys.exit(1)
    return out


HEAD = """/* The activations of bf16 numbers as 32 quadratics each, for one FMA that finds the piece, three lookups and two FMAs:
 * c0 + x (c1 + x c2), rounded to bf16 with halves away from 0, is act(x) rounded to bf16 for every bf16 number x with
 * 2^-62 <= |x| < BOUND. Pieces are STEP wide, and twice as wide from DOUBLE steps on, where the sum that finds them passes 2^24.
 * Written by tools/act_quadratics.py, which says how. Needs a simd header and vmath.h in front. */
#ifndef EP_ACT_QUADRATICS_H
#define EP_ACT_QUADRATICS_H

#define ACT_QUADRATIC_SCALE SCALEf
#define ACT_QUADRATIC_MAGIC MAGICf
/* Of a word less LEAST: these bits are 0 where the word is a bf16 number that the quadratics take. */
#define ACT_QUADRATIC_LEAST LOW
#define ACT_QUADRATIC_OUTSIDE 0x6000

/* clang-format off */"""
TAIL = """/* clang-format on */

#define ACT_QUADRATIC(name)                                                                                            \\
    V_FN v_f32 act_quadratic_##name(v_f32 x) {                                                                         \\
        v_i32 at = v_bits(v_fma(x, v_set1(ACT_QUADRATIC_SCALE), v_set1(ACT_QUADRATIC_MAGIC)));                         \\
        v_f32 y = v_fma(v_lookup32(act_quadratic_##name##_2, at), x, v_lookup32(act_quadratic_##name##_1, at));        \\
        return v_fma(y, x, v_lookup32(act_quadratic_##name##_0, at));                                                  \\
    }
ACT_QUADRATIC(tanh)
ACT_QUADRATIC(erf)
ACT_QUADRATIC(silu)

#endif"""


def main():
    head = HEAD.replace("BOUND", str(BOUND)).replace("STEP", str(STEP)).replace("DOUBLE", str(DOUBLE))
    head = head.replace("SCALEf", f"{np.float32(1 / STEP):.9g}f").replace("MAGICf", f"{2**24 - DOUBLE}.0f")
    print(head.replace("LOW", hex(LEAST)))
    for name in ACTS:
        for k, row in enumerate(tables(name)):
            words = [f"{v:.9g}" for v in row]
            words = [(w if "." in w or "e" in w else w + ".0") + "f" for w in words]
            print(f"V_TABLE act_quadratic_{name}_{k}[32] = {{")
            for i in range(0, 32, 8):
                print("    " + ", ".join(words[i : i + 8]) + ("," if i < 24 else "};"))
    print(TAIL)


main()
