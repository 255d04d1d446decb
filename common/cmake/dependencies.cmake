# Header-only libraries.
find_package(Eigen3 3.3 REQUIRED NO_MODULE)
find_package(doctest 2.4 REQUIRED)
find_package(CLI11 2.1 REQUIRED)
find_package(nlohmann_json 3.9 REQUIRED)
