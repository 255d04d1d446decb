"""What Triton's compiler makes of the forward kernel of common/compare/peer_triton.py, by num_stages: for docs/reference/triton.md. Needs torch and triton,
and no GPU: ptxas comes with Triton."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

try:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from common.compare import peer_triton
except ImportError as error:
    sys.stderr.write(f"docs/lab/triton_stages.py needs torch and triton: {error}\n")
    sys.exit(3)

TILE = {"CAUSAL": False, "D": 64, "Br": 128, "Bc": 64}
INSTRUCTIONS = ("mma.sync", "wgmma.mma_async", "cp.async.cg", "cp.async.wait_group", "bar.sync")


def compiled(sm, stages):
    kernel = peer_triton.forward_kernel.fn  # below autotune
    types = {"Q": "*fp16", "K": "*fp16", "V": "*fp16", "O": "*fp16", "L": "*fp32", "N": "i32", "d": "i32", "scale": "fp32"}
    multiples_of_16 = {(kernel.arg_names.index(name),): [["tt.divisibility", 16]] for name in types if name != "scale"}
    source = ASTSource(kernel, types | dict.fromkeys(TILE, "constexpr"), TILE, multiples_of_16)
    return triton.compile(source, target=GPUTarget("cuda", sm, 32), options={"num_warps": 4, "num_stages": stages})


def main():
    print(
        f"Triton {triton.__version__}, forward_kernel, fp16, d = {TILE['D']}, tiles of {TILE['Br']} queries and {TILE['Bc']} keys, 4 warps\n"
    )
    print(f"{'GPU':5}  {'num_stages':>10}  {'shared memory':>13}  " + "  ".join(INSTRUCTIONS))
    for sm in (80, 90):
        for stages in (1, 2, 3, 4):
            made = compiled(sm, stages)
            counts = (f"{made.asm['ptx'].count(name):{len(name)}}" for name in INSTRUCTIONS)
            print(f"sm_{sm}  {stages:10}  {made.metadata.shared // 1024:9} KiB  " + "  ".join(counts))


if __name__ == "__main__":
    main()
