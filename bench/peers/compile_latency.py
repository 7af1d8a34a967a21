#!/usr/bin/env python3
"""What torch.compile (inductor, CPU) costs beside Epilogue's compiled mode: the first call, the longest call while sizes
shift, host time of one Linear, and the fused kernel.

    compile_latency.py LIBEPILOGUE.so BENCH_COMPILE [--threads N] [--calls N] [--sizes N] [--only POLICY] [--json] [first] [shift] [host] [kernel]

Every first call and every run of shifting sizes is a process of its own, with a cache folder of its own (TORCHINDUCTOR_
CACHE_DIR; ours through `bench_compile --child`); "warm" is a second process with the same folder. The block is geglu, bf16
[batch, 16, 768] -> 3072 -> 768, no bias; batches are the same draw for all, from 1..64, or from N multiples of 64/N
(torch.compile's static policy takes minutes for 64). torch's imports are not counted.
host and kernel run both sides in turn in one process, Epilogue through ctypes.
"""
import argparse
import ctypes as C
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

if not os.environ.get("OMP_PROC_BIND"):
    os.environ.update(OMP_PROC_BIND="close", OMP_PLACES="cores")
    os.execv(sys.executable, [sys.executable] + sys.argv)

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument("shared_library")
p.add_argument("bench")
p.add_argument("what", nargs="*", default=["first", "shift", "host", "kernel"])
p.add_argument("--threads", type=int, default=2)
p.add_argument("--calls", type=int, default=200)
p.add_argument("--sizes", type=int, default=64, help="how many distinct batches")
p.add_argument("--only", choices=["static", "auto", "dynamic"], help="of torch.compile's policies")
p.add_argument("--json", action="store_true")
p.add_argument("--child", nargs=2, metavar=("WHAT", "DYNAMIC"), help="internal: print one JSON list")
args = p.parse_args()
DYNAMIC = {"static": False, "auto": None, "dynamic": True}


def say(what, **values):
    if args.json:
        print(json.dumps({"what": what, **values}), flush=True)
        return
    shown = [f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in values.items()]
    print(f"  {what:44s} " + "  ".join(shown), flush=True)


