#!/usr/bin/env python3
"""The strongest public fused kernels on the GPU, at the shapes of docs/gpu.md: quack-kernels' gemm_gated (gate and up in one
product, activation in its epilogue) and its gemm for down.

    PYTHONPATH=SITE gpu_fused_peers.py [--seconds N] [--no-quack] [--turns] [--mlp] [--shapes M,DIM,HIDDEN ...]

SITE holds quack-kernels and nvidia-cutlass-dsl, installed with `pip install --target SITE` (its .pth file is not read there, so
that folder is added here). Each shape is measured with the default tiles and, as long as the time lasts, with its own
autotuning; torch eager, torch.compile and, where it is found, Liger are measured beside it (--autotune: torch's max-autotune, too;
--no-quack: without it; --mlp: blocks without a gate, of torch alone; --turns: the peers of a shape one after
the other, five times over, as `bench_gpu turns` does). "script_us" is what a
graph of 10 (50 where they are short) takes a forward, the median of seven after a second's rest, "us" is the median of 15 times 20 CUDA graph replays in a row, "rested_us" of five bursts of 3 ms after 0.2 s of rest each,
"long_us" the mean of 0.3 s after 0.15 s of the same; "host_us" is the least of bursts of eager calls; "off" the norm of the
difference to torch's eager block in float32 over that block's norm. One JSON line a measurement."""
import argparse
import json
import os
import signal
import statistics
import sys
import time

import torch
import torch.nn.functional as F

SHAPES = ["8192,768,3072", "8192,2048,16384", "8192,4096,14336", "1024,2048,16384", "128,4096,14336", "16,2048,16384",
          "1,2048,16384", "1,768,3072"]


WAITING = None  # by turns: graphs of a shape's peers


class Late(Exception):
    pass


def late(*_):
    raise Late


def load_quack():
    for folder in sys.path:
        packages = os.path.join(folder, "nvidia_cutlass_dsl", "dsl_packages")
        if os.path.isdir(packages) and packages not in sys.path:
            sys.path.insert(0, packages)
            break
    import quack.gemm_runtime.identity as identity
    plain = identity.semantic_value_key

    def key(value, *seen):
        """quack 0.6.5 wants to name all that an epilogue depends on, and with nvidia-cutlass-dsl 4.8.1 finds there what it cannot
        name (where it keeps source locations). By its type it is named well enough for one process with one epilogue."""
        try:
            return plain(value, *seen)
        except TypeError:
            return ("of type", type(value).__module__, type(value).__qualname__)

    identity.semantic_value_key = key
    from quack.gemm_interface import gemm, gemm_gated
    return gemm, gemm_gated


def load_liger():
    try:
        from liger_kernel.ops.geglu import LigerGELUMulFunction
    except ImportError:
        return None
    return LigerGELUMulFunction.apply


def capture(call, reps):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(reps):
            call()
    return graph


def burst(graph, n):
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(n):
        graph.replay()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1e3 / n


def by_turns():
    """What comes last in a list finds a warm card, so each peer has its turn, after 0.1 s of rest: 3 ms, then 30 ms after 30."""
    times = {name: ([], []) for name, _, _ in WAITING}
    for _ in range(5):
        for name, graph, _ in WAITING:
            time.sleep(0.1)
            burst(graph, 3)
            about = burst(graph, 10)
            time.sleep(0.1)
            burst(graph, 3)
            times[name][0].append(burst(graph, 1 + int(3e3 / about)))
            burst(graph, 1 + int(30e3 / about))
            times[name][1].append(burst(graph, 1 + int(30e3 / about)))
    for name, _, row in WAITING:
        rested, in_a_row = (round(statistics.median(t), 2) for t in times[name])
        print(json.dumps({**row, "rested_us": rested, "row_us": in_a_row}), flush=True)
    WAITING.clear()


def graph_us(call, reps):
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    graph, some = capture(call, 1), capture(call, reps)
    time.sleep(1)
    for _ in range(3):
        graph.replay()
    some.replay()
    at = [torch.cuda.Event(enable_timing=True) for _ in range(8)]
    at[0].record()
    for i in range(7):
        some.replay()
        at[i + 1].record()
    at[7].synchronize()
    script = statistics.median(at[i].elapsed_time(at[i + 1]) for i in range(7)) * 1e3 / reps
    us = statistics.median(burst(graph, 20) for _ in range(15))
    rested = []
    for _ in range(5):
        time.sleep(0.2)
        rested.append(burst(graph, max(1, int(3000 / us))))
    burst(graph, max(1, int(150e3 / us)))
    begin = time.time() % 86400
    longer = burst(graph, max(1, int(300e3 / us)))
    return {"script_us": round(script, 2), "us": round(us, 2), "rested_us": round(statistics.median(rested), 2),
            "long_us": round(longer, 2), "long_from": round(begin, 2), "long_to": round(time.time() % 86400, 2)}


