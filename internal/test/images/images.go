// Package images names the container images that the integration tests run, with their versions pinned in one place,
// versions.env. `make images` provides them: pulled, or, where no registry can be reached, built under the same names
// from Debian packages, Go modules and Maven artifacts (see tools/images.sh).
package images

import (
	_ "embed"
	"os"
	"strings"
)

//go:embed versions.env
var pinnedVersions string

// Postgres is the image of the Postgres server.
func Postgres() string { return "postgres:" + version("ASHLAR_POSTGRES_VERSION") }

// Etcd is the image of the etcd server.
func Etcd() string { return "quay.io/coreos/etcd:" + version("ASHLAR_ETCD_VERSION") }

// DynamoDB is the image of AWS's emulator, DynamoDB Local.
func DynamoDB() string { return "amazon/dynamodb-local:" + version("ASHLAR_DYNAMODB_VERSION") }

// PgBouncer is the image of the connection pooler.
func PgBouncer() string { return "edoburu/pgbouncer:" + version("ASHLAR_PGBOUNCER_VERSION") }

// version is the environment's value of the variable name, else the pinned one.
func version(name string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	for line := range strings.Lines(pinnedVersions) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), "="); ok && k == name {
			return v
		}
	}
	panic("images: versions.env has no " + name) // a build without it is broken, and the test of this package says so
}
