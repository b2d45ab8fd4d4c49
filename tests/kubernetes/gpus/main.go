// GPUs that are harmless devices, given to containers by a device plugin (`gpus plugin RESOURCE DEVICE=MAJOR:MINOR...`) or
// by a driver for dynamic resource allocation (`gpus driver NODE DEVICE=MAJOR:MINOR...`).
//
// Both make a file below /dev for each device, and offer it until they end. A container that gets some has their files,
// the driver's directory, and the variable that NVIDIA's plugin sets.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if err := serve(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, "gpus:", err)
		os.Exit(1)
	}
}

func serve(kind, target string, devices []string) error {
	end, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	names, err := makeDevices(devices)
	defer removeDevices(names)
	if err != nil {
		return err
	}
	if kind == "driver" {
		return serveDriver(end, target, names)
	}
	return servePlugin(end, target, names)
}
