// A snapshotter for containerd whose layers are read from the registry as they are used, and the tool that makes
// such layers: `lazy serve ROOT SOCKET NAME=HOST...`, `lazy convert LAYER`.
package main

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	snapshotsapi "github.com/containerd/containerd/api/services/snapshots/v1"
	"github.com/containerd/containerd/v2/contrib/snapshotservice"
	"github.com/containerd/stargz-snapshotter/estargz"
	"github.com/containerd/stargz-snapshotter/service"
	"github.com/containerd/stargz-snapshotter/service/resolver"
	"google.golang.org/grpc"
)

func main() {
	var err error
	switch os.Args[1] {
	case "serve":
		err = serve(os.Args[2], os.Args[3], os.Args[4:])
	case "convert":
		err = convert(os.Args[2])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "lazy:", err)
		os.Exit(1)
	}
}

func serve(root, socket string, registries []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	hosts := map[string]resolver.HostConfig{}
	for _, each := range registries {
		name, host, _ := strings.Cut(each, "=")
		hosts[name] = resolver.HostConfig{Mirrors: []resolver.MirrorConfig{{Host: host, Insecure: true}}}
	}
	config := &service.Config{}
	config.NoBackgroundFetch = true
	config.NoPrefetch = true
	// A layer whose registry is gone must not keep those of others from being mounted again.
	config.AllowInvalidMountsOnRestart = true
	snapshotter, err := service.NewStargzSnapshotterService(ctx, root, config,
		service.WithCustomRegistryHosts(resolver.RegistryHostsFromConfig(resolver.Config{Host: hosts})))
	if err != nil {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	snapshotsapi.RegisterSnapshotsServer(server, snapshotservice.FromSnapshotter(snapshotter))
	go func() {
		<-ctx.Done()
		server.GracefulStop()
	}()
	if err := server.Serve(listener); err != nil {
		return err
	}
	return snapshotter.Close()
}

// Standard output gets the layer, standard error the digests of its table of contents and of the uncompressed layer.
func convert(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		return err
	}
	// Files of tests do not compress.
	blob, err := estargz.Build(io.NewSectionReader(file, 0, info.Size()), estargz.WithCompressionLevel(gzip.BestSpeed))
	if err != nil {
		return err
	}
	defer blob.Close()
	if _, err := io.Copy(os.Stdout, blob); err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, blob.TOCDigest(), blob.DiffID())
	return nil
}
