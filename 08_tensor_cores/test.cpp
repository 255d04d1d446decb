// What chapter 08 claims. The grid that every stage passes is in common/testing/grid.
#include <doctest/doctest.h>
