"""Made-up rows for the tests of plot.py. No figure here is a measurement."""

GPU = {"kind": "gpu", "name": "Test GPU", "sm": 90, "cuda": "13.0", "driver": "1"}
CPU = {"kind": "cpu", "name": "Test CPU", "sm": 0, "cuda": "", "driver": ""}


def problem(n, d=64, causal=False, dtype="fp32", batch=2, heads=4, **other):
    return {
        "batch": batch,
        "heads": heads,
        "kv_heads": heads,
        "seq_q": n,
        "seq_k": n,
        "head_dim": d,
        "causal": causal,
        "bias": "none",
        "dtype": dtype,
        "layout": "bhnd",
        **other,
    }


def flops(p, direction="forward"):
    """Without the mask's half, as if all pairs were visible: easy numbers."""
    return 4.0 * p["batch"] * p["heads"] * p["seq_q"] * p["seq_k"] * p["head_dim"] * (1 if direction == "forward" else 2.5)


def row(stage, variant, direction, n, ms=None, device=GPU, verdict="ok", **other):
    """A row of `compare --save`; `other` are sizes of the problem, or fields of the row."""
    sizes = {key: other.pop(key) for key in ("d", "causal", "dtype", "batch", "heads", "bias") if key in other}
    p = problem(n, **sizes)
    made = {
        "stage": stage,
        "variant": variant,
        "pass": direction,
        "idea": f"the idea of {variant}",
        "device": device,
        "problem": p,
        "flops": flops(p, direction),
        "verdict": verdict,
        "check": {"passed": True},
        "commit": "c" * 40,
        "date": "2026-01-01T00:00:00Z",
    }
    if ms is not None:
        made["time"] = {"median_ms": ms, "min_ms": ms, "max_ms": ms, "iterations": 20, "cold_l2": True}
        made["tflops"] = made["flops"] / ms / 1e9
    return {**made, **other}


def speed(stage, variant, direction, n, tflops, **other):
    """A row with this many TFLOP/s."""
    sizes = {key: other[key] for key in ("d", "causal", "dtype", "batch", "heads") if key in other}
    return row(stage, variant, direction, n, flops(problem(n, **sizes), direction) / tflops / 1e9, **other)


def counted(stage, variant, direction, n, moved, extra=0, dtype="fp32", **counts):
    counters = {"sectors": 1, "barriers": 2, "warp_operations": 3, "bank_conflicts": 0, **counts}
    return row(
        stage,
        variant,
        direction,
        n,
        device=CPU,
        dtype=dtype,
        batch=1,
        heads=1,
        hbm_read_bytes=moved // 2,
        hbm_written_bytes=moved - moved // 2,
        compulsory_bytes=1024 * n,
        extra_memory_bytes=extra,
        counters=counters,
    )


def gpu_rows():
    """A sweep: 01 at 1 ms for N = 1,000 and N² from there, 04 ten times as fast, and so on; 16 bits; peers; cells that are missing."""
    rows = []
    for n in (1000, 2000, 4000):
        ms = (n / 1000) ** 2
        rows += [
            row("01_naive", "naive", "forward", n, ms, extra_memory_bytes=8 * 8 * n * n),
            row("04_fa1_forward", "thread_per_row", "forward", n, ms / 10, extra_memory_bytes=8 * 8 * n),
            row("06_fa2_forward", "loop_order", "forward", n, ms / 20, extra_memory_bytes=0),
            row("06_fa2_forward", "warp_tiled", "forward", n, ms / (10 if n == 1000 else 40), extra_memory_bytes=0),
            row("07_fa2_backward", "one_kernel", "forward", n, ms / 100),  # borrowed: must not be seen
            row("07_fa2_backward", "one_kernel", "backward", n, ms / 10, extra_memory_bytes=8 * 4 * n),
            row("peer", "memory_efficient", "forward", n, ms / 30),
            row("peer", "flash", "forward", n, verdict="refused", message="fp32"),
            speed("08_tensor_cores", "mma", "forward", n, 100, dtype="fp16", extra_memory_bytes=0),
            speed("08_tensor_cores", "tuned", "forward", n, 200, dtype="fp16", extra_memory_bytes=0),
            speed("08_tensor_cores", "one_kernel", "backward", n, 50, dtype="fp16", extra_memory_bytes=8 * 256 * n),
            speed("peer", "flash", "forward", n, 150, dtype="fp16"),
            speed("peer", "flash", "backward", n, 60, dtype="fp16"),
        ]
        rows.append(
            speed("peer", "plain", "forward", n, 40, dtype="fp16")
            if n < 4000
            else row(
                "peer",
                "plain",
                "forward",
                n,
                dtype="fp16",
                verdict="skipped",
                message="S and P need 9 GiB of GPU memory; 8 GiB are free",
                device=None,
            )
        )
    rows.append(row("01_naive", "naive", "forward", 8000, verdict="cannot run", message="not enough memory"))
    rows.append(row("04_fa1_forward", "thread_per_row", "forward", 8000, 6.4))
    kernel = {"kernel": "k", "hbm_read_bytes": 3 * 2**20, "hbm_written_bytes": 2**20}
    for direction, hidden in (("forward", "06_fa2_forward"), ("backward", "07_fa2_backward")):
        rows.append(
            speed(hidden, "warp_tiled", direction, 512, 32, causal=True, profile=[kernel, kernel], flops=64 * 8 * 2**20, percent_of_peak=50)
        )
        rows[-1]["time"]["median_ms"] = rows[-1]["flops"] / 32e9
    return rows


def cpu_rows():
    rows = []
    for n in (64, 128, 256):
        rows += [
            counted("01_naive", "naive", "forward", n, 16 * n * n, extra=8 * n * n, barriers=40),
            counted("04_fa1_forward", "thread_per_row", "forward", n, 4096 * n, extra=8 * n, barriers=10),
            counted("05_fa1_backward", "thread_per_row", "backward", n, 8192 * n, extra=8 * n),
            counted("06_fa2_forward", "loop_order", "forward", n, 8192 * n),
            counted("06_fa2_forward", "warp_tiled", "forward", n, 2048 * n, sectors=7_777_777),
            counted("08_tensor_cores", "tuned", "forward", n, 1024 * n, dtype="fp16"),
        ]
    return rows
