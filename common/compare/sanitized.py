"""What compute-sanitizer runs of a stage, for common/check_gpu.sh: a line for each variant, pass and problem that the variant takes. The problems
are small, and still reach every kernel, every tail, the mask and the options, as those of common/grid/problems.cpp do for the simulator.

  python3 -m common.compare.sanitized TOOL STAGE_PROGRAM PROGRAM    PROGRAM: the build of that stage that the lines name
"""

from .programs import list_json
from .rows import Failure, run_main

SMALL = "--seq-q 65 --seq-k 97 --head-dim 40 --heads 4 --kv-heads 2"
PROBLEMS = (  # without a dtype: in the first that the stage takes
    f"{SMALL} --causal",
    "--seq 33 --head-dim 59 --layout qkv --bias matrix",
    f"{SMALL} --window 20,5 --softcap 2",
    f"{SMALL} --dropout 0.3",
    f"{SMALL} --causal --score lorentz",
    f"{SMALL} --causal --score lorentz --values centroid",
    "--seq 33 --head-dim 59 --bias matrix --bias-gradient",
    "--lengths 65:97,0,3:40 --head-dim 40 --heads 4 --kv-heads 2 --causal",
    "--seq-q 130 --seq-k 201 --head-dim 160 --heads 2 --kv-heads 1 --causal --dtype bf16",
)


def lines(tool, stage, program):
    usual = " --dtype " + list_json(stage)["variants"][0]["dtypes"][0]
    for problem in (problem + ("" if "--dtype" in problem else usual) for problem in PROBLEMS):
        for variant in list_json(stage, problem.split())["variants"]:
            for which in variant["passes"] if not variant["refusal"] else ():
                if which == "backward" or "--bias-gradient" not in problem:
                    yield f"{tool} {program} --device gpu --variant {variant['name']} --pass {which} {problem}"


def main(words):
    if len(words) != 3:
        raise Failure(2, f"{len(words)} arguments; allowed: TOOL STAGE_PROGRAM PROGRAM")
    print("\n".join(lines(*words)))


if __name__ == "__main__":
    run_main("sanitized", main)
