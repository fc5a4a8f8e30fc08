#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# `make test-slurm`: packaging/sweep/slurm.sh on a real Slurm, Debian's, in a root of its own: one node that claims 16 CPUs, so that
# two of the eight tasks run at a time. One is taken off the node in its middle and runs again; the table has the bytes
# of one process. All that runs there ends with this script. Root, mmdebstrap, dist/plimsoll.
# Exit: 0 all holds, 1 something does not, 3 something needed is not here.
set -euo pipefail
cd "$(dirname "$0")/.."
absent() { echo "test-slurm.sh: $1" >&2; exit 3; }
command -v mmdebstrap >/dev/null || absent "no mmdebstrap; on Debian: apt-get install mmdebstrap"
[ "$(id -u)" = 0 ] || absent "only root can enter a root"
[ -x dist/plimsoll ] || absent "dist/plimsoll is missing; make static builds it"

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mmdebstrap --quiet --variant=minbase --include=slurm-wlm,munge "${SUITE:-bookworm}" "$root/root"
root=$root/root
install dist/plimsoll "$root/usr/local/bin/plimsoll"
mkdir -p "$root/sweep" "$root/var/lib/slurm/controller" "$root/var/lib/slurm/node" "$root/etc/slurm"
install packaging/sweep/slurm.sh "$root/sweep"
echo "127.0.0.1 localhost node0" >"$root/etc/hosts"
cat >"$root/etc/slurm/slurm.conf" <<-'CONF'
	ClusterName=sweep
	SlurmctldHost=node0
	SlurmUser=root
	StateSaveLocation=/var/lib/slurm/controller
	SlurmdSpoolDir=/var/lib/slurm/node
	ProctrackType=proctrack/linuxproc
	TaskPlugin=task/none
	SelectType=select/cons_tres
	SelectTypeParameters=CR_Core
	SlurmdParameters=config_overrides
	NodeName=node0 CPUs=16 RealMemory=16000
	PartitionName=all Nodes=node0 Default=YES State=UP
CONF
cat >"$root/sweep/spec.toml" <<-'SPEC'
	scenario = "burst"
	seeds = 400
	[set]
	duration_ms = 60_000
	[vary]
	"group.bench.burst_us" = [0, 100_000]
SPEC
cat >"$root/sweep/inside.sh" <<-'INSIDE'
	set -euo pipefail
	hostname node0
	mkdir -p /run/munge
	chown munge: /run/munge
	runuser -u munge -- /usr/sbin/munged
	slurmctld
	slurmd -N node0
	cd /sweep
	timeout 60 sh -c 'until sinfo -h -o %t | grep -q idle; do sleep 0.2; done' || { cat /var/log/slurm*; exit 1; }
	job=$(sbatch --parsable slurm.sh spec.toml rows)
	timeout 60 sh -c 'until squeue -h -t R -o %K | grep -qx 1; do sleep 0.1; done'
	sleep 1
	scontrol requeue "${job}_1"
	# Slurm lets a task wait two minutes before it runs again.
	timeout 60 sh -c "until scontrol update JobId=${job}_1 StartTime=now; do sleep 0.5; done" 2>/dev/null
	timeout 600 sh -c 'while squeue -h | grep -q .; do sleep 0.5; done'
	scontrol show job "${job}_1" | grep -o Restarts=1
	cat slurm-*.out
	# What it had done was there, the rest was not.
	grep -E '^100 points of shard 1/8: [1-9][0-9]* were there, [1-9][0-9]* run' "slurm-${job}_1.out"
	plimsoll sweep merge spec.toml --out rows -o cluster.parquet
	plimsoll sweep spec.toml --out alone >/dev/null
	plimsoll sweep merge spec.toml --out alone -o alone.parquet
	cmp cluster.parquet alone.parquet
INSIDE
unshare --mount --uts --pid --fork --kill-child sh -c "
	mount -t proc proc '$root/proc' && mount -t tmpfs tmpfs '$root/run' && mount --rbind /dev '$root/dev' && mount --rbind /sys '$root/sys' &&
	exec chroot '$root' env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin bash /sweep/inside.sh"
echo "holds   packaging/sweep/slurm.sh on Slurm $(chroot "$root" sinfo --version): a task was taken away and ran again, the bytes are those of one process"
