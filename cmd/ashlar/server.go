package main

import (
	"github.com/spf13/cobra"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/client"
	"github.com/ashlar-dev/storage/resourcepb"
)

// throughServer marks the commands that also go through a server.
const throughServer = "ashlar.dev/through-server"

// alsoThrough marks a command as one that also goes through a server.
func alsoThrough(cmd *cobra.Command) *cobra.Command {
	cmd.Annotations = map[string]string{throughServer: "true"}
	return cmd
}

// serverFlags adds the flags that name a server and say how to reach it.
func (a *app) serverFlags(root *cobra.Command) {
	flags := root.PersistentFlags()
	flags.StringVar(&a.server.Address, "server", "", "host:port of a server of resources (ashlar serve), in the place of a store")
	flags.StringVar(&a.server.Token, "token", "", "token that the server knows you by (default $ASHLAR_TOKEN)")
	flags.StringVar(&a.server.CA, "ca", "", "file of the certificates that sign the server's (default: those of the system)")
	flags.StringVar(&a.server.Cert, "cert", "", "file of your certificate for the server")
	flags.StringVar(&a.server.Key, "key", "", "file of the private key of your certificate")
	flags.BoolVar(&a.server.Insecure, "insecure", false, "speak to a server on another machine without TLS")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case a.server.Address == "":
			return nil
		case cmd.Annotations[throughServer] == "":
			return usagef("%s does not go through a server: it needs the store itself, by --store", cmd.Name())
		case a.store != "":
			return usagef("--server and --store exclude each other")
		}
		return nil
	}
}

// dial returns the server as a backend.
func (a *app) dial() (*client.Backend, error) {
	o := a.server
	if o.Token == "" {
		o.Token = a.getenv("ASHLAR_TOKEN")
	}
	return client.Dial(o)
}

// ofServer reports whether a backend is a server, where deletions may be deferred and some things are the server's to decide.
func ofServer(b storage.Backend) bool {
	_, ok := b.(*client.Backend)
	return ok
}

// deferred reports whether a resource of a server is marked for deletion already.
func deferred(b storage.Backend, res *resourcepb.Resource) bool {
	return ofServer(b) && client.Deferred(res)
}
