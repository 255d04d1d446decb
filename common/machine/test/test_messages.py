"""What common/run makes of a compiler's messages: each entry of its table, and each of its functions."""

import pathlib
import re
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "run"))
import messages  # noqa: E402

EXPLAINED = (  # what a compiler says, and what we say
    ("assignment of read-only location '*(x + 8)'", "assignment of read-only element of x, which points to const"),
    ("return-statement with a value", "a kernel returns nothing: store what it computes, or put a ';' after 'return'"),
    ("unable to find numeric literal operator 'operator\"\"x'", "x follows a number: is a '*' missing between the two?"),
    ("no matching function for call to '__shfl_sync(int&)'", "__shfl_sync() takes a mask, a value, and a lane or distance"),
    ("invalid conversion from 'int' to 'Site'", "an argument too many; __syncthreads() takes none"),
    ("too many arguments in call to '__syncthreads'", "an argument too many; __syncthreads() takes none"),
    ("cannot convert 'uint3' to 'int'", "…: threadIdx and its like have parts: threadIdx.x"),
    ("operand types are 'int*' and 'const uint3'", "…: threadIdx and its like have parts: threadIdx.x"),
    ("cannot convert 'dim3' to 'int'", "…: threadIdx and its like have parts: threadIdx.x"),
    ("operand types are 'const dim3' and 'const uint3'", "…: threadIdx and its like have parts: threadIdx.x"),
    ("no matching function for call to 'cudaMalloc(int*&, int)'", "…: it takes an address, &name"),
    ("no matching function for call to 'atomicAdd(int&, int)'", "…: it takes an address, &name"),
    ("no matching function for call to 'cudaMemcpy(int*&)'", "…"),
    ("no matching function for call to 'atomicAdd(int*)'", "…"),
    ("no matching function for call to 'expf(float*&)'", "…: an element of an array is name[index]"),
    ("invalid operands of types 'int*' and 'int'", "…: an element of an array is name[index]"),
    ("'x' cannot be used as a function", "…: an element of an array is name[index]"),
    ("request for member 'a' in 'x', of pointer type 'S*'", "…: an element of an array is name[index]"),
    ("invalid type argument of unary '*' (have 'int')", "'*' before what is no pointer: is it one '*' too many?"),
    ("expected '(' before 'x'", "…: the condition of if, for and while stands in parentheses"),
    ("expected primary-expression before '<' token", "…: 'at least' is >= and 'at most' is <="),
    ("expected primary-expression before '>' token", "…: 'at least' is >= and 'at most' is <="),
    ("expected primary-expression before '}' token", "…: what is above is not complete"),
    ("expected initializer before 'int'", "…: is a '{' or a ';' missing above?"),
    ("storage size of 's' isn't known", "how many elements has s? A size is missing, or 'extern' before __shared__"),
    ("'UNWRITTEN' was not declared in this scope", 'the line #include "judge.hpp", which declares UNWRITTEN, is missing'),
    ("'judge' was not declared in this scope", 'the line #include "judge.hpp", which declares judge, is missing'),
    ("'fill' was not declared in this scope", 'the line #include "judge.hpp", which declares fill, is missing'),
    ("'prinf' was not declared; did you mean 'print'", "'prinf' was not declared; did you mean 'printf'"),
    ("'prinf' was not declared; did you mean 'std::print'", "'prinf' was not declared; did you mean 'printf'"),
    ("'x' was not declared; did you mean 'std::__x'?", "'x' was not declared"),
    ("warning: suggest parentheses around assignment used", "warning: '=' assigns here; '==' compares"),
    ("warning: statement has no effect", "warning: this changes nothing; '=' assigns"),
    ("warning: statement is a reference, not call, to function 'f'", "warning: f is not called: f()"),
    ("warning: ignoring return value of 'int __shfl_sync(int)'", "warning: nobody takes the result of __shfl_sync()"),
)
FUNCTIONS = (  # what a compiler says, and what we say, of a file with a name that is `count`
    ("extended character “ is not valid", "does not compile: “ is no character of C++: was it copied from a text?"),
    ("'_global_' does not name a type", "does not compile: CUDA's word is __global__, with two underscores on each side"),
    ("'y' does not name a type", "does not compile: …: it stands outside of all functions; is there a '}' too many above?"),
    ("'Count' was not declared in this scope", "does not compile: …; did you mean 'count'?"),
    ("'If' was not declared in this scope", "does not compile: …; did you mean 'if'?"),
    ("'y' was not declared in this scope", "does not compile: …"),
    ("none.h: No such file or directory", "there is no header none.h: copy it into the file's folder, or name its own folder by -I"),
    ("'none.h' file not found", "there is no header none.h: copy it into the file's folder, or name its own folder by -I"),
    ("#error thrust/sort.h is not simulated", f"thrust/sort.h is not simulated: leave out what needs it; {messages.PAGE} lists what is"),
    ("'T' is unavailable: use U", f"T is not simulated (use U): leave out what needs it; {messages.PAGE} lists what is"),
    ("use of undeclared identifier 'cudaGraphCreate'", f"cudaGraphCreate is not simulated; {messages.PAGE} lists what is"),
    ("'cudaMaloc' was not declared; did you mean 'cudaMalloc'?", "does not compile: …"),
)


class Messages(unittest.TestCase):
    def test_each_entry_of_the_table(self):
        for text, said in EXPLAINED:
            with self.subTest(text):
                self.assertEqual(messages.explained(text), said.replace("…", text))
        for _, *templates in messages.EXPLAINED:
            for template in templates:
                tried = any(re.search(messages.pattern(template), text) for text, _ in EXPLAINED)
                self.assertTrue(tried, f"no case has '{template}'")

    def test_each_function(self):
        for text, said in FUNCTIONS:
            with self.subTest(text):
                self.assertEqual(messages.for_beginners(text, names=["count"]), said.replace("…", text))
        self.assertRegex(messages.for_beginners("#error cub/cub.cuh is not simulated"), "write reductions and scans by hand")
        self.assertRegex(messages.for_beginners("'__any' was not declared in this scope"), r"removed from CUDA .*__any_sync\(mask")
        self.assertRegex(messages.for_beginners("'y' does not name a type", in_a_function=True), "is its type missing")
        self.assertRegex(messages.for_beginners("'y' was not declared", " (2 more)"), r"declared \(2 more\)$")


if __name__ == "__main__":
    unittest.main()
