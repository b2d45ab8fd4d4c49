// A device plugin for the kubelet whose GPUs are harmless devices: `gpus RESOURCE DEVICE=MAJOR:MINOR...`.
//
// It makes each device file below /dev, and offers it until it ends. A container that gets some has their files, the
// driver's directory, and the variables that NVIDIA's plugin sets.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	endpoint = "sandlot-gpus.sock"
	driver   = "/run/sandlot-gpus/driver"
	mounted  = "/usr/local/nvidia"
)

func main() {
	if err := serve(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "gpus:", err)
		os.Exit(1)
	}
}

type plugin struct {
	api.UnimplementedDevicePluginServer
	devices []*api.Device
	end     context.Context
}

func serve(resource string, devices []string) error {
	end, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := makeDriver(); err != nil {
		return err
	}
	offered := &plugin{end: end}
	for _, each := range devices {
		name, number, _ := strings.Cut(each, "=")
		path := "/dev/" + name
		defer os.Remove(path)
		if err := makeDevice(path, number); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		offered.devices = append(offered.devices, &api.Device{ID: name, Health: api.Healthy})
	}
	socket := filepath.Join(api.DevicePluginPath, endpoint)
	if err := os.RemoveAll(socket); err != nil {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, offered)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	defer server.Stop()
	if err := register(end, resource); err != nil {
		return err
	}
	select {
	case <-end.Done():
		return nil
	case err := <-failed:
		return err
	}
}

func makeDevice(path, number string) error {
	var major, minor uint32
	if _, err := fmt.Sscanf(number, "%d:%d", &major, &minor); err != nil {
		return err
	}
	os.Remove(path)
	if err := syscall.Mknod(path, syscall.S_IFCHR|0o666, int(major<<8|minor)); err != nil {
		return err
	}
	return os.Chmod(path, 0o666)
}

func makeDriver() error {
	if err := os.MkdirAll(filepath.Join(driver, "bin"), 0o755); err != nil {
		return err
	}
	text := "#!/bin/sh\necho \"smi: $NVIDIA_VISIBLE_DEVICES\"\n"
	return os.WriteFile(filepath.Join(driver, "bin", "nvidia-smi"), []byte(text), 0o755)
}

func register(ctx context.Context, resource string) error {
	connection, err := grpc.NewClient("unix://"+api.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	request := &api.RegisterRequest{Version: api.Version, Endpoint: endpoint, ResourceName: resource}
	_, err = api.NewRegistrationClient(connection).Register(ctx, request)
	return err
}

func (p *plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

func (p *plugin) ListAndWatch(_ *api.Empty, stream api.DevicePlugin_ListAndWatchServer) error {
	if err := stream.Send(&api.ListAndWatchResponse{Devices: p.devices}); err != nil {
		return err
	}
	select {
	case <-p.end.Done():
	case <-stream.Context().Done():
	}
	return nil
}

func (p *plugin) Allocate(_ context.Context, request *api.AllocateRequest) (*api.AllocateResponse, error) {
	response := &api.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		given := &api.ContainerAllocateResponse{
			Envs:   map[string]string{"NVIDIA_VISIBLE_DEVICES": strings.Join(container.DevicesIds, ",")},
			Mounts: []*api.Mount{{HostPath: driver, ContainerPath: mounted, ReadOnly: true}},
		}
		for _, name := range container.DevicesIds {
			path := "/dev/" + name
			given.Devices = append(given.Devices, &api.DeviceSpec{HostPath: path, ContainerPath: path, Permissions: "rw"})
		}
		response.ContainerResponses = append(response.ContainerResponses, given)
	}
	return response, nil
}