def batches(count):
    state, mask = 88172645463325252, (1 << 64) - 1
    for _ in range(count):
        state ^= state << 13 & mask
        state ^= state >> 7
        state ^= state << 17 & mask
        yield (1 + (state >> 33) % args.sizes) * (64 // args.sizes)


def block():
    import torch
    import torch.nn.functional as F
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    gate, up = (torch.randn(3072, 768).mul(0.05).bfloat16() for _ in range(2))
    down = torch.randn(768, 3072).mul(0.05).bfloat16()

    def geglu(x):
        return F.linear(F.gelu(F.linear(x, gate), approximate="tanh") * F.linear(x, up), down)

    return torch, geglu


def child(what, dynamic):
    torch, geglu = block()
    x = torch.randn(64, 16, 768).bfloat16()

    def timed(f, part):
        start = time.perf_counter()
        f(part)
        return (time.perf_counter() - start) * 1e3

    with torch.no_grad():
        if dynamic == "eager":
            print(json.dumps([timed(geglu, x[:b]) for b in batches(args.calls)]))
            return
        torch._dynamo.config.cache_size_limit = max(64, args.sizes)  # the usual 8 would go eager in silence
        f = torch.compile(geglu, dynamic=DYNAMIC[dynamic])
        if what == "first":
            eager = timed(geglu, x[:1])
            print(json.dumps([eager, timed(f, x[:1]), timed(f, x[:1])]))
            return
        ms = [timed(f, x[:b]) for b in batches(args.calls)]
    counters = torch._dynamo.utils.counters
    print(json.dumps(ms + [counters["stats"]["unique_graphs"]]))


def torch_child(what, dynamic, folder):
    command = [sys.executable, sys.argv[0], args.shared_library, args.bench, "--threads", str(args.threads), "--calls",
               str(args.calls), "--sizes", str(args.sizes), "--child", what, dynamic]
    out = subprocess.run(command, env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": folder}, stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL, check=True)
    return json.loads(out.stdout.splitlines()[-1])


def our_child(*words):
    command = [args.bench, "--threads", str(args.threads), "--sizes", str(args.sizes), "--child", *words]
    return [float(v) for v in subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.split()]


def first():
    print("first compiled call of a process, ms (the eager call before it, the first, the one after it)")
    for dynamic in [args.only] if args.only else ("static", "dynamic"):
        with tempfile.TemporaryDirectory() as folder:
            for cache in ("empty cache", "filled cache"):
                eager, call, after = torch_child("first", dynamic, folder)
                say(f"torch.compile {dynamic}, {cache}", eager=eager, first=call, after=after)
    with tempfile.TemporaryDirectory() as folder:
        for cache in ("empty cache", "filled cache"):
            eager, call, ready, after = our_child("first", folder)
            say(f"Epilogue, waiting, {cache}", eager=eager, first=call, code_ready=ready, after=after)


def shift():
    print(f"{args.calls} calls, batch drawn from {args.sizes} multiples of {64 // args.sizes}, empty cache, each way in a process of its own, ms")
    ways = [(f"torch.compile dynamic={v}", "shift", d) for d, v in DYNAMIC.items()
            if args.only in (None, d)] + [("torch eager", "shift", "eager")]
    for name, what, dynamic in ways:
        with tempfile.TemporaryDirectory() as folder:
            ms = torch_child(what, dynamic, folder)
        built = ms.pop() if dynamic != "eager" else 0
        summary(name, ms, compiles=int(built))
    for name, mode in (("Epilogue, sizes free, no call waits", "generic"), ("Epilogue, static, calls wait", "static"),
                       ("Epilogue eager", "eager")):
        with tempfile.TemporaryDirectory() as folder:
            ms = our_child("shift", mode, folder)
        summary(name, ms[:-2], compiles=int(ms[-2]), by_eager=int(ms[-1]))


def summary(name, ms, **more):
    ms = sorted(ms)
    say(name, p50=ms[len(ms) // 2], p99=ms[len(ms) * 99 // 100], longest=ms[-1], sum_s=sum(ms) / 1e3, **more)


class Device(C.Structure):
    _fields_ = [("kind", C.c_int), ("index", C.c_int32)]


class ContextOptions(C.Structure):
    _fields_ = [("device", Device), ("threads", C.c_int), ("rounding", C.c_int), ("reference", C.c_bool)]


class CompileOptions(C.Structure):
    _fields_ = [("wait", C.c_int), ("specialize", C.c_int), ("weights_stay", C.c_bool), ("no_disk_cache", C.c_bool),
                ("cache_dir", C.c_char_p), ("limit", C.c_double), ("dump_pass", C.c_char_p), ("dump", C.c_void_p), ("dump_user", C.c_void_p)]


P = C.c_void_p
Fn = C.CFUNCTYPE(C.c_int, P, P, C.POINTER(P), C.c_int, C.POINTER(P), C.c_int)


class Epilogue:
    def __init__(self, threads):
        self.lib = C.CDLL(args.shared_library)
        self.ctx = P()
        assert self.lib.ep_context_create(C.byref(ContextOptions(Device(0, 0), threads, 0, False)), None,
                                          C.byref(self.ctx)) == 0
        self.keep = []

    def tensor(self, t):
        import torch
        out = P()
        assert self.lib.ep_tensor_from_memory(
            Device(0, 0), {torch.float32: 0, torch.bfloat16: 1}[t.dtype], t.dim(), (C.c_int64 * t.dim())(*t.shape),
            (C.c_int64 * t.dim())(*t.stride()), P(t.data_ptr()), C.c_size_t(t.numel() * t.element_size()), None, None,
            None, C.byref(out)) == 0
        self.keep.append(t)
        return out

    def compile(self, fn, inputs):
        """fn(ctx, inputs, outputs) -> status, in the eager API. Gives a function that calls the compiled one."""
        callback = Fn(lambda ctx, user, i, n, o, m: fn(P(ctx), i, o))
        self.keep.append(callback)
        compiled = P()
        assert self.lib.ep_compile(self.ctx, callback, None, len(inputs), 1, C.byref(CompileOptions(wait=1, no_disk_cache=True)),
                                   C.byref(compiled)) == 0
        array, out, lib = (P * len(inputs))(*inputs), P(), self.lib

        def call():
            lib.ep_compiled_call(compiled, array, C.byref(out))
            lib.ep_tensor_destroy(out)

        for _ in range(40):  # until the choice between compiled and eager is made
            call()
        return call


def in_turn(ways, rounds, least):
    """Median seconds of each, and median over the rounds of its ratio to the first."""
    times = {name: [] for name in ways}
    for f in ways.values():
        f()
    for _ in range(rounds):
        for name, f in ways.items():
            n, start = 0, time.perf_counter()
            while True:
                f()
                n += 1
                now = time.perf_counter() - start
                if now >= least:
                    break
            times[name].append(now / n)
    base = times[next(iter(ways))]
    return {n: (statistics.median(t), statistics.median(a / b for a, b in zip(t, base))) for n, t in times.items()}


def host():
    import torch
    import torch.nn.functional as F
    torch.set_num_threads(1)
    e = Epilogue(1)
    x, w, b = torch.randn(8, 32), torch.randn(64, 32), torch.randn(64)
    ours = [e.tensor(t) for t in (x, w, b)]
    lib, out = e.lib, P()

    def eager():
        lib.ep_linear(e.ctx, *ours, C.byref(out))
        lib.ep_tensor_destroy(out)

    call = e.compile(lambda ctx, i, o: lib.ep_linear(ctx, P(i[0]), ours[1], ours[2], o), ours[:1])
    with torch.no_grad():
        compiled = torch.compile(lambda x: F.linear(x, w, b))
        result = in_turn({"torch eager": lambda: F.linear(x, w, b), "torch.compile": lambda: compiled(x),
                          "Epilogue eager": eager, "Epilogue compiled": call}, 15, 0.01)
    print("one Linear with bias, f32 8x32->64, 1 thread, called from Python, us a call")
    for name, (t, ratio) in result.items():
        say(name, us=t * 1e6, ratio=ratio)


def kernel():
    import torch
    import torch.nn.functional as F
    torch.set_num_threads(args.threads)
    for dtype in (torch.bfloat16, torch.float32):
        e = Epilogue(args.threads)
        lib = e.lib
        g, u = (torch.randn(8192, 3072).to(dtype) for _ in range(2))

        def gated(ctx, i, o):
            h = P()
            status = lib.ep_gelu_tanh(ctx, P(i[0]), C.byref(h)) or lib.ep_mul(ctx, h, P(i[1]), o)
            lib.ep_tensor_destroy(h)
            return status

        call = e.compile(gated, [e.tensor(g), e.tensor(u)])
        out = torch.empty_like(g)

        def plain(g, u):
            return F.gelu(g, approximate="tanh") * u

        def into(g, u, out):
            return out.copy_(F.gelu(g, approximate="tanh") * u)

        with torch.no_grad():
            compiled, given = torch.compile(plain), torch.compile(into)
            result = in_turn({"Epilogue compiled": call, "torch eager": lambda: plain(g, u),
                              "torch.compile": lambda: compiled(g, u),
                              "torch.compile, result given": lambda: given(g, u, out)}, 9, 0.03)
        print(f"gelu_tanh(g) * u, {dtype} [8192, 3072], {args.threads} threads, ms")
        for name, (t, ratio) in result.items():
            say(name, ms=t * 1e3, ratio=ratio)


if args.child:
    child(*args.child)
else:
    for name in args.what:
        {"first": first, "shift": shift, "host": host, "kernel": kernel}[name]()
