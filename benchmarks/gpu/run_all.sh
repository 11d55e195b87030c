#!/bin/sh
# Measures everything on the card at hand: sh benchmarks/gpu/run_all.sh [FOLDER]. Takes some three minutes.
set -u
cd "$(dirname "$0")/../.."
out=${1:-benchmarks/gpu}
name=$(python3 -c 'import torch; print(torch.cuda.get_device_name().split()[-1].lower())') || exit 2
status=0
python3 -m benchmarks.gpu.copy_model "$out/copy_model_$name.json" || status=1
python3 -m benchmarks.gpu.serving_loop "$out/serving_loop_$name.json" || status=1
python3 -m benchmarks.gpu.fix_costs "$out/fix_costs_$name.json" || status=1
python3 -m benchmarks.gpu.break_even "$out/fix_costs_$name.json" || status=1
exit $status
