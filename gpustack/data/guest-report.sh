#!/bin/sh
# Reports the GPUs of this guest on its console, for the operator of the cloud.
# Made by gpustack; changes nothing.
root=${GPUSTACK_ROOT:-}
gpus=0
for device in "$root"/sys/bus/pci/devices/*; do
    [ -r "$device/class" ] || continue
    read -r class <"$device/class"; read -r vendor <"$device/vendor"; read -r product <"$device/device"
    case $class in 0x03*|0x1200*) ;; *) continue ;; esac
    case $vendor:$product in
    @CONSOLES@) ;;
    *) gpus=$((gpus + 1)) ;;
    esac
done
if [ "$gpus" -eq 0 ]; then
    flavor=$(sed -n 's/^ *"instance-type": "\(.*\)",\{0,1\}$/\1/p' \
        "$root/run/cloud-init/instance-data-sensitive.json" 2>/dev/null | head -n 1)
    case $flavor in
    @FLAVORS@) ;;
    *) exit 0 ;;
    esac
fi
python=
for candidate in python3 /usr/libexec/platform-python python; do
    if "$candidate" -I -S -c 'import sys; sys.exit(sys.version_info < (3, 6))' 2>/dev/null; then
        python=$candidate
        break
    fi
done
report() {
    written=
    for console in console ttyS0 ttyAMA0 hvc0; do
        active=$(cat "$root/sys/class/tty/console/active" 2>/dev/null)
        [ "${active##* }" != "$console" ] || continue
        { printf '%s\n' "$1" >"$root/dev/$console"; } 2>/dev/null && written=yes
    done
    [ -n "$written" ] || printf '%s\n' "$1"
}
if [ -z "$python" ]; then
    report "@START@functions of GPUs: $gpus; not checked: no Python 3.6 or later in the guest"
    exit 0
fi
"$python" -I -S - "$root/" <<'@END@' || report "@START@functions of GPUs: $gpus; not checked: the check failed"
import base64, sys, zlib
sys.argv[1:] = ["--root", sys.argv[1]]
exec(zlib.decompress(base64.b64decode(@QUOTES@
@PROGRAM@
@QUOTES@)).decode("ascii"))
@END@
exit 0
