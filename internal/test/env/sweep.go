//go:build integration

package env

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
)

// Every container, network and volume of this package has a label with its owner process. The next binary recognises and removes
// the remains of a killed one.
const ownerLabel = "dev.ashlar.testenv.owner"

var (
	owner     = sync.OnceValue(func() string { return describe(os.Getpid()) })
	sweepOnce sync.Once
)

func labels() map[string]string { return map[string]string{ownerLabel: owner()} }

// describe identifies a process, so that it is not mistaken for a later one with the same id: host, boot, id, start time.
func describe(pid int) string {
	host, _ := os.Hostname()
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return fmt.Sprintf("%s/%s/%d/%s", host, strings.TrimSpace(string(boot)), pid, startTime(pid))
}

// startTime returns the 22nd field of the process's stat line, counted after the name, which may contain spaces.
func startTime(pid int) string {
	stat, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	_, rest, _ := strings.Cut(string(stat), ") ")
	if f := strings.Fields(rest); len(f) > 19 {
		return f[19]
	}
	return "-"
}

// isOrphan reports whether the owner in a label was a process of this machine and has ended.
func isOrphan(label string) bool {
	parts := strings.Split(label, "/")
	host, _ := os.Hostname()
	if len(parts) != 4 || parts[0] != host {
		return false // the owner may be on another machine
	}
	pid, err := strconv.Atoi(parts[2])
	if err != nil || pid <= 0 {
		return false
	}
	if syscall.Kill(pid, 0) == syscall.ESRCH {
		return true
	}
	return describe(pid) != label
}

// sweep removes, once per process, the remains of dead test binaries. It ignores failures.
func sweep() {
	sweepOnce.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = docker(func(p *testcontainers.DockerProvider) error {
			cli, mine := p.Client(), client.Filters{}.Add("label", ownerLabel)
			containers, err := cli.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: mine})
			if err != nil {
				return err
			}
			for _, c := range containers.Items {
				if isOrphan(c.Labels[ownerLabel]) {
					_ = removeContainer(ctx, cli, c.ID)
				}
			}
			networks, err := cli.NetworkList(ctx, client.NetworkListOptions{Filters: mine})
			if err != nil {
				return err
			}
			for _, n := range networks.Items {
				if isOrphan(n.Labels[ownerLabel]) {
					_, _ = cli.NetworkRemove(ctx, n.ID, client.NetworkRemoveOptions{})
				}
			}
			volumes, err := cli.VolumeList(ctx, client.VolumeListOptions{Filters: mine})
			if err != nil {
				return err
			}
			for _, v := range volumes.Items {
				if isOrphan(v.Labels[ownerLabel]) {
					_, _ = cli.VolumeRemove(ctx, v.Name, client.VolumeRemoveOptions{Force: true})
				}
			}
			return nil
		})
	})
}
