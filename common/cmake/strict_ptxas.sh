#!/bin/sh
# strict_ptxas.sh COMMAND...: runs nvcc, and fails if ptxas has given up what kernels for Hopper are written for. Of that it only informs, so that
# -Werror does not help. C7508: setmaxnreg is ignored. C7510, C7512, C7514: products of wgmma wait for each other.
output=$("$@" 2>&1)
status=$?
[ -z "$output" ] || printf '%s\n' "$output" >&2
[ $status -eq 0 ] || exit $status
if printf '%s\n' "$output" | grep -qE '\(C75(08|10|12|14)\)'; then
  echo "strict_ptxas: wgmma was serialized, or setmaxnreg ignored: see the lines above" >&2
  exit 1
fi
