// Command ashlar looks into a store and changes it: any of the databases that Ashlar has an adapter for.
//
//	ashlar apply -f manifests/
//	ashlar list '*'
//	ashlar watch apps/Deployment -o json
//	ashlar owned apps/Deployment storefront --recursive
//
// The store is named by --store or ASHLAR_STORE; without either it is a SQLite file in the user's data folder. See
// ashlar --help, and package internal/manifest for what apply reads.
//
// The exit code is 0 if all went well, 1 if something failed, 2 if the command line is wrong, 3 if a resource is not there,
// and 4 if somebody else's change was in the way.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/ashlar-dev/storage/conformance/faults"
)

func main() {
	if faults.ServeProcess() { // of ashlar conformance --faults
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal the next one has its usual effect: a command that cannot end cleanly can still be ended.
	context.AfterFunc(ctx, stop)
	a := &app{in: os.Stdin, out: os.Stdout, err: os.Stderr, getenv: os.Getenv}
	os.Exit(a.run(ctx, os.Args[1:]))
}
