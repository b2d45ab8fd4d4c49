package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

const (
	driver  = "/run/sandlot-gpus/driver"
	mounted = "/usr/local/nvidia"
	visible = "NVIDIA_VISIBLE_DEVICES"
)

// makeDevices makes a device file below /dev for each NAME=MAJOR:MINOR, and the driver's directory; returns the names.
func makeDevices(wanted []string) ([]string, error) {
	var names []string
	if err := makeDriver(); err != nil {
		return nil, err
	}
	for _, each := range wanted {
		name, number, _ := strings.Cut(each, "=")
		if err := makeDevice("/dev/"+name, number); err != nil {
			return names, fmt.Errorf("/dev/%s: %w", name, err)
		}
		names = append(names, name)
	}
	return names, nil
}

func removeDevices(names []string) {
	for _, name := range names {
		os.Remove("/dev/" + name)
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
