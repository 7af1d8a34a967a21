#!/usr/bin/env python3
"""Epilogue beside PyTorch on the CPU, in turn within one process and one run: each round runs every variant once, and what
is printed is the median over the rounds of the ratio to torch eager (below 1: faster than it).

    torch_side_by_side.py LIBEPILOGUE.so [--threads N] [--rounds N] [--compile] [--json] [gelu] [geglu] [linear] [add]

Both sides read the same memory: torch's tensors are given to the library without a copy.
"""
import argparse
import ctypes as C
import json
import os
import statistics
import sys
import time

if not os.environ.get("OMP_PROC_BIND"):
    os.environ.update(OMP_PROC_BIND="close", OMP_PLACES="cores")
    os.execv(sys.executable, [sys.executable] + sys.argv)

import torch
import torch.nn.functional as F

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument("library")
p.add_argument("what", nargs="*", default=["gelu", "geglu", "linear", "add"])
p.add_argument("--threads", type=int, default=0, help="for geglu and linear; gelu and add use 1")
p.add_argument("--rounds", type=int, default=9)
p.add_argument("--compile", action="store_true", help="torch.compile too")
p.add_argument("--json", action="store_true")
p.add_argument("--shape", action="append", help="geglu M,DIM,HIDDEN")
args = p.parse_args()

lib = C.CDLL(args.library)
DTYPE = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}


class Device(C.Structure):
    _fields_ = [("kind", C.c_int), ("index", C.c_int32)]


class ContextOptions(C.Structure):
    _fields_ = [("device", Device), ("threads", C.c_int), ("rounding", C.c_int), ("reference", C.c_bool)]


for name in ("ep_context_create", "ep_linear", "ep_add", "ep_mul", "ep_gelu_tanh", "ep_gelu_erf", "ep_tensor_from_memory"):
    getattr(lib, name).restype = C.c_int
lib.ep_tensor_data.restype = C.c_void_p


def context(threads):
    ctx = C.c_void_p()
    options = ContextOptions(Device(0, 0), threads, 0, False)
    assert lib.ep_context_create(C.byref(options), None, C.byref(ctx)) == 0
    return ctx


def tensor(t):
    out = C.c_void_p()
    sizes = (C.c_int64 * t.dim())(*t.shape)
    strides = (C.c_int64 * t.dim())(*t.stride())
    status = lib.ep_tensor_from_memory(Device(0, 0), DTYPE[t.dtype], t.dim(), sizes, strides, C.c_void_p(t.data_ptr()),
                                       C.c_size_t(t.numel() * t.element_size()), None, None, None, C.byref(out))
    assert status == 0, status
    return out


def call(fn, ctx, *inputs):
    out = C.c_void_p()
    status = fn(ctx, *inputs, C.byref(out))
    assert status == 0, status
    return out


def destroy(*tensors):
    for t in tensors:
        lib.ep_tensor_destroy(t)


def view(t, like):
    """A torch copy of one of our results, to compare."""
    size = like.numel() * like.element_size()
    raw = torch.frombuffer((C.c_char * size).from_address(lib.ep_tensor_data(t)), dtype=like.dtype).clone()
    return raw.reshape(like.shape)


def run(title, variants, repeat, work=None):
    """variants: (name, function); the first is torch eager. Times are of one call."""
    times = {name: [] for name, _ in variants}
    for name, f in variants:
        f()
        f()
    for _ in range(args.rounds):
        for name, f in variants:
            start = time.perf_counter()
            for _ in range(repeat):
                f()
            times[name].append((time.perf_counter() - start) / repeat)
    base = times[variants[0][0]]
    if not args.json:
        print(title)
    for name, _ in variants:
        t = times[name]
        ratio = statistics.median(a / b for a, b in zip(t, base))
        row = {"problem": title, "variant": name, "us": statistics.median(t) * 1e6, "best_us": min(t) * 1e6,
               "ratio_to_torch_eager": ratio, "least_ratio": min(a / b for a, b in zip(t, base))}
        if work:
            row["gflop_s"] = work / statistics.median(t) / 1e9
        if args.json:
            print(json.dumps(row))
        else:
            rate = f" {row['gflop_s']:9.1f} GFLOP/s" if work else ""
            print(f"  {name:28} {row['us']:12.2f} us  best {row['best_us']:12.2f}  x{ratio:.3f}{rate}")
    sys.stdout.flush()


