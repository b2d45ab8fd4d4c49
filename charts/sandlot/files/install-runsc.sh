#!/bin/sh
# Installs gVisor on a node and configures its containerd: install-runsc.sh HOST_ROOT SOURCE HANDLER NET_RAW STATS FILE_ACCESS FLAGS RESTART_COMMAND...
# FLAGS: further flags of runsc, `NAME=VALUE NAME=VALUE`.
# Idempotent; it restarts containerd only if its configuration has changed.
set -eu
host=$1 source=$2 handler=$3 net_raw=$4 stats=$5 file_access=$6 flags=$7
shift 7
config=$host/etc/containerd/config.toml
pending=$host/etc/containerd/.sandlot-restart

if [ ! -f "$config" ]; then
    echo "no $config: this node's runtime is not containerd, or is configured elsewhere" >&2
    exit 1
fi
case $(sed -n 's/^version *= *\([0-9]*\).*/\1/p' "$config") in
    2) plugin=io.containerd.grpc.v1.cri ;;
    3) plugin=io.containerd.cri.v1.runtime ;;
    *)
        echo "$config is neither of version 2 nor of version 3" >&2
        exit 1
        ;;
esac

mkdir -p "$host/usr/local/bin"
for name in runsc containerd-shim-runsc-v1; do
    target=$host/usr/local/bin/$name
    cmp -s "$source/$name" "$target" && continue
    # Renamed, because a running runsc is not writable and a partial file must never start.
    cp "$source/$name" "$target.new"
    chmod 755 "$target.new"
    mv -f "$target.new" "$target"
    echo "installed $name"
done

# gVisor does not detect the cgroup driver; with the wrong one its pods have no limits.
systemd=false
runc=$(sed -n "/runtimes\.[\"']\{0,1\}runc[\"']\{0,1\}\.options\]/,/^[[:space:]]*\[/p" "$config")
if echo "$runc" | grep -Eq '^[[:space:]]*SystemdCgroup[[:space:]]*=[[:space:]]*true'; then
    systemd=true
fi
settings=/etc/containerd/sandlot-$handler.toml
printf '[runsc_config]\nsystemd-cgroup = "%s"\nnet-raw = "%s"\n' "$systemd" "$net_raw" > "$host$settings.new"
# Otherwise gVisor asks the node again about each file of an image that it has: reading takes up to twice as long.
if [ "$file_access" = exclusive ]; then
    printf 'file-access-mounts = "exclusive"\n' >> "$host$settings.new"
fi
for flag in $flags; do
    printf '%s = "%s"\n' "${flag%%=*}" "${flag#*=}" >> "$host$settings.new"
done
mv -f "$host$settings.new" "$host$settings"
cp -p "$config" "$config.new"
# With these annotations gVisor keeps a pod's volume itself; without, a sandbox's files are 4 to 12 times slower, and the
# sidecar has to measure its disk.
annotations='pod_annotations = ["dev.gvisor.*"]'
if ! grep -Eq "runtimes\.[\"']?$handler[\"']?\]" "$config"; then
    {
        echo
        echo "[plugins.\"$plugin\".containerd.runtimes.$handler]"
        echo "  runtime_type = \"io.containerd.runsc.v1\""
        echo "  $annotations"
        echo "[plugins.\"$plugin\".containerd.runtimes.$handler.options]"
        echo "  TypeUrl = \"io.containerd.runsc.v1.options\""
        echo "  ConfigPath = \"$settings\""
    } >> "$config.new"
    echo "adding the runtime $handler"
fi
# Entries of an earlier version of this script lack them.
own="^[[:space:]]*\[plugins\..*runtimes\.[\"']\{0,1\}$handler[\"']\{0,1\}\]"
if grep -qF "$settings" "$config.new" && ! sed -n "/$own/,/^[[:space:]]*\[.*options/p" "$config.new" | grep -q pod_annotations; then
    sed "/$own/a\\
  $annotations" "$config.new" > "$config.newer"
    cat "$config.newer" > "$config.new"
    rm "$config.newer"
    echo "letting pods' gVisor annotations through"
fi
# containerd reads every container's CPU time, by default every second, and gVisor's shim starts a runsc each time: three
# per pod, half a core for 20 pods. An existing setting stays.
table="^[[:space:]]*\[plugins\.[\"']\{0,1\}io\.containerd\.cri\.v1\.runtime[\"']\{0,1\}\]"
if [ -n "$stats" ] && grep -qF "$settings" "$config.new"; then
    if ! grep -q "$table" "$config.new"; then
        printf '\n[plugins."io.containerd.cri.v1.runtime"]\n' >> "$config.new"
    fi
    if ! sed -n "/$table/,/^[[:space:]]*\[/p" "$config.new" | grep -q '^[[:space:]]*stats_collect_period'; then
        sed "/$table/a\\
  stats_collect_period = \"$stats\"" "$config.new" > "$config.newer"
        cat "$config.newer" > "$config.new"
        rm "$config.newer"
        echo "setting stats_collect_period to $stats"
    fi
fi
if cmp -s "$config" "$config.new"; then
    rm "$config.new"
else
    # Marks the restart as pending in case the node or the restart fails after the next line.
    : > "$pending"
    mv -f "$config.new" "$config"
fi
if [ -e "$pending" ]; then
    "$@"
    rm -f "$pending"
    echo "restarted containerd"
fi
