package main

import (
	"context"
	"os"
	"time"
)

// The tour of the example, on memory.
func Example_tour() {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	if err := run(ctx, os.Stdout); err != nil {
		panic(err)
	}
	// Output:
	// a machine writes a service: PermissionDenied
	// the platform omits the port: data.port is 0, expected 1 to 65535
	// stored with the protocol tcp
	// the service owns 2 endpoints
	// the service was deleted, and its endpoints after it
}
