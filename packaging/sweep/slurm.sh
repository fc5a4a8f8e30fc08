#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# A sweep as an array of eight tasks: sbatch slurm.sh spec.toml rows
# A task that is taken off its node is queued again and runs what is missing. The folder is on a file system of all nodes.
#SBATCH --job-name=sweep
#SBATCH --array=0-7
#SBATCH --cpus-per-task=8
#SBATCH --mem=4G
#SBATCH --requeue
#SBATCH --signal=B:TERM@60
set -eu
[ $# -eq 2 ] || { echo "usage: sbatch slurm.sh SPEC DIR" >&2; exit 2; }
export RAYON_NUM_THREADS="${SLURM_CPUS_PER_TASK:-8}"
exec plimsoll sweep "$1" --out "$2" --shard "$((SLURM_ARRAY_TASK_ID - SLURM_ARRAY_TASK_MIN))/$SLURM_ARRAY_TASK_COUNT"
