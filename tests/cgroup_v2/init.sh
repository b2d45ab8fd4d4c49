#!/bin/busybox sh
# The virtual machine's first process: makes the root, mounts cgroup v2 as systemd does, runs the tests, powers off.
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t sysfs sysfs /sys
$b mount -t devtmpfs devtmpfs /dev
while read -r module; do
    $b insmod "/modules/$module"
done </modules/order
# Nothing else writes to the files meanwhile, so they may be cached.
$b mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=524288,cache=loose machine /lower
$b mount -t tmpfs tmpfs /changes
$b mkdir /changes/upper /changes/work
$b mount -t overlay -o lowerdir=/lower,upperdir=/changes/upper,workdir=/changes/work overlay /root
for name in proc sys dev; do
    $b mount --move "/$name" "/root/$name"
done
$b mkdir -p /root/dev/pts /root/dev/shm
$b mount -t devpts -o gid=5,mode=620,ptmxmode=666 devpts /root/dev/pts
for name in dev/shm tmp run; do
    $b mount -t tmpfs -o mode=1777 tmpfs "/root/$name"
done
groups=/root/sys/fs/cgroup
$b mount -t cgroup2 -o nosuid,nodev,noexec,nsdelegate,memory_recursiveprot cgroup2 $groups
for controller in cpuset cpu io memory pids; do
    echo "+$controller" >$groups/cgroup.subtree_control
done
$b ip link set lo up
$b cp /arguments /place /root/run
$b cat >/root/run/tests.sh <<'TESTS'
cd "$(cat /run/place)"
export HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin PYTHONDONTWRITEBYTECODE=1
ulimit -n 65536
mapfile -d '' arguments </run/arguments
.venv/bin/python -u -m pytest -p no:cacheprovider -p no:randomly -v "${arguments[@]}" </dev/null
echo "tests ended with $?"
echo o >/proc/sysrq-trigger
sleep 60
TESTS
exec $b switch_root /root /bin/bash -c 'exec setsid --wait bash /run/tests.sh >/dev/ttyS0 2>&1'
