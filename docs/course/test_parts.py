#!/usr/bin/env python3
"""Tests of what course.py is made of: anchors, the scan, the sandbox, points, formulas. test_parts.py BUILD runs them against a build folder
of the project."""

import contextlib
import io
import json
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from kit import Fault, Usage, build, exercise, grade, measure, sandbox, scan, slides

BUILD = HERE.parents[1] / "build-course"
NAME = "01_softmax"


class Parts(unittest.TestCase):
    def test_an_anchor_that_a_kernel_has_lost_is_an_error(self):
        e = exercise.load(NAME)
        e.first = "  float el = 0.0f;\n"
        with self.assertRaisesRegex(Usage, "the anchor 'first' stands 0 times in 01_naive/kernel.cuh"):
            e.parts()
        e.first = "\n"
        with self.assertRaisesRegex(Usage, "the anchor 'first' stands .* times"):
            e.parts()

    def test_a_chapter_that_shows_the_solution_is_found_out(self):
        quoted = {name: exercise.load(name).is_quoted() for name in exercise.names()}
        self.assertEqual([name for name in quoted if not quoted[name]], ["01_softmax", "05_key_gradient", "08_fragments", "08_swizzle"])

    def test_the_commands_of_ninja_and_of_make(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            stage = "01_naive"
            (folder / stage / "CMakeFiles" / f"{stage}.dir").mkdir(parents=True)
            (folder / stage / "CMakeFiles" / f"{stage}.dir" / "link.txt").write_text(
                "c++ CMakeFiles/step.dir/kernel.o -o ../bin/01_naive\n"
            )
            precompiled = (
                "",
                "-include /x/cmake_pch.hxx",
                "-Xclang -include-pch -Xclang /x/cmake_pch.hxx.pch -Xclang -include -Xclang /x/cmake_pch.hxx",
            )
            for headers in precompiled:
                command = f"/usr/bin/ccache c++ -Werror {headers} -o CMakeFiles/step.dir/kernel.o -c kernel_cpu.cpp"
                entry = {"directory": str(folder / stage), "command": command, "file": str(folder / stage / "kernel_cpu.cpp")}
                (folder / "compile_commands.json").write_text(json.dumps([entry]))
                words, made = build.compile_command(folder, "01_naive/kernel.cuh")
                self.assertEqual(words, ["c++", "-o", "CMakeFiles/step.dir/kernel.o", "-c", "kernel_cpu.cpp"])
            linked, place = build.link_command(folder, stage)
            self.assertIn(made, [place / word for word in linked])
            with self.assertRaisesRegex(Usage, "does not build 02_absent/kernel.cuh"):
                build.compile_command(folder, "02_absent/kernel.cuh")
        words, made = build.compile_command(BUILD, "01_naive/kernel.cuh")
        linked, place = build.link_command(BUILD, "01_naive")
        self.assertIn(made, [place / word for word in linked])

    def test_the_first_error_is_found_at_once_behind_long_lines(self):
        e, header = exercise.load(NAME), Path("/place of/kernel.cuh")
        said = (
            f"{header}: In function 'f{'a' * 40000}':\n{header}:12:3: error: no 'x'\n   12 | x\n      | ^\n{header}:13:1: error: another\n"
        )
        began = time.process_time()
        told = build.first_error(sandbox.Done(1, "", said, 0), header, e)
        self.assertEqual(told, f"{e.student_name}, line 12: no 'x'\n   12 | x\n      | ^")
        self.assertLess(time.process_time() - began, 1)

    def test_a_build_that_takes_minutes_is_announced(self):
        with tempfile.TemporaryDirectory() as name, unittest.mock.patch.object(build, "must") as must:
            folder = Path(name)
            (folder / "bin").mkdir()
            (folder / "CMakeCache.txt").write_text(f"CMAKE_HOME_DIRECTORY:INTERNAL={exercise.ROOT}\n")
            for there, says in (
                ("01_naive", "course: building 08_tensor_cores, course_judge;"),
                ("08_tensor_cores", "building course_judge;"),
            ):
                (folder / "bin" / there).touch()
                with contextlib.redirect_stdout(io.StringIO()) as out:
                    build.prepare(folder, {"01_naive", "08_tensor_cores"})
                self.assertIn(says, out.getvalue())
            (folder / "bin" / build.JUDGE).touch()
            with contextlib.redirect_stdout(io.StringIO()) as out:
                build.prepare(folder, {"01_naive", "08_tensor_cores"})
            self.assertEqual((out.getvalue(), must.call_count), ("", 3))

    def test_the_build_folder_of_a_copied_checkout_is_configured_anew(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for home in (name, "/nowhere"):
                (folder / "CMakeCache.txt").write_text(f"CMAKE_HOME_DIRECTORY:INTERNAL={home}\nFLASH_CUDA:STRING=AUTO\n")
                with unittest.mock.patch.object(build, "must") as must, contextlib.redirect_stdout(io.StringIO()) as out:
                    build.prepare(folder, {"01_naive"})
                self.assertIn(f"builds another folder, {home}; preparing it anew", out.getvalue())
                configured = must.call_args_list[0].args[0]
                self.assertEqual([word in configured for word in ("--fresh", exercise.ROOT, "-DFLASH_CUDA=AUTO")], [True] * 3)

    def test_the_scan(self):
        for lines, says in (
            ("int a = 1; // std::exit(0)", ""),
            ("float x[4]; x[0] = a * b; if (a && b) x[1] += -c[2] * d;", ""),
            ("const auto f = [&](float& x, int r) { x *= alpha[r]; };", ""),
            ("auto& p = x;", "auto: write the type"),
            ("const auto& p = [&]() { return x; }();", "auto: write the type"),
            ("f([](auto p) { p[9] = 0; });", "auto: write the type"),
            ("(float4&)x[3] = y;", "a cast to a reference"),
            ("(T&&)x;", "a cast to a reference"),
            ("f((T*)x);", "a pointer"),
            ("RowStats* p = rows;", "a pointer"),
            ("{ const RowStats* p = rows; }", "a pointer"),
            ("auto f = [](RowStats* p) {};", "a pointer"),
            ("auto f = [](const RowStats* p) {};", "a pointer"),
            ("f(this);", "'this': a pointer"),
            ("return {*this, 0};", ""),
            ("x = K.as<Left>(0, 0);", "numbers and vectors of them"),
            ("x = K.as<const float4>(0, 0).x * y;", ""),
            ("4[x] = 0;", "an index after something"),
            ("f(bitand x);", "another way to write an operator"),
            ("x<:9:> = 0;", "another way to write a bracket"),
            ("memcpy(x, y, 1 << 20);", "know no bounds"),
            ("#pragma unroll 4\nfor (int g = 0; g < GROUP; ++g) S[g] = i > 0 ? 1.0f : -INFINITY;", ""),
            ("float* p = 0;", "a pointer"),
            ("x = *y;", "a pointer"),
            ("f(&x);", "an address"),
            ("auto p = x;", "auto: write the type"),
            ("const auto p = x;", "auto: write the type"),
            ("auto [a, b] = K;", "auto: write the type"),
            ("(x + 1)[9] = 0;", "an index after something"),
            ("std::exit(0);", "'std'"),
            ("m = std::max(m, s);", "a kernel has fmaxf"),
            ("n = S.cols;", "the insides of a view; the solution does without"),
            ("__builtin_trap();", "belongs to the compiler"),
            ("count_access(0);", "a name of the simulator"),
            ('f("x");', "text and macros"),
            ("#define for while", "a preprocessor line"),
            ("%:define for while", "another way to write a bracket"),
            ("a \\\n b", "a backslash"),
            ("} void f() {", "a closing brace"),
            ("if (a) {", "an opening brace"),
            ("/* open", "a comment that does not end"),
            ("/*/ open", "a comment that does not end"),
            ("/**/ a; // /*", ""),
            ("a; /* /* b */", ""),
            (" " * (16 << 10), ""),
            (" " * (16 << 10) + ";", "more than 16 KiB"),
            ("x->y;", "pointers"),
            ("int é;", "not ASCII"),
        ):
            said = scan.source(lines)
            self.assertTrue(says in said if says else not said, (lines, said))

    def test_the_sandbox(self):
        with tempfile.TemporaryDirectory() as name:
            self.assertEqual(sandbox.run(["sh", "-c", "while :; do :; done"], name, seconds=1).code, 124)
            done = sandbox.run(["sh", "-c", "yes > big; echo; cat /dev/zero"], name, seconds=3, file_size=1)
            self.assertLess((Path(name) / "big").stat().st_size, (1 << 20) + 1)
            self.assertLess(len(done.out), (1 << 20) + 1)
            eater = "x = bytearray(1 << 30)"
            self.assertNotEqual(sandbox.run([sys.executable, "-c", eater], name, memory=512).code, 0)
            sandbox.run(["sh", "-c", "(sleep 3; touch late) & exit 0"], name)
            subprocess.run(["sleep", "3.5"], check=True)
            self.assertFalse((Path(name) / "late").exists())
            self.assertNotIn("USER", sandbox.run(["env"], name).out)

    def test_a_hostile_text_is_scanned_in_a_second(self):
        for piece in ("/* ", "float a[1],", "( ", "a<:", "{ T * p;", "\\ "):
            text = piece * ((16 << 10) // len(piece))
            began = time.process_time()
            scan.source(text)
            scan.source(100 * text)
            self.assertLess(time.process_time() - began, 1, piece)

    def test_a_report_may_be_forged(self):
        counters = '"counters": {"sectors": 1, "bank_conflicts": 1, "barriers": 1, "read_bytes": 1, "written_bytes": 1}'
        threads = '"threads": {"mistakes": [], "complete": true}'
        whole = f'{{"extra_memory_bytes": 1, "check": {{}}, {counters}, {threads}}}'
        self.assertIsNotNone(measure.well_formed(whole, True))
        self.assertIsNotNone(measure.well_formed(whole.replace("check", "x"), False))
        for text in ("", "5", "[]", "[" * 100000, "{}", whole.replace("check", "x"), whole.replace(threads, '"threads": 1')):
            self.assertIsNone(measure.well_formed(text, True), text[:80])
        for number in ("null", "NaN", "Infinity", "[]", '"x"'):
            self.assertIsNone(measure.well_formed(whole.replace(": 1", f": {number}"), True), number)

    def test_a_body_is_replaced(self):
        text = "int g(int);\nint f(int a) { if (a) { return 1; } return f(0); }\nint h() {}\n"
        self.assertEqual(exercise.with_body(text, "f", " return 2; "), "int g(int);\nint f(int a) { return 2; }\nint h() {}\n")
        with self.assertRaisesRegex(Usage, "0 functions g, not one"):
            exercise.with_body(text, "g", "")

    def test_a_program_of_the_project_that_changes_is_noticed(self):
        with tempfile.TemporaryDirectory() as name:
            file = Path(name) / "judge"
            file.write_text("1")
            self.assertEqual(build.unchanged(build.unchanged(file)), file)
            file.write_text("2")
            with self.assertRaisesRegex(Fault, "judge has changed since grading began"):
                build.unchanged(file)

    def test_limits_stay_below_those_of_the_container(self):
        limited = "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (1 << 29,) * 2); sys.path.insert(0, sys.argv[1])\n"
        runs = "from kit import sandbox; print(sandbox.run(['sh', '-c', 'ulimit -v'], sys.argv[2]).out)"
        with tempfile.TemporaryDirectory() as name:
            done = subprocess.run([sys.executable, "-B", "-c", limited + runs, HERE, name], capture_output=True, text=True)
        self.assertEqual(done.stdout.strip(), str((1 << 29) >> 10), done.stderr)

    def test_problems_follow_from_the_seed_alone(self):
        e = exercise.load(NAME)
        self.assertEqual(measure.draw_problems(e, "1", 6), measure.draw_problems(e, "1", 6))
        self.assertNotEqual(measure.draw_problems(e, "1", 6), measure.draw_problems(e, "2", 6))
        self.assertEqual(measure.draw_problems(e, "1", 6)[0][:6], ["--batch", "1", "--kv-heads", "2", "--heads", "2"])

    def test_what_pandoc_gets_of_a_slide(self):
        for given, wanted in (
            ("```math\na_i\n```", "$$a_i$$"),
            ("a $`\\tau \\le 1`$ b", "a $\\tau \\le 1$ b"),
            ("[the page](../a.md) ![alt](b.svg)", "the page ![alt](b.svg)"),
            ("```cpp\nf([&](int) {});\n```", "```cpp\nf([&](int) {});\n```"),
            ("a\n---\n<!-- generated: x\ny -->b", "a\n\nb"),
            ("# All\n\n## One", "# All\n\n# One"),
        ):
            self.assertEqual(slides.for_pandoc(given), wanted)


class Box(unittest.TestCase):
    def setUp(self):
        if sandbox.missing():
            self.skipTest(sandbox.missing())
        boxed = unittest.mock.patch.object(sandbox, "boxed", True)
        boxed.start()
        self.addCleanup(boxed.stop)
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.folder = Path(place.name) / "place"
        self.folder.mkdir()

    def run_shell(self, script, **more):
        return sandbox.run(["sh", "-c", script], self.folder, **more)

    def test_what_is_kept_and_what_is_not(self):
        done = self.run_shell(
            "mkdir out && echo 1 > out/o.npy && ln -s /etc out/link && echo 2 > other && echo said && exit 7", keep=["out", "none"]
        )
        self.assertEqual((done.code, done.out), (7, "said\n"))
        self.assertEqual(sorted(p.name for p in (self.folder / "out").iterdir()), ["o.npy"])
        self.assertFalse((self.folder / "other").exists())

    def test_nothing_of_the_machine_can_be_written(self):
        for file in (BUILD / "bin" / build.JUDGE, HERE / "new", "/new", "/usr/new", "/dev/new", "/dev/shm/new", self.folder.parent / "new"):
            done = self.run_shell(f"echo > '{file}'", read=[BUILD, HERE])
            self.assertNotEqual((done.code, done.err), (0, ""), file)

    def test_what_can_be_seen(self):
        hidden = self.folder.parent / "hidden"
        hidden.touch()
        for file in (hidden, "/etc/passwd", "/proc/self", "/root", "/home", Path.home()):
            self.assertNotEqual(self.run_shell(f"ls -d '{file}'").code, 0, file)
        self.assertEqual(self.run_shell("id -u; echo $USER").out, "65534\n\n")
        self.assertNotEqual(self.run_shell("bash -c 'echo > /dev/tcp/127.0.0.1/22'").code, 0)
        self.assertIn("Network is unreachable", self.run_shell("bash -c 'echo > /dev/tcp/192.0.2.1/80'").err)

    def test_the_place_to_write_is_limited(self):
        done = self.run_shell("for i in 1 2 3 4; do dd if=/dev/zero of=out$i bs=1M count=1; done", file_size=2, keep=["out1", "out2"])
        self.assertNotEqual(done.code, 0)
        self.assertLess(sum(p.stat().st_size for p in self.folder.iterdir()), 5 << 20)

    def test_nothing_outlives_the_program(self):
        self.run_shell("setsid sh -c 'sleep 5.4321' & exit 0")
        self.run_shell("(trap '' TERM HUP; sleep 5.4321) & exit 0")
        self.assertEqual(subprocess.run(["pgrep", "-f", "^sleep 5.4321"], stdout=subprocess.DEVNULL).returncode, 1)
        self.assertEqual(self.run_shell("while :; do :; done", seconds=1).code, 124)
        self.assertEqual(self.run_shell("sleep 60", seconds=1).code, 124)

    def test_signals_are_told_from_faults(self):
        self.assertEqual(self.run_shell("kill -SEGV $$").code, -11)
        with self.assertRaisesRegex(Fault, "killed from outside"):
            self.run_shell("kill -KILL $$")
        with (
            unittest.mock.patch.object(sandbox, "box", lambda *_: ["--ro-bind", "/absent", "/absent"]),
            self.assertRaisesRegex(Fault, "/absent"),
        ):
            self.run_shell("true")


class Jail(unittest.TestCase):
    PROGRAM = r"""
#include <sys/socket.h>
#include <sys/wait.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string>
#include <sys/ptrace.h>
#include <thread>
#include <unistd.h>
int main(int, char** argv) {
  const std::string what = argv[1];
  char* const no[] = {nullptr};
  if (what == "fork") return fork() < 0;
  if (what == "vfork") {
    const pid_t id = vfork();
    if (id == 0) _exit(0);
    return id < 0;
  }
  if (what == "execve") return execve("/bin/true", no, no);
  if (what == "system") return system("true") != 0;
  if (what == "spawn") { pid_t id; return posix_spawn(&id, "/bin/true", nullptr, nullptr, no, no) != 0; }
  if (what == "socket") return socket(AF_INET, SOCK_STREAM, 0) < 0;
  if (what == "kill") return kill(getppid(), 0);
  if (what == "ptrace") return ptrace(PTRACE_TRACEME, 0, 0, 0) < 0;
  std::thread([] {}).join();
  return 0;
}
"""

    def test_the_calls_that_end_a_program(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "p.cpp").write_text(self.PROGRAM)
            for jail, refused, killed in (([], 0, 0), ([BUILD / build.JAIL], 1, -signal.SIGSYS)):
                subprocess.run(["c++", "-std=c++20", "-o", folder / "p", folder / "p.cpp", *jail, "-pthread"], check=True)
                ends = dict.fromkeys(("fork", "vfork", "system", "spawn"), refused)
                for what, code in (ends | dict.fromkeys(("execve", "socket", "kill", "ptrace"), killed)).items():
                    self.assertEqual(subprocess.run([folder / "p", what]).returncode, code, what)
                self.assertEqual(subprocess.run([folder / "p", "thread"]).returncode, 0)


class Quizzes(unittest.TestCase):
    def test_what_the_answers_say_is_what_programs_print(self):
        printed = {}
        for quiz in exercise.quizzes():
            counted = [q for q in quiz["question"] if "run" in q]
            self.assertTrue(5 <= len(quiz["question"]) <= 8 and len(counted) >= 2, quiz["chapter"])
            for q in counted:
                if q["run"] not in printed:
                    words = q["run"].replace("common/try.sh lab_", "build/bin/lab_").split()  # that is what it runs
                    argv = [word.replace("build/bin/", f"{BUILD}/bin/") for word in words]
                    printed[q["run"]] = " ".join(subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split())
                self.assertIn(f" {q['says']} ", f"{printed[q['run']]} ")
                self.assertIn(q["says"].removesuffix(" KiB").split()[-1], q["answer"])


class Score(unittest.TestCase):
    def lost(self, *found):
        score = grade.score(exercise.load("04_tile_loop"), 6, *found)
        self.assertEqual(score["max"], 100)
        self.assertEqual(score["score"], sum(i["points"] for i in score["items"]))
        return {i["name"]: i["max"] - i["points"] for i in score["items"] if i["points"] < i["max"]}

    def test_each_item_is_lost_by_itself(self):
        self.assertEqual(self.lost(6, 6, 0, {}), {})
        self.assertEqual(self.lost(6, 5, 0, {}), {"orders": 10})
        self.assertEqual(self.lost(6, 6, 1, {}), {"races": 20})
        self.assertEqual(self.lost(6, 6, 0, {"bytes": (4, 2), "barriers": (3, 2)}), {"bytes": 10, "barriers": 10})

    def test_a_count_that_is_too_high_is_told_with_what_is_enough(self):
        e = exercise.load("06_outer_product")
        lines = next(w for w in exercise.gallery(e) if w["name"] == "right, with bank conflicts")["lines"]
        items = grade.grade_lines(e, lines, BUILD, count=2)["items"]
        says = next(i["says"] for i in items if i["name"] == "bank_conflicts")
        self.assertRegex(says, r"no more bank conflicts than the project's kernel: on one problem [\d,]+, where 0 are enough")

    def test_a_wrong_kernel_keeps_a_share_of_the_result_alone(self):
        lost = self.lost(5, 5, 0, {})
        self.assertEqual((lost["result"], sum(lost.values())), (40 - 33, 100 - 33))
        self.assertEqual(sum(self.lost(0, 0, 0, {}).values()), 100)

    def test_another_way_than_the_one_asked_for_costs_points(self):
        e = exercise.load("06_outer_product")
        lines = next(w for w in exercise.gallery(e) if w["name"] == "right, with 128 reads for 64 multiply-adds")["lines"]
        unused = f"if (A.cols < 0) {{ float a[Tile::ROWS], b[Tile::COLS]; C.add_outer_product(a, b); }}\n{lines}"
        for text, got in ((unused, 0), (e.parts()[1], 10)):
            items = grade.grade_lines(e, text, BUILD, count=1)["items"]
            self.assertEqual([i["points"] for i in items if i["name"] == "asked"], [got])

    def test_a_race_that_is_right_costs_points(self):
        e = exercise.load("02_coalesced_rows")
        racy = next(w for w in exercise.gallery(e) if w["name"] == "all lanes write L")
        score = grade.grade_lines(e, racy["lines"], BUILD, count=2)
        points = {i["name"]: i["points"] for i in score["items"]}
        self.assertEqual((points["result"], points["races"], points["bytes"]), (50, 0, 0))


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        BUILD = Path(sys.argv.pop(1)).resolve()
    unittest.main()
