#!/usr/bin/env python3
"""The shell scripts, with others in place of the machine's programs: what they say, and that they begin nothing unasked."""

import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = ("awk", "basename", "bash", "cat", "dirname", "grep", "head", "id", "sed", "tr", "uname")  # what the script itself is made of
COMPILER = """#!/bin/bash
case "$*" in
--version) echo "g++ (Debian) 12.2.0" ;;
-dumpfullversion) echo 12.2.0 ;;
*) cat >/dev/null ;;
esac
"""
MANAGER = """#!/bin/bash
echo "apt-get $*" >>"$FAKE/log"
case "$*" in *ninja-build*) printf '#!/bin/sh\\n' >"$FAKE/bin/ninja"; /bin/chmod +x "$FAKE/bin/ninja" ;; esac
"""
PYTHON = """#!/bin/bash
[ "$2" = venv ] || exit 0
/bin/mkdir -p "$3/bin"
printf '%s\\n' '#!/bin/bash' 'echo "pip $*" >>"$FAKE/log"' 'echo "echo ruff ${4##*==}" >"${0%pip}ruff"' '/bin/chmod +x "${0%pip}ruff"' >"$3/bin/pip"
/bin/chmod +x "$3/bin/pip"
"""
SUDO = """#!/bin/bash
echo "sudo $*" >>"$FAKE/log"
[ -z "$REFUSES" ] || exit 1
[ "$1" = -v ] || exec "$@"
"""
THERE = "g++ 12.2.0, cmake 3.25.1, {}Eigen3, doctest, CLI11, nlohmann_json; nvcc: 13.0; GPU: none\n"


