package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	resources "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

const (
	driverName = "gpus.sandlot.test"
	cdiKind    = driverName + "/claim"
	cdi        = "/var/run/cdi"
	kubeconfig = "/etc/kubernetes/kubelet.conf"
)

type allocator struct {
	node string
	fail context.CancelCauseFunc
}

// serveDriver publishes the devices of the node in a ResourceSlice, and prepares claims, until the context ends.
func serveDriver(end context.Context, node string, names []string) error {
	running, fail := context.WithCancelCause(end)
	defer fail(nil)
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	data := filepath.Join(kubeletplugin.KubeletPluginsDir, driverName)
	for _, directory := range []string{data, cdi} {
		if err := os.MkdirAll(directory, 0o755); err != nil {
			return err
		}
	}
	helper, err := kubeletplugin.Start(
		running, &allocator{node, fail}, kubeletplugin.DriverName(driverName), kubeletplugin.NodeName(node),
		kubeletplugin.KubeClient(client),
	)
	if err != nil {
		return err
	}
	defer helper.Stop()
	var devices []resources.Device
	for _, name := range names {
		devices = append(devices, resources.Device{Name: name})
	}
	slices := []resourceslice.Slice{{Devices: devices}}
	pools := map[string]resourceslice.Pool{node: {Slices: slices}}
	if err := helper.PublishResources(running, resourceslice.DriverResources{Pools: pools}); err != nil {
		return err
	}
	<-running.Done()
	if end.Err() != nil {
		return nil
	}
	return context.Cause(running)
}

func (a *allocator) HandleError(_ context.Context, err error, message string) {
	fmt.Fprintln(os.Stderr, message, err)
	if !errors.Is(err, kubeletplugin.ErrRecoverable) {
		a.fail(err)
	}
}

func (a *allocator) PrepareResourceClaims(
	_ context.Context, claims []*resources.ResourceClaim,
) (map[types.UID]kubeletplugin.PrepareResult, error) {
	prepared := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		prepared[claim.UID] = prepare(claim)
	}
	return prepared, nil
}

// prepare writes one CDI device for all devices of the claim: the variable lists them.
func prepare(claim *resources.ResourceClaim) kubeletplugin.PrepareResult {
	var result kubeletplugin.PrepareResult
	var names []string
	for _, given := range claim.Status.Allocation.Devices.Results {
		if given.Driver != driverName {
			continue
		}
		device := kubeletplugin.Device{
			Requests: []string{given.Request}, PoolName: given.Pool, DeviceName: given.Device,
		}
		if names == nil {
			device.CDIDeviceIDs = []string{fmt.Sprintf("%s=%s", cdiKind, claim.UID)}
		}
		names = append(names, given.Device)
		result.Devices = append(result.Devices, device)
	}
	result.Err = writeCDI(claim.UID, names)
	return result
}

func writeCDI(uid types.UID, names []string) error {
	var nodes []map[string]string
	for _, name := range names {
		nodes = append(nodes, map[string]string{"path": "/dev/" + name, "permissions": "rw"})
	}
	edits := map[string]any{
		"deviceNodes": nodes,
		"env":         []string{visible + "=" + strings.Join(names, ",")},
		"mounts": []map[string]any{
			{"hostPath": driver, "containerPath": mounted, "options": []string{"ro", "bind"}},
		},
	}
	text, err := json.Marshal(map[string]any{
		"cdiVersion": "0.6.0",
		"kind":       cdiKind,
		"devices":    []map[string]any{{"name": string(uid), "containerEdits": edits}},
	})
	if err != nil {
		return err
	}
	// containerd reads the directory at any time.
	part := cdiFile(uid) + ".part"
	if err := os.WriteFile(part, text, 0o644); err != nil {
		return err
	}
	return os.Rename(part, cdiFile(uid))
}

func (a *allocator) UnprepareResourceClaims(
	_ context.Context, claims []kubeletplugin.NamespacedObject,
) (map[types.UID]error, error) {
	undone := map[types.UID]error{}
	for _, claim := range claims {
		err := os.Remove(cdiFile(claim.UID))
		if errors.Is(err, os.ErrNotExist) {
			err = nil
		}
		undone[claim.UID] = err
	}
	return undone, nil
}

func cdiFile(uid types.UID) string {
	return filepath.Join(cdi, fmt.Sprintf("sandlot-gpus-%s.json", uid))
}
