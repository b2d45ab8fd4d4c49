#!/bin/sh
# Puts gVisor on a node and tells its containerd: install-runsc.sh HOST_ROOT SOURCE HANDLER NET_RAW STATS RESTART_COMMAND...
# May run any number of times; containerd is restarted only when its configuration has changed.
set -eu
host=$1 source=$2 handler=$3 net_raw=$4 stats=$5
shift 5
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
    # Renamed into place: a running runsc cannot be written to, and half a file must never be started.
    cp "$source/$name" "$target.new"
    chmod 755 "$target.new"
    mv -f "$target.new" "$target"
    echo "installed $name"
done

# gVisor does not find out by itself who manages the control groups; with the wrong one its pods have no limits.
systemd=false
runc=$(sed -n "/runtimes\.[\"']\{0,1\}runc[\"']\{0,1\}\.options\]/,/^[[:space:]]*\[/p" "$config")
if echo "$runc" | grep -Eq '^[[:space:]]*SystemdCgroup[[:space:]]*=[[:space:]]*true'; then
    systemd=true
fi
settings=/etc/containerd/sandlot-$handler.toml
printf '[runsc_config]\nsystemd-cgroup = "%s"\nnet-raw = "%s"\n' "$systemd" "$net_raw" > "$host$settings.new"
mv -f "$host$settings.new" "$host$settings"
cp -p "$config" "$config.new"
# By them a pod tells gVisor to keep its volume itself; without, a sandbox's files are 4 to 12 times slower, and its disk
# is held by looks.
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
# One that an earlier version of this script has added lacks them.
own="^[[:space:]]*\[plugins\..*runtimes\.[\"']\{0,1\}$handler[\"']\{0,1\}\]"
if grep -qF "$settings" "$config.new" && ! sed -n "/$own/,/^[[:space:]]*\[.*options/p" "$config.new" | grep -q pod_annotations; then
    sed "/$own/a\\
  $annotations" "$config.new" > "$config.newer"
    cat "$config.newer" > "$config.new"
    rm "$config.newer"
    echo "letting pods' gVisor annotations through"
fi
# containerd looks at every container's processor time, each second if nobody says otherwise. For each look gVisor's shim
# starts a runsc: three a pod, 20 pods took half a core. A runtime that somebody else has set up is left as it is.
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
    # A node that dies, or a restart that fails, after the next line must not be taken for done.
    : > "$pending"
    mv -f "$config.new" "$config"
fi
if [ -e "$pending" ]; then
    "$@"
    rm -f "$pending"
    echo "restarted containerd"
fi
