// The probe of the conformance tests: prints what a process in a container sees, as lines of JSON.
//
// `probe self` prints the process: environment, identity, directory, mounts, devices. `probe tree` prints every file
// below / but those of /proc, /sys and /dev. It is static, because images differ in their libraries and shells.
package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

type file struct {
	Path   string            `json:"path"`
	Type   string            `json:"type"`
	Mode   string            `json:"mode"`
	Uid    uint32            `json:"uid"`
	Gid    uint32            `json:"gid"`
	Links  uint64            `json:"links,omitempty"`
	Size   int64             `json:"size,omitempty"`
	Hash   string            `json:"hash,omitempty"`
	Target string            `json:"target,omitempty"`
	Device string            `json:"device,omitempty"`
	Mtime  string            `json:"mtime,omitempty"`
	Xattrs map[string]string `json:"xattrs,omitempty"`
}

type process struct {
	Environment []string          `json:"environment"`
	Ids         []int             `json:"ids"`
	Groups      []int             `json:"groups"`
	Directory   string            `json:"directory"`
	Umask       string            `json:"umask"`
	Mounts      map[string]string `json:"mounts"`
	Devices     map[string]string `json:"devices"`
	Arguments   []string          `json:"arguments"`
}

func main() {
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	switch mode := append(os.Args, "self")[1]; mode {
	case "tree":
		walk(json.NewEncoder(out), "/")
	default:
		check(json.NewEncoder(out).Encode(self()))
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(3)
	}
}

// A name need not be UTF-8.
func quoted(text string) string {
	all := strconv.QuoteToASCII(text)
	return all[1 : len(all)-1]
}

func self() process {
	groups, err := os.Getgroups()
	check(err)
	sort.Ints(groups)
	directory, err := os.Getwd()
	check(err)
	environment := []string{}
	for _, variable := range os.Environ() {
		environment = append(environment, quoted(variable))
	}
	sort.Strings(environment)
	mask := syscall.Umask(0)
	return process{
		Environment: environment,
		Ids:         []int{os.Getuid(), os.Geteuid(), os.Getgid(), os.Getegid()},
		Groups:      groups,
		Directory:   quoted(directory),
		Umask:       fmt.Sprintf("%04o", mask),
		Mounts:      mounts(),
		Devices:     devices(),
		Arguments:   os.Args,
	}
}

// By the place, the type and the flags of each mount.
func mounts() map[string]string {
	found := map[string]string{}
	data, err := os.ReadFile("/proc/self/mountinfo")
	check(err)
	for _, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		fields := strings.Fields(line)
		kind := ""
		for number, field := range fields {
			if field == "-" {
				kind = fields[number+1]
			}
		}
		found[fields[4]] = kind + " " + fields[5]
	}
	return found
}

func devices() map[string]string {
	found := map[string]string{}
	entries, err := os.ReadDir("/dev")
	check(err)
	for _, entry := range entries {
		described := describe("/dev/" + entry.Name())
		found[entry.Name()] = strings.TrimSpace(fmt.Sprint(
			described.Type, " ", described.Mode, " ", described.Uid, " ", described.Gid, " ", described.Device, described.Target))
	}
	return found
}

func describe(path string) file {
	var status syscall.Stat_t
	err := syscall.Lstat(path, &status)
	if err == syscall.EPERM {
		// gVisor shows no device nodes of an image.
		return file{Path: quoted(path), Type: "refused"}
	}
	check(err)
	found := file{
		Path: quoted(path),
		Mode: fmt.Sprintf("%04o", status.Mode&0o7777),
		Uid:  status.Uid,
		Gid:  status.Gid,
	}
	switch status.Mode & syscall.S_IFMT {
	case syscall.S_IFREG:
		found.Type, found.Size = "file", status.Size
	case syscall.S_IFDIR:
		found.Type = "directory"
	case syscall.S_IFLNK:
		target, err := os.Readlink(path)
		check(err)
		found.Type, found.Target = "symlink", quoted(target)
	case syscall.S_IFIFO:
		found.Type = "fifo"
	case syscall.S_IFCHR:
		found.Type = "character device"
	case syscall.S_IFBLK:
		found.Type = "block device"
	default:
		found.Type = "other"
	}
	if found.Type == "character device" || found.Type == "block device" {
		found.Device = fmt.Sprintf("%d:%d", (status.Rdev>>8)&0xfff, (status.Rdev&0xff)|((status.Rdev>>12)&0xfff00))
	}
	if found.Type == "file" {
		found.Links = uint64(status.Nlink)
	}
	if found.Type != "directory" {
		found.Mtime = fmt.Sprintf("%d.%09d", status.Mtim.Sec, status.Mtim.Nsec)
	}
	return found
}

func walk(out *json.Encoder, path string) {
	found := describe(path)
	found.Xattrs = xattrs(path)
	if found.Type == "file" {
		data, err := os.Open(path)
		check(err)
		sum := sha256.New()
		_, err = io.Copy(sum, data)
		check(err)
		data.Close()
		found.Hash = hex.EncodeToString(sum.Sum(nil))
	}
	check(out.Encode(found))
	if found.Type != "directory" || path == "/proc" || path == "/sys" || path == "/dev" {
		return
	}
	entries, err := os.ReadDir(path)
	check(err)
	for _, entry := range entries {
		walk(out, filepath.Join(path, entry.Name()))
	}
}

// Of the file itself, also of a symlink: the standard library follows it.
func xattrs(path string) map[string]string {
	place, err := syscall.BytePtrFromString(path)
	check(err)
	names := make([]byte, 1<<16)
	size, _, code := syscall.Syscall(syscall.SYS_LLISTXATTR, uintptr(unsafe.Pointer(place)), uintptr(unsafe.Pointer(&names[0])), uintptr(len(names)))
	if code != 0 || size == 0 {
		return nil
	}
	found := map[string]string{}
	for _, name := range strings.Split(strings.TrimRight(string(names[:size]), "\x00"), "\x00") {
		key, err := syscall.BytePtrFromString(name)
		check(err)
		value := make([]byte, 1<<16)
		length, _, code := syscall.Syscall6(syscall.SYS_LGETXATTR, uintptr(unsafe.Pointer(place)), uintptr(unsafe.Pointer(key)), uintptr(unsafe.Pointer(&value[0])), uintptr(len(value)), 0, 0)
		if code == 0 {
			found[quoted(name)] = hex.EncodeToString(value[:length])
		}
	}
	return found
}