def host_us(call):
    least = 1e9
    for _ in range(20):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(10):
            call()
        least = min(least, (time.perf_counter() - begin) * 1e5)
    torch.cuda.synchronize()
    return least


def measure(name, call, expected, shape, **more):
    y = call().float()
    off = ((y - expected).norm() / expected.norm()).item()
    row = {"peer": name, "m": shape[0], "dim": shape[1], "hidden": shape[2], "off": float(f"{off:.2e}"), **more}
    if WAITING is not None:
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            call()
        torch.cuda.synchronize()
        WAITING.append((name, capture(call, 1), row))
        return
    row.update(graph_us(call, 10 if shape[0] * shape[1] * shape[2] > 1 << 36 else 50))
    print(json.dumps({**row, "host_us": round(host_us(call), 1)}), flush=True)


def one_shape(gemm, gemm_gated, liger, shape, tuned, autotune, mlp):
    m, dim, hidden = shape
    torch.manual_seed(1)
    x = torch.randn(m, dim, device="cuda", dtype=torch.bfloat16)
    gate = torch.randn(hidden, dim, device="cuda", dtype=torch.bfloat16) / dim**0.5
    up = torch.randn(hidden, dim, device="cuda", dtype=torch.bfloat16) / dim**0.5
    down = torch.randn(dim, hidden, device="cuda", dtype=torch.bfloat16) / hidden**0.5
    both = torch.stack([gate, up], 1).reshape(2 * hidden, dim)  # gate and up by turns, as its epilogue wants them
    xf = x.float()
    expected = (F.gelu(xf @ gate.float().t(), approximate="tanh") * (xf @ up.float().t())) @ down.float().t()

    def quack():
        h = gemm_gated(x, both.t(), activation="geglu", store_preact=False, tuned=tuned)[1]
        return gemm(h, down.t(), tuned=tuned)

    def eager():
        return (F.gelu(x @ gate.t(), approximate="tanh") * (x @ up.t())) @ down.t()

    def eager_mlp():
        return F.gelu(x @ up.t(), approximate="tanh") @ down.t()

    if mlp:
        eager, expected = eager_mlp, F.gelu(xf @ up.float().t(), approximate="tanh") @ down.float().t()
    elif gemm:
        begin = time.perf_counter()
        quack()
        torch.cuda.synchronize()
        first = round(time.perf_counter() - begin, 2)
        measure("quack, autotuned" if tuned else "quack, default", quack, expected, shape, first_call_s=first)
    if tuned:
        return
    measure("torch eager", eager, expected, shape)
    if liger and not mlp:
        measure("liger", lambda: liger(x @ gate.t(), x @ up.t()) @ down.t(), expected, shape)
    for name, mode in (("torch.compile", None), ("max-autotune", "max-autotune-no-cudagraphs")):
        if mode and not autotune:
            continue
        torch._dynamo.reset()
        compiled = torch.compile(eager, dynamic=False, mode=mode)
        with torch.no_grad():
            compiled()
            measure(name, compiled, expected, shape)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--seconds", type=float, default=100)
    p.add_argument("--autotune", action="store_true")
    p.add_argument("--no-quack-autotune", action="store_true")
    p.add_argument("--no-quack", action="store_true")
    p.add_argument("--mlp", action="store_true")
    p.add_argument("--turns", action="store_true")
    p.add_argument("--shapes", nargs="*", default=SHAPES)
    a = p.parse_args()
    end = time.monotonic() + a.seconds
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    begin = time.perf_counter()
    global WAITING
    WAITING = [] if a.turns else None
    gemm, gemm_gated = (None, None) if a.no_quack or a.mlp else load_quack()
    liger = load_liger()
    print(json.dumps({"import_s": round(time.perf_counter() - begin, 1), "device": torch.cuda.get_device_name(),
                      "torch": torch.__version__}), flush=True)
    signal.signal(signal.SIGALRM, late)
    for tuned in (False,) if a.no_quack_autotune or not gemm else (False, True):
        for text in a.shapes:
            left = end - time.monotonic()
            if left < 3:
                print(json.dumps({"left out": text, "tuned": tuned}), flush=True)
                continue
            signal.alarm(int(left))
            try:
                one_shape(gemm, gemm_gated, liger, [int(v) for v in text.split(",")], tuned, a.autotune, a.mlp)
                if WAITING:
                    by_turns()
            except Late:
                print(json.dumps({"out of time": text, "tuned": tuned}), flush=True)
            except Exception as e:  # noqa: BLE001: what a peer cannot do is a line of the table
                print(json.dumps({"failed": text, "tuned": tuned, "why": f"{type(e).__name__}: {str(e)[:300]}"}), flush=True)
            finally:
                signal.alarm(0)


main()
