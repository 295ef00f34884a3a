//go:build integration

package env

import (
	"context"
	"testing"

	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
)

// engine runs one request for something other than a container.
func engine(t testing.TB, what string, f func(ctx context.Context, cli client.APIClient) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := docker(func(p *testcontainers.DockerProvider) error { return f(ctx, p.Client()) }); err != nil {
		t.Fatalf("env: %s: %v", what, err)
	}
}

// peerNetwork creates a network where the servers of one test reach each other by name. It has no route to the outside, so Docker
// publishes ports on the default network, and disconnecting a member from its peers does not affect its clients.
func peerNetwork(t testing.TB) string {
	t.Helper()
	sweep()
	var id string
	engine(t, "creating a network", func(ctx context.Context, cli client.APIClient) error {
		r, err := cli.NetworkCreate(ctx, "ashlar-"+unique(), client.NetworkCreateOptions{
			Driver: "bridge", Internal: true, Labels: labels(),
		})
		id = r.ID
		return err
	})
	t.Cleanup(func() {
		engine(t, "removing a network", func(ctx context.Context, cli client.APIClient) error {
			_, err := cli.NetworkRemove(ctx, id, client.NetworkRemoveOptions{})
			return err
		})
	})
	return id
}

// volume creates a volume for several servers of one test.
func volume(t testing.TB) string {
	t.Helper()
	name := "ashlar-" + unique()
	engine(t, "creating a volume", func(ctx context.Context, cli client.APIClient) error {
		_, err := cli.VolumeCreate(ctx, client.VolumeCreateOptions{Name: name, Labels: labels()})
		return err
	})
	t.Cleanup(func() {
		engine(t, "removing a volume", func(ctx context.Context, cli client.APIClient) error {
			_, err := cli.VolumeRemove(ctx, name, client.VolumeRemoveOptions{Force: true})
			return err
		})
	})
	return name
}

func connect(ctx context.Context, cli client.APIClient, networkID, container string, aliases []string) error {
	_, err := cli.NetworkConnect(ctx, networkID, client.NetworkConnectOptions{
		Container: container, EndpointConfig: &network.EndpointSettings{Aliases: aliases},
	})
	return err
}
