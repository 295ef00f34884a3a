// Command example is a small Kubernetes API server. It serves custom resource definitions and their resources from any supported database,
// in one process and without etcd.
//
//	go run ./example --store sqlite:things.db --kubeconfig things.kubeconfig
//	kubectl --kubeconfig things.kubeconfig apply -f definition.yaml
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/ashlar-dev/storage"
	_ "github.com/ashlar-dev/storage/etcd"
	"github.com/ashlar-dev/storage/etcdserver/kubernetes"
	_ "github.com/ashlar-dev/storage/inmem"
	_ "github.com/ashlar-dev/storage/postgres"
	_ "github.com/ashlar-dev/storage/sqlite"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:6443", "HTTPS address to listen on")
	url := flag.String("store", "mem://", "store of the objects: sqlite:file, postgres://…, etcd://… or mem://")
	kubeconfig := flag.String("kubeconfig", "example.kubeconfig", "file for the configuration of clients")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *url, *listen, *kubeconfig); err != nil {
		fmt.Fprintln(os.Stderr, "example:", err)
		os.Exit(1)
	}
}

// run serves until the context ends.
func run(ctx context.Context, url, listen, kubeconfig string) (err error) {
	backend, err := storage.Open(ctx, url)
	if err != nil {
		return err
	}
	defer func() {
		if closing := backend.Close(); err == nil {
			err = closing
		}
	}()
	store, err := kubernetes.New(backend, nil)
	if err != nil {
		return err
	}
	defer store.Close()
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	server, client, err := newServer(store, listener)
	if err != nil {
		_ = listener.Close()
		return err
	}
	if err := clientcmd.WriteToFile(clientConfig(client), kubeconfig); err != nil {
		_ = listener.Close()
		return err
	}
	return server.PrepareRun().RunWithContext(ctx)
}

// clientConfig returns the configuration of kubectl for a server.
func clientConfig(client *rest.Config) api.Config {
	config := api.NewConfig()
	config.Clusters["example"] = &api.Cluster{
		Server: client.Host, CertificateAuthorityData: client.CAData, TLSServerName: client.ServerName,
	}
	config.AuthInfos["example"] = &api.AuthInfo{Token: client.BearerToken}
	config.Contexts["example"] = &api.Context{Cluster: "example", AuthInfo: "example"}
	config.CurrentContext = "example"
	return *config
}
