package storage_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/ashlar-dev/storage"

// links returns the packages that each package of the module links, tests left out.
func links(t *testing.T) map[string][]string {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Deps", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	links := map[string][]string{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath string
			Deps       []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return links
		} else if err != nil {
			t.Fatal(err)
		}
		links[p.ImportPath] = p.Deps
	}
}

// drivers are what each adapter may link that nobody else may.
var drivers = map[string][]string{
	"inmem":    {},
	"sqlite":   {"github.com/ncruces/", "github.com/tetratelabs/"},
	"postgres": {"github.com/jackc/"},
	"etcd":     {"go.etcd.io/", "google.golang.org/grpc"},
	"dynamodb": {"github.com/aws/"},
}

// A program that imports one adapter must not compile the drivers of the others, and the contract itself links none.
func TestDriversStayWithTheirAdapters(t *testing.T) {
	t.Parallel()
	links := links(t)
	mayLink := func(pkg string, prefixes ...string) {
		for _, dep := range links[pkg] {
			for owner, own := range drivers {
				for _, prefix := range own {
					if strings.HasPrefix(dep, prefix) && !slices.Contains(prefixes, prefix) {
						t.Errorf("%s links %s, the driver of %s", pkg, dep, owner)
					}
				}
			}
		}
	}
	for pkg, deps := range links {
		name := strings.TrimPrefix(strings.TrimPrefix(pkg, module), "/")
		top, _, _ := strings.Cut(name, "/")
		switch {
		case drivers[top] != nil:
			mayLink(pkg, drivers[top]...)
			for _, dep := range deps {
				other, _, _ := strings.Cut(strings.TrimPrefix(dep, module+"/"), "/")
				if drivers[other] != nil && other != top && strings.HasPrefix(dep, module) {
					t.Errorf("the adapter %s imports the adapter %s", pkg, dep)
				}
			}
		case name == "", name == "conformance", name == "conformance/faults", name == "driver", name == "driver/changes", name == "driver/key", name == "migrate", name == "resourcepb":
			mayLink(pkg)
		}
	}
}

// The contract imports the standard library and protobuf, nothing else.
func TestTheContractLinksProtobufOnly(t *testing.T) {
	t.Parallel()
	for _, dep := range links(t)[module] {
		domain, _, _ := strings.Cut(dep, "/")
		if strings.Contains(domain, ".") && !strings.HasPrefix(dep, "google.golang.org/protobuf/") && dep != module+"/resourcepb" {
			t.Errorf("the contract links %s", dep)
		}
	}
}
