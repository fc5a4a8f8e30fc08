#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# First process of the guest: mounts what a Linux user expects, runs the command, reports, and stops the machine.
# The host reads four virtio serial ports: out and err are the command's own, control is ours, log is the kernel's.
export PATH=/usr/local/bin:/bin HOME=/root USER=root TERM=dumb LC_ALL=C

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /run

while read -r module; do
	insmod "/plimsoll/$module" || echo "cannot load $module"
done </plimsoll/modules

# Links the four ports by name; false while one is missing. A port gets its name a moment after its driver is there.
find_ports() {
	for port in /sys/class/virtio-ports/*; do
		name=$(cat "$port/name" 2>/dev/null)
		case "$name" in
		plimsoll.*) ln -sf "/dev/${port##*/}" "/run/port.${name#plimsoll.}" ;;
		esac
	done
	[ -e /run/port.out ] && [ -e /run/port.err ] && [ -e /run/port.control ] && [ -e /run/port.log ]
}
tries=0
until find_ports; do
	tries=$((tries + 1))
	[ "$tries" -lt 200 ] || {
		echo "the kernel shows no virtio serial ports"
		reboot -f
	}
	sleep 0.01
done
read -r uptime _ </proc/uptime
echo "ready $uptime" >/run/port.control

# CPUs that were left off line at boot (src/madt.rs).
if [ -e /plimsoll/online ]; then
	while read -r cpu; do
		echo 1 >"/sys/devices/system/cpu/cpu$cpu/online" || echo "CPU $cpu does not come on line"
	done </plimsoll/online
fi

mount -t cgroup2 cgroup2 /sys/fs/cgroup
echo "+cpu +cpuset" >/sys/fs/cgroup/cgroup.subtree_control
mount -t bpf bpf /sys/fs/bpf
mount -t debugfs debugfs /sys/kernel/debug
mount -t tracefs tracefs /sys/kernel/tracing
hostname plimsoll
ifconfig lo 127.0.0.1 up
# The address that QEMU's network leads the host's ports to.
[ ! -e /plimsoll/network ] || ifconfig eth0 10.0.2.15 netmask 255.255.255.0 up
ulimit -n 65536

# Ends the guest with an exit code for the host.
finish() {
	dmesg >/run/port.log
	echo "exit $1" >/run/port.control
	reboot -f
}

# The last file of the archive (src/initramfs.rs).
[ -e /plimsoll/end ] || {
	echo "plimsoll vm: the files do not fit into --memory" >/run/port.err
	finish 3
}

# Starts the scheduler and waits until it says that it schedules; when it ends before, so does the guest.
start_scheduler() {
	plimsoll run >/run/scheduler.log 2>&1 &
	scheduler=$!
	until grep -q '^plimsoll: scheduling' /run/scheduler.log; do
		kill -0 "$scheduler" 2>/dev/null || {
			{
				cat /run/scheduler.log
				echo "plimsoll vm: the scheduler did not start"
			} >/run/port.err
			finish 3
		}
		sleep 0.02
	done
}

# Stops the scheduler. When it had already left, the command's result says nothing about it: that is a failure.
stop_scheduler() {
	if kill -INT "$scheduler" 2>/dev/null; then
		wait "$scheduler"
		return
	fi
	{
		cat /run/scheduler.log
		echo "plimsoll vm: the scheduler left before the command ended"
	} >/run/port.err
	[ "$code" != 0 ] || code=1
}

[ ! -e /plimsoll/scheduler ] || start_scheduler
cd /root || finish 3
sh /plimsoll/command </dev/null >/run/port.out 2>/run/port.err
code=$?
[ ! -e /plimsoll/scheduler ] || stop_scheduler
finish "$code"
