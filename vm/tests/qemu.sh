#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# In QEMU's place, for tests without a boot: the kernel's image is a shell script, which finds the files that it may write
# and the guest's initramfs in variables.
while [ $# -gt 0 ]; do
	case "$1" in
	--version)
		echo "QEMU emulator version 10.0.0"
		exit
		;;
	-kernel) kernel=$2 ;;
	-initrd) initrd=$2 ;;
	file:*) console=${1#file:} ;;
	file,id=out,path=*) out=${1#*path=} ;;
	file,id=err,path=*) err=${1#*path=} ;;
	file,id=control,path=*) control=${1#*path=} ;;
	file,id=log,path=*) log=${1#*path=} ;;
	esac
	shift
done
. "$kernel"
