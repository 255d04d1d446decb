// doctest's own code, compiled once; test files include <doctest/doctest.h> and nothing more.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
