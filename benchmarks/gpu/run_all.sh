#!/bin/sh
# Tests and measures everything on the card at hand: sh benchmarks/gpu/run_all.sh [FOLDER]. Takes at most 8.5 minutes.
# A step that fails or runs out of time stops no other one. FOLDER then holds a log and seven data files at most.
set -u
cd "$(dirname "$0")/../.."
out=${1:-benchmarks/gpu}
log=$out/run_all.log
mkdir -p "$out"
: >"$log"
name=$(python3 -c 'import torch; print(torch.cuda.get_device_name().split()[-1].lower())') || exit 2
traces=$(mktemp -d)
export H2DLINT_KEEP_TRACES="$traces" PYTHONUNBUFFERED=1
end=$(($(date +%s) + 505))
status=0

# step NAME SECONDS COMMAND...: at most so long, and never past the end of the whole.
step() {
    title=$1 limit=$2
    shift 2
    began=$(date +%s)
    left=$((end - began))
    [ "$left" -lt "$limit" ] && limit=$left
    echo "== $title: $*" >>"$log"
    code=124
    [ "$limit" -gt 0 ] && { timeout "$limit" "$@" >>"$log" 2>&1; code=$?; }
    [ "$code" -eq 0 ] || status=1
    echo "== $title: exit $code after $(($(date +%s) - began)) s" | tee -a "$log"
}

step nsys 5 sh -c 'which nsys || echo "no nsys on the path"'
step packages 20 python3 -c 'import importlib.util as u; print({n: bool(u.find_spec(n)) for n in ("transformers", "hypothesis", "numpy", "safetensors", "libcst")})'
step serving_loop 30 python3 -m benchmarks.gpu.serving_loop "$out/serving_loop_$name.json"
step watch_overhead 30 python3 -m benchmarks.gpu.watch_overhead "$out/watch_overhead_$name.json"
step observed 60 python3 -m benchmarks.gpu.observed "$out/observed_$name.json"
step packaged_model 100 python3 -m benchmarks.gpu.packaged_model "$out/packaged_model_$name.json"
step tests 260 python3 -m pytest -q -rs -p no:cacheprovider -m gpu tests/gpu
step traces 20 tar -cf "$out/traces_$name.tar" -C "$traces" .
step copy_model 90 python3 -m benchmarks.gpu.copy_model "$out/copy_model_$name.json"
step fix_costs 120 python3 -m benchmarks.gpu.fix_costs "$out/fix_costs_$name.json"
step break_even 10 python3 -m benchmarks.gpu.break_even "$out/fix_costs_$name.json"
grep '^== .*: exit' "$log"
grep -E '^(FAILED|ERROR|SKIPPED|[0-9]+ (passed|failed))|passed|contradictions' "$log" | tail -40
rm -rf "$traces"
exit $status
