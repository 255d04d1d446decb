# host_only.awk FILE...: the names in CUDA functions that only host code has. nvcc refuses them; the compiler of the simulator does not.
FNR == 1 { depth = parentheses = 0; device = pending = 0 }
{
  line = $0
  gsub(/"([^"\\]|\\.)*"|\/\*.*\*\//, "", line)
  sub(/\/\/.*/, "", line)
  if (!device && line ~ /__global__|__device__/) pending = 1
  if (device || pending) {
    rest = line
    while (match(rest, /std::[a-z_0-9]+|(^|[^a-z_0-9.:>])s?rand\(/)) {
      name = substr(rest, RSTART, RLENGTH)
      rest = substr(rest, RSTART + RLENGTH)
      # Types, and what nvcc compiles for both sides itself.
      if (name ~ /^std::([a-z_0-9]+_[tv]|byte|integral_constant|(true|false)_type|(make_)?index_sequence|numeric_limits|initializer_list|move|forward)$/) continue
      gsub(/^[^a-z]|\($/, "", name)
      printf "%s:%d: error: \047%s\047 belongs to the host: nvcc refuses it in a CUDA function\n", FILENAME, FNR, name
      print "  A kernel has arrays, and fmaxf, expf, min and max, without std::."
      found = 1
    }
  }
  while (match(line, /[{}();]/)) {
    c = substr(line, RSTART, 1)
    line = substr(line, RSTART + 1)
    if (c == "(") ++parentheses
    if (c == ")") --parentheses
    if (c == ";" && !parentheses && !device) pending = 0
    if (c == "{" && pending && !parentheses) { device = 1; pending = depth = 0 }
    if (c == "{") ++depth
    if (c == "}" && --depth == 0) device = 0
  }
}
END { exit found }