class Script(unittest.TestCase):
    SCRIPT = ""
    root = ROOT

    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="flash_setup.")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        (self.folder / "bin").mkdir()
        for tool in TOOLS:
            (self.folder / "bin" / tool).symlink_to(shutil.which(tool))
        self.program("c++", COMPILER)
        self.program("cmake", "#!/bin/bash\necho cmake version 3.25.1\n")
        self.program("nvcc", "#!/bin/bash\necho Cuda compilation tools, release 13.0, V13.0.88\n")
        self.program("ninja", "#!/bin/bash\n")
        for library in ("Eigen3", "doctest", "CLI11", "nlohmann_json"):
            (self.folder / "share/cmake" / library).mkdir(parents=True)
            (self.folder / "share/cmake" / library / f"{library}Config.cmake").touch()

    def program(self, name, text):
        path = self.folder / "bin" / name
        path.unlink(missing_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def without(self, *names):
        for name in names:
            (self.folder / "bin" / name).unlink()

    def run_it(self, *options, **settings):
        """(exit code, what it printed, what it ran as a manager of packages)"""
        environment = {
            "PATH": str(self.folder / "bin"),
            "FAKE": str(self.folder),
            "CMAKE_PREFIX_PATH": str(self.folder),
            "HOME": "/home/me",
        }
        done = subprocess.run(
            [shutil.which("bash"), self.root / self.SCRIPT, *options],
            env={**environment, **settings},
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        log = self.folder / "log"
        return done.returncode, done.stdout, log.read_text() if log.exists() else ""


class Setup(Script):
    SCRIPT = "common/setup.sh"

    def user(self, number):
        self.program("id", f"#!/bin/bash\necho {number}\n")

    def test_all_there_is_one_line(self):
        self.assertEqual(self.run_it(), (0, "setup: all there: " + THERE.format("ninja, "), ""))
        self.program("nvidia-smi", "#!/bin/bash\necho NVIDIA H200\n")
        self.assertIn("GPU: NVIDIA H200\n", self.run_it()[1])

    def test_without_root(self):
        self.user(1000)
        self.without("ninja")
        code, out, _ = self.run_it()
        self.assertEqual(code, 1)
        self.assertTrue(out.startswith("setup: missing: ninja; there: " + THERE.format("")), out)
        self.assertIn("without root: python3 -m pip install --user 'ninja', and put /home/me/.local/bin first in PATH\n", out)
        self.program("apt-get", MANAGER)
        code, out, log = self.run_it()
        self.assertEqual((code, log), (1, ""))
        self.assertIn("as root: apt-get install -y --no-install-recommends ninja-build\n", out)
        self.program("sudo", SUDO)
        code, out, log = self.run_it(REFUSES="1")
        self.assertEqual((code, log), (1, "sudo -v\n"))  # asked once
        self.assertIn("pip install --user", out)

    def test_installs(self):
        for user, prefix in ((0, ""), (1000, "sudo ")):
            self.user(user)
            self.without("ninja")
            self.program("apt-get", MANAGER)
            self.program("sudo", SUDO)
            code, out, log = self.run_it()
            self.assertEqual((code, f"{prefix}apt-get install" in log, "apt-get update" in log), (0, True, True), out)
            self.assertTrue(out.endswith("all there now: " + THERE.format("ninja, ")), out)

    def test_check_changes_nothing(self):
        self.without("ninja")
        self.program("apt-get", MANAGER)
        self.assertEqual(self.run_it("--check")[::2], (1, ""))

    def test_an_old_cmake_counts_as_missing(self):
        self.program("cmake", "#!/bin/bash\necho cmake version 3.18.4\n")
        code, out, _ = self.run_it("--check")
        self.assertEqual((code, "missing: cmake;" in out, "--user 'cmake>=3.25'" in out), (1, True, True), out)

    def test_ruff_comes_by_pip_in_the_version_that_is_asked_for(self):
        self.root = self.folder / "project"
        for name in (self.SCRIPT, "ruff.toml"):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.root / name)
        version = re.search(r'required-version = "==(.*)"', (ROOT / "ruff.toml").read_text())[1]
        self.program("python3", PYTHON)
        self.program("ruff", "#!/bin/bash\necho ruff 0.1.0\n")
        out, log = self.run_it("--dev", "--check")[1:]
        self.assertEqual((log, "shellcheck ruff" in out), ("", True), out)
        for _ in range(2):
            out, log = self.run_it("--dev")[1:]
            self.assertEqual((log, "ruff;" in out), (f"pip install --quiet --disable-pip-version-check ruff=={version}\n", False), out)

    def test_what_the_site_needs(self):
        self.assertNotIn("chromium", self.run_it("--check")[1])
        self.assertRegex(self.run_it("--dev", "--check")[1], "missing: .* chromium venv")
        for name in ("google-chrome", "python3"):
            self.program(name, "#!/bin/bash\n")
        self.assertNotRegex(self.run_it("--dev", "--check")[1], "chromium|venv")

    def test_unknown_options(self):
        self.assertEqual(self.run_it("--chekc")[0], 2)


class CheckGpu(Script):
    SCRIPT = "common/check_gpu.sh"

    def setUp(self):
        super().setUp()
        for name in ("cmake", "mkdir", "rm"):
            self.program(name, '#!/bin/bash\necho "$0 $*" >>"$FAKE/log"\nexit 1\n')

    def test_without_a_gpu_it_begins_nothing(self):
        code, out, log = self.run_it()  # no nvidia-smi
        self.assertEqual((code, log, "no GPU answers" in out), (3, "", True), out)
        self.program("nvidia-smi", "#!/bin/bash\necho no devices were found\nexit 6\n")
        self.assertEqual(self.run_it()[::2], (3, ""))

    def test_help_and_unknown_options(self):
        self.program("nvidia-smi", "#!/bin/bash\necho NVIDIA H200\n")
        code, out, log = self.run_it("--help")
        self.assertEqual((code, log, "[OUTPUT_DIR" in out, "#" in out), (0, "", True, False), out)
        code, out, log = self.run_it("--hepl")
        self.assertEqual((code, log, out.count("\n")), (2, "", 1))


class Site(Script):
    SCRIPT = "docs/site.sh"

    def setUp(self):
        super().setUp()
        self.program("python3", "#!/bin/bash\n")
        self.program("ls", "#!/bin/bash\nexec /bin/ls $*\n")

    def test_a_folder_of_the_user_is_left_alone(self):
        (self.folder / "mine").mkdir()
        (self.folder / "mine/book").write_text("words")
        for place in ("mine", "mine/book"):
            code, out, _ = self.run_it(self.folder / place)
            self.assertEqual((code, "was not made by docs/site.sh" in out), (1, True), out)
        self.assertEqual((self.folder / "mine/book").read_text(), "words")

    def test_what_is_missing_is_named(self):
        for words in ("--check needs Chromium", "Python 3.11 or newer with venv is missing"):
            code, out, _ = self.run_it("--check", self.folder / "site")
            self.assertEqual((code, out.startswith(f"site: {words}; on Debian and Ubuntu: ")), (1, True), out)
            (self.folder / "bin/python3").unlink(missing_ok=True)
        self.assertFalse((self.folder / "site").exists())

    def test_help_and_unknown_options(self):
        self.assertEqual(self.run_it("--help")[0], 0)
        self.assertEqual(self.run_it("--hepl")[:2], (2, "site: unknown option '--hepl'; allowed: --check, --help\n"))


if __name__ == "__main__":
    unittest.main()
