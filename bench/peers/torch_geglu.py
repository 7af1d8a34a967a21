#!/usr/bin/env python3
"""The geglu block in PyTorch and in Epilogue, in turn within one process on the same threads.

usage: torch_geglu.py LIBEPILOGUE.so [--dtype bf16|f32] [--threads N] [--rounds N] [--seconds S] [--compile] M DIM HIDDEN ...

Ways: torch eager (a fresh tensor for every result), torch eager with its buffers reused, with --compile torch.compile in
its default mode and with max-autotune, and Epilogue's eager and tuned modes. Weights and inputs are the same bytes for
all. A line gives the median time and the median over the rounds of its ratio to Epilogue's tuned mode (above 1: tuned is
faster), and the largest difference from the result in float64.
"""
import argparse
import ctypes
import math
import statistics
import time

import torch
import torch.nn.functional as F


class Epilogue:
    """libepilogue's block over the memory of torch tensors."""

    DTYPES = {torch.float32: 0, torch.bfloat16: 1}

    class Device(ctypes.Structure):
        _fields_ = [("kind", ctypes.c_int), ("index", ctypes.c_int32)]

    class Options(ctypes.Structure):
        pass

    class Weights(ctypes.Structure):
        _fields_ = [(n, ctypes.c_void_p) for n in ("up", "up_bias", "gate", "gate_bias", "down", "down_bias", "gate_up")]
        _fields_ += [("interleaved", ctypes.c_bool)]

    def __init__(self, path, threads):
        self.lib = ctypes.CDLL(path)
        self.Options._fields_ = [("device", self.Device), ("threads", ctypes.c_int), ("rounding", ctypes.c_int),
                                 ("reference", ctypes.c_bool)]
        self.ctx = ctypes.c_void_p()
        options = self.Options(self.Device(0, 0), threads, 0, False)
        assert self.lib.ep_context_create(ctypes.byref(options), None, ctypes.byref(self.ctx)) == 0
        self.lib.ep_tensor_data.restype = ctypes.c_void_p
        self.lib.ep_tensor_data.argtypes = [ctypes.c_void_p]
        self.lib.ep_tensor_destroy.argtypes = [ctypes.c_void_p]
        self.lib.ep_tensor_from_memory.argtypes = [self.Device, ctypes.c_int, ctypes.c_int, ctypes.c_void_p,
                                                   ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p,
                                                   ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]

    def tensor(self, t):
        sizes = (ctypes.c_int64 * t.dim())(*t.shape)
        out = ctypes.c_void_p()
        status = self.lib.ep_tensor_from_memory(self.Device(0, 0), self.DTYPES[t.dtype], t.dim(), sizes, None,
                                                t.data_ptr(), t.numel() * t.element_size(), None, None, None,
                                                ctypes.byref(out))
        assert status == 0
        return out

    def geglu(self, gate, up, down):
        w = self.Weights(up=self.tensor(up).value, gate=self.tensor(gate).value, down=self.tensor(down).value)
        block = ctypes.c_void_p()
        assert self.lib.ep_block_create(self.ctx, 2, 1, ctypes.byref(w), ctypes.byref(block)) == 0
        return block

    def run(self, block, mode, x):
        y = ctypes.c_void_p()
        assert self.lib.ep_block_run(block, mode, x, None, ctypes.byref(y)) == 0
        return y

    def take(self, y, like):
        buffer = (ctypes.c_char * (like.numel() * like.element_size())).from_address(self.lib.ep_tensor_data(y))
        t = torch.frombuffer(buffer, dtype=like.dtype).reshape(like.shape).clone()
        self.lib.ep_tensor_destroy(y)
        return t


def timed(run, least):
    start = time.perf_counter()
    n = 0
    while True:
        run()
        n += 1
        now = time.perf_counter()
        if now - start >= least:
            return (now - start) / n


def measure(ep, args, m, dim, hidden):
    dtype = {"bf16": torch.bfloat16, "f32": torch.float32}[args.dtype]
    torch.manual_seed(0)
    x = torch.randn(m, dim).to(dtype)
    gate, up = (torch.randn(hidden, dim).div_(math.sqrt(dim)).to(dtype) for _ in range(2))
    down = torch.randn(dim, hidden).div_(math.sqrt(hidden)).to(dtype)

    def eager(x):
        return F.linear(F.gelu(F.linear(x, gate), approximate="tanh") * F.linear(x, up), down)

    g, u, y = (torch.empty(m, n, dtype=dtype) for n in (hidden, hidden, dim))
    gate_t, up_t, down_t = gate.t(), up.t(), down.t()

    def reused():
        torch.mm(x, gate_t, out=g)
        torch.mm(x, up_t, out=u)
        torch.ops.aten.gelu.out(g, approximate="tanh", out=g)
        torch.mul(g, u, out=g)
        torch.mm(g, down_t, out=y)
        return y

    block, ex = ep.geglu(gate, up, down), ep.tensor(x)
    ways = {
        "epilogue tuned": (lambda: ep.lib.ep_tensor_destroy(ep.run(block, 2, ex)),
                           lambda: ep.take(ep.run(block, 2, ex), y)),
        "epilogue eager": (lambda: ep.lib.ep_tensor_destroy(ep.run(block, 0, ex)),
                           lambda: ep.take(ep.run(block, 0, ex), y)),
        "torch eager": (lambda: eager(x), lambda: eager(x)),
        "torch eager, buffers reused": (reused, reused),
    }
    if args.compile:
        default, tuned = torch.compile(eager), torch.compile(eager, mode="max-autotune")
        ways["torch.compile"] = (lambda: default(x), lambda: default(x))
        ways["torch.compile max-autotune"] = (lambda: tuned(x), lambda: tuned(x))
    with torch.no_grad():
        exact = None
        if m * dim * hidden <= 1 << 31:
            exact = F.linear(F.gelu(F.linear(x.double(), gate.double()), approximate="tanh")
                             * F.linear(x.double(), up.double()), down.double())
        error = {name: (once().double() - exact).abs().max().item() if exact is not None else math.nan
                 for name, (_, once) in ways.items()}
        times = {name: [] for name in ways}
        for name, (run, _) in ways.items():
            run()
        for _ in range(args.rounds):
            for name, (run, _) in ways.items():
                times[name].append(timed(run, args.seconds))
    print(f"{args.dtype} M {m}, {dim} -> {hidden}, {args.threads} threads")
    for name, t in times.items():
        ratio = statistics.median(a / b for a, b in zip(t, times["epilogue tuned"]))
        print(f"  {name:28} {statistics.median(t) * 1e6:10.1f} us  x{ratio:.2f}  max error {error[name]:.2e}", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("library")
    p.add_argument("--dtype", choices=("bf16", "f32"), default="bf16")
    p.add_argument("--threads", type=int, default=torch.get_num_threads())
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seconds", type=float, default=0.05)
    p.add_argument("--compile", action="store_true")
    p.add_argument("sizes", type=int, nargs="+")
    args = p.parse_args()
    if len(args.sizes) % 3:
        p.error("sizes come in threes: M DIM HIDDEN")
    torch.set_num_threads(args.threads)
    ep = Epilogue(args.library, args.threads)
    print(f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}")
    for i in range(0, len(args.sizes), 3):
        measure(ep, args, *args.sizes[i:i + 3])


if __name__ == "__main__":
    main()
