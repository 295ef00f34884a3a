//go:build integration

package env

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
)

// CPU returns the CPU time that all processes of the server have used since its start, as Docker counts it.
func (c *Container) CPU(t testing.TB) time.Duration {
	t.Helper()
	var stats container.StatsResponse
	c.do(t, "read the CPU time", func(ctx context.Context, cli client.APIClient, id string) error {
		r, err := cli.ContainerStats(ctx, id, client.ContainerStatsOptions{})
		if err != nil {
			return err
		}
		defer r.Body.Close()
		return json.NewDecoder(r.Body).Decode(&stats)
	})
	return time.Duration(stats.CPUStats.CPUUsage.TotalUsage)
}
