# Usage: setup.sh ROOT WORK HOSTS...: inside new network, mount, pid and uts namespaces, makes ROOT a throw-away root with
# WORK at its own path, gives the host the name "ctl" and an address besides loopback (slurmctld wants one), and waits.
set -e
root=$1 work=$2
shift 2
mount --make-rprivate /
hostname ctl
ip link set lo up
ip link add berth0 type veth peer name berth1
ip addr add 10.99.0.1/24 dev berth0
ip link set berth0 up
ip link set berth1 up
mount -t tmpfs tmpfs "$work/.root"
mkdir "$work/.root/upper" "$work/.root/work" "$work/.root/merged"
mount -t overlay overlay -o "lowerdir=$root,upperdir=$work/.root/upper,workdir=$work/.root/work" "$work/.root/merged"
merged=$work/.root/merged
mount -t proc proc "$merged/proc"
mount --rbind /dev "$merged/dev"
rm -rf "$merged/run/slurmctld" # another's, whose owner slurmctld refuses
mkdir -p "$merged$work" "$merged/run/slurm" "$merged/run/slurmctld"
# Root is SlurmUser here; another use of the same root may have left the directory to its own.
chown root:root "$merged/run/slurm" "$merged/run/slurmctld"
mount --bind "$work" "$merged$work"
# Names that do not resolve hold slurmctld up for ten seconds each.
echo "10.99.0.1 ctl $*" > "$merged/etc/hosts"
exec chroot "$merged" bash -c 'trap "exit 0" TERM; echo ready; while :; do sleep 1000 & wait $!; done'
