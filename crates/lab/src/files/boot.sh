# Runs once inside the namespaces of a node that was just switched on, and gives it a file system of its own:
# /run is new at every boot, /var/lib and /var/log are the node's disk.
# Arguments: the node's folder, the folder of tools, the node's name, then `v2` or the names of the v1 trees.
set -eu
node=$1 tools=$2 name=$3
shift 3

# The new /run is built aside and moved into place, because the lab's own folders may be below what it hides.
stage=$node/run
mkdir -p "$stage"
mount -t tmpfs -o mode=755 tmpfs "$stage"
mkdir -p "$stage/lab/node" "$stage/lab/tools"
mount --bind "$node" "$stage/lab/node"
mount --bind "$tools" "$stage/lab/tools"
mount -n --move "$stage" /run # -n: the table of mounts it would update is below /run

mount --bind /run/lab/node/lib /var/lib
mount --make-shared /var/lib # or mounts of the kubelet would not reach into pods
mount --bind /run/lab/node/log /var/log
mount --bind /run/lab/node/boot_id /proc/sys/kernel/random/boot_id
[ ! -e /etc/machine-id ] || mount --bind /run/lab/node/machine_id /etc/machine-id

# The kubelet sets these for the whole machine where they differ from what it wants: show it what it wants.
for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
  kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
  own=/run/lab/sysctl-$(echo "${setting%=*}" | tr / -)
  echo "${setting#*=}" >"$own"
  mount --bind "$own" "/proc/sys/${setting%=*}"
done

if [ "$1" = v2 ]; then
  # The kernel refuses the same file system twice in one place, whatever part of it would show.
  umount --lazy /sys/fs/cgroup
  mount -t cgroup2 cgroup2 /sys/fs/cgroup
else
  mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
  for tree; do
    options=$tree
    [ "$tree" != systemd ] || options=none,name=systemd
    mkdir "/sys/fs/cgroup/$tree"
    mount -t cgroup -o "$options" cgroup "/sys/fs/cgroup/$tree"
    # Two controllers in one tree are looked for under either name.
    for part in $(echo "$tree" | tr , ' '); do
      [ -e "/sys/fs/cgroup/$part" ] || ln -s "$tree" "/sys/fs/cgroup/$part"
    done
  done
fi

echo "$name" >/proc/sys/kernel/hostname
echo 1 >/proc/sys/net/ipv4/ip_forward