def bench_gelu():
    torch.set_num_threads(1)
    ctx = context(1)
    for shape in ((8192, 3072), (1 << 20,)):
        for kind, fn in (("tanh", lib.ep_gelu_tanh), ("none", lib.ep_gelu_erf)):
            x = torch.randn(shape)
            mine = tensor(x)
            out = torch.empty_like(x)
            variants = [("torch eager", lambda: F.gelu(x, approximate=kind)),
                        ("torch eager, out given", lambda: torch.ops.aten.gelu.out(x, approximate=kind, out=out)),
                        ("epilogue eager", lambda: destroy(call(fn, ctx, mine)))]
            if args.compile:
                compiled = torch.compile(lambda v: F.gelu(v, approximate=kind))
                variants.insert(1, ("torch compile", lambda: compiled(x)))
            run(f"gelu_{'erf' if kind == 'none' else 'tanh'} f32 {list(shape)}, 1 thread", variants,
                3 if x.numel() > 1 << 22 else 40)
            y = call(fn, ctx, mine)
            exact = F.gelu(x.double(), approximate=kind)
            for name, got in (("torch", F.gelu(x, approximate=kind)), ("epilogue", view(y, x))):
                print(f"    {name}: largest error {(got.double() - exact).abs().max():.2e}", file=sys.stderr)
            destroy(y, mine)


def bench_geglu():
    threads = args.threads or os.cpu_count()
    torch.set_num_threads(threads)
    ctx = context(threads)
    shapes = [tuple(map(int, s.split(","))) for s in args.shape or ["8192,768,3072", "512,2048,16384"]]
    for m, dim, hidden in shapes:
        for dtype in (torch.bfloat16, torch.float32):
            x = torch.randn(m, dim).to(dtype)
            wg, wu = (torch.randn(hidden, dim).mul_(dim ** -0.5).to(dtype) for _ in range(2))
            wd = torch.randn(dim, hidden).mul_(hidden ** -0.5).to(dtype)
            mine = [tensor(t) for t in (x, wg, wu, wd)]

            def theirs():
                return F.linear(F.gelu(F.linear(x, wg), approximate="tanh") * F.linear(x, wu), wd)

            def ours():
                g = call(lib.ep_linear, ctx, mine[0], mine[1], None)
                u = call(lib.ep_linear, ctx, mine[0], mine[2], None)
                a = call(lib.ep_gelu_tanh, ctx, g)
                destroy(g)
                h = call(lib.ep_mul, ctx, a, u)
                destroy(a, u)
                y = call(lib.ep_linear, ctx, h, mine[3], None)
                destroy(h)
                return y

            with torch.no_grad():
                variants = [("torch eager", theirs), ("epilogue eager", lambda: destroy(ours()))]
                if args.compile:
                    variants.insert(1, ("torch compile", torch.compile(theirs)))
                run(f"geglu {m}x{dim}->{hidden} {str(dtype)[6:]}, {threads} threads", variants, 1, 6 * m * dim * hidden)
                y = ours()
                print(f"    largest difference {(view(y, theirs()).float() - theirs().float()).abs().max():.2e}",
                      file=sys.stderr)
            destroy(y, *mine)


def bench_linear():
    threads = args.threads or os.cpu_count()
    for n in sorted({1, threads}):
        torch.set_num_threads(n)
        ctx = context(n)
        x, w, b = torch.randn(1024, 32), torch.randn(64, 32), torch.randn(64)
        mine = [tensor(t) for t in (x, w, b)]
        with torch.no_grad():
            run(f"linear 1024x32->64 f32 with bias, {n} threads (ours includes the call through ctypes)",
                [("torch eager", lambda: F.linear(x, w, b)),
                 ("epilogue eager", lambda: destroy(call(lib.ep_linear, ctx, *mine)))], 2000)
        destroy(*mine)


def bench_add():
    torch.set_num_threads(1)
    ctx = context(1)
    a, b = torch.randn(64), torch.randn(64)
    mine = [tensor(t) for t in (a, b)]
    with torch.no_grad():
        run("add of 64 f32 (ours includes the call through ctypes; bench_dispatch has the bare figure)",
            [("torch eager", lambda: torch.add(a, b)),
             ("epilogue eager", lambda: destroy(call(lib.ep_add, ctx, *mine)))], 20000)
    destroy(*mine)


for what in args.what:
    globals()[f"bench_{what}"]()
