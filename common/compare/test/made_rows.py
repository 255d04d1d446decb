"""Made-up rows for the tests of rows, plots and reports. No figure here is a measurement."""

COMMIT = "1234567890abcdef1234567890abcdef12345678"
GPU = {"kind": "gpu", "name": "Test GPU", "sm": 90, "cuda": "13.0", "driver": "580.1"}
CPU = {"kind": "cpu", "name": "Test CPU", "sm": 0, "cuda": "", "driver": ""}
BYTES = {"compulsory_bytes": 1 << 20, "extra_memory_bytes": 0, "hbm_read_bytes": 3 << 20, "hbm_written_bytes": 1 << 20}


def problem(**given):
    sizes = {"batch": 2, "heads": 4, "kv_heads": 4, "seq_q": 256, "seq_k": 256, "head_dim": 64, "scale": 0.125, "seed": 1}
    return {**sizes, "causal": True, "bias": "none", "dtype": "fp32", "layout": "bhnd", "input": "normal", **given}


def row(stage, variant, ms=None, device=GPU, sizes=None, **more):
    """A row as `compare --save` writes it: with a time on a GPU, with counts on the CPU."""
    names = {"stage": stage, "variant": variant, "pass": "forward", "idea": f"idea of {variant}", "kernel": f"{stage}/{variant}.cuh"}
    origin = {"device": device, "commit": COMMIT, "date": "2026-01-02T03:04:05Z", "sources": {}}
    check = {"passed": True, "tensors": {"o": {"max_abs": 4.5e-7, "tolerance": 1e-6}}}
    made = {**names, **origin, "problem": problem(**(sizes or {})), "verdict": "ok", "check": check, "flops": 8e9, **BYTES}
    made["tiles"] = {"br": 128, "bc": 32}
    if device is CPU:
        made["counters"] = {"sectors": 1234, "barriers": 56, "warp_operations": 7, "bank_conflicts": 8}
    elif ms is not None:
        made["time"] = {"median_ms": ms, "min_ms": ms - 0.5, "max_ms": ms + 0.5, "iterations": 3, "cold_l2": True}
        made.update(tflops=8 / ms, percent_of_peak=8 / ms)
    return {**made, **more}


# ---- for plots -------------------------------------------------------------------------------------------------------------


def flops(p, which="forward"):
    """Without the mask's half, as if all pairs were visible: easy numbers."""
    return 4.0 * p["batch"] * p["heads"] * p["seq_q"] * p["seq_k"] * p["head_dim"] * (1 if which == "forward" else 2.5)


def at(n, stage, variant, which, ms=None, tflops=None, **other):
    """A row of a length, by its time or its speed; without bytes but those that are given. `other` are fields of the problem or the row."""
    sizes = {key: other.pop(key) for key in ("head_dim", "causal", "dtype", "batch", "heads", "bias") if key in other}
    sizes = {"causal": False, "seq_q": n, "seq_k": n, "kv_heads": sizes.get("heads", 4), **sizes}
    work = flops(problem(**sizes), which)
    made = row(stage, variant, work / tflops / 1e9 if tflops else ms, other.pop("device", GPU), sizes, **{"pass": which, "flops": work})
    return {**{key: value for key, value in made.items() if key not in BYTES}, **other}


def counted(n, stage, variant, which, moved, extra=0, dtype="fp32", **counts):
    moved = {"hbm_read_bytes": moved // 2, "hbm_written_bytes": moved - moved // 2, "extra_memory_bytes": extra}
    counters = {"sectors": 1, "barriers": 2, "warp_operations": 3, "bank_conflicts": 0, **counts}
    return at(n, stage, variant, which, device=CPU, dtype=dtype, batch=1, heads=1, counters=counters, compulsory_bytes=1024 * n, **moved)


def gpu_rows():
    """A sweep: 01 at 1 ms for N = 1,000 and N² from there, 04 ten times as fast, and so on; 16 bits; peers; cells that are missing."""
    rows = []
    for n in (1000, 2000, 4000):
        ms = (n / 1000) ** 2
        rows += [
            at(n, "01_naive", "naive", "forward", ms, extra_memory_bytes=8 * 8 * n * n),
            at(n, "04_fa1_forward", "thread_per_row", "forward", ms / 10, extra_memory_bytes=8 * 8 * n),
            at(n, "06_fa2_forward", "loop_order", "forward", ms / 20, extra_memory_bytes=0),
            at(n, "06_fa2_forward", "warp_tiled", "forward", ms / (10 if n == 1000 else 40), extra_memory_bytes=0),
            at(n, "07_fa2_backward", "one_kernel", "forward", ms / 100),  # borrowed: must not be seen
            at(n, "07_fa2_backward", "one_kernel", "backward", ms / 10, extra_memory_bytes=8 * 4 * n),
            at(n, "peer", "memory_efficient", "forward", ms / 30),
            at(n, "peer", "flash", "forward", verdict="refused", message="fp32"),
            at(n, "08_tensor_cores", "mma", "forward", tflops=100, dtype="fp16", extra_memory_bytes=0),
            at(n, "08_tensor_cores", "tuned", "forward", tflops=200, dtype="fp16", extra_memory_bytes=0),
            at(n, "08_tensor_cores", "one_kernel", "backward", tflops=50, dtype="fp16", extra_memory_bytes=8 * 256 * n),
            at(n, "peer", "flash", "forward", tflops=150, dtype="fp16"),
            at(n, "peer", "flash", "backward", tflops=60, dtype="fp16"),
        ]
    rows += [at(n, "peer", "plain", "forward", tflops=40, dtype="fp16") for n in (1000, 2000)]
    needs = {"verdict": "skipped", "message": "S and P need 9 GiB of GPU memory; 8 GiB are free", "device": None}
    rows.append(at(4000, "peer", "plain", "forward", dtype="fp16", **needs))
    rows.append(at(8000, "01_naive", "naive", "forward", verdict="cannot run", message="not enough memory"))
    rows.append(at(8000, "04_fa1_forward", "thread_per_row", "forward", 6.4))
    profile = 2 * [{"kernel": "k", "hbm_read_bytes": 3 * 2**20, "hbm_written_bytes": 2**20}]
    work = 64 * 8 * 2**20
    for stage, which in (("06_fa2_forward", "forward"), ("07_fa2_backward", "backward")):
        rows.append(at(512, stage, "warp_tiled", which, work / 32e9, causal=True, profile=profile, flops=work, percent_of_peak=50))
    return rows


def cpu_rows():
    rows = []
    for n in (64, 128, 256):
        rows += [
            counted(n, "01_naive", "naive", "forward", 16 * n * n, extra=8 * n * n, barriers=40),
            counted(n, "04_fa1_forward", "thread_per_row", "forward", 4096 * n, extra=8 * n, barriers=10),
            counted(n, "05_fa1_backward", "thread_per_row", "backward", 8192 * n, extra=8 * n),
            counted(n, "06_fa2_forward", "loop_order", "forward", 8192 * n),
            counted(n, "06_fa2_forward", "warp_tiled", "forward", 2048 * n, sectors=7_777_777),
            counted(n, "08_tensor_cores", "tuned", "forward", 1024 * n, dtype="fp16"),
        ]
    return rows
