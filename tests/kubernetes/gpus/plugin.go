package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const endpoint = "sandlot-gpus.sock"

type plugin struct {
	api.UnimplementedDevicePluginServer
	devices []*api.Device
	end     context.Context
}

// servePlugin offers the devices as an extended resource, until the context ends.
func servePlugin(end context.Context, resource string, names []string) error {
	offered := &plugin{end: end}
	for _, name := range names {
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
			Envs:   map[string]string{visible: strings.Join(container.DevicesIds, ",")},
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
