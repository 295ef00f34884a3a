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

// A listed package is what go list says of it.
type listed struct {
	ImportPath                         string
	Deps                               []string // what it links, tests left out
	Imports, TestImports, XTestImports []string
}

func list(t *testing.T, pattern string) (all []listed) {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Deps,Imports,TestImports,XTestImports", pattern).Output()
	if err != nil {
		t.Fatal(err)
	}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// links returns the packages that each package of the module links, tests left out.
func links(t *testing.T) map[string][]string {
	t.Helper()
	links := map[string][]string{}
	for _, p := range list(t, "./...") {
		links[p.ImportPath] = p.Deps
	}
	return links
}

// drivers are what each adapter may link that nobody else may.
var drivers = map[string][]string{
	"inmem":    {},
	"sqlite":   {"github.com/ncruces/", "github.com/tetratelabs/"},
	"postgres": {"github.com/jackc/"},
	"etcd":     {"go.etcd.io/etcd/", "google.golang.org/grpc"},
	"dynamodb": {"github.com/aws/"},
	tutorial:   {"go.etcd.io/bbolt"},
}

// tutorial is the adapter of the tutorial, written as one outside of this repository would be.
const tutorial = "examples/bboltstore"

// adapterOf returns the adapter that a package of the module is part of, "" for none.
func adapterOf(pkg string) string {
	name, _ := strings.CutPrefix(pkg, module+"/")
	for adapter := range drivers {
		if name == adapter || strings.HasPrefix(name, adapter+"/") {
			return adapter
		}
	}
	return ""
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
		adapter := adapterOf(pkg)
		for _, dep := range deps {
			if other := adapterOf(dep); other != "" && adapter != "" && other != adapter {
				t.Errorf("the adapter %s imports the adapter %s", pkg, dep)
			}
			if adapter != tutorial && (adapterOf(dep) == tutorial || strings.HasPrefix(dep, drivers[tutorial][0])) {
				t.Errorf("%s links %s, which belongs to an example", pkg, dep)
			}
		}
		switch name := strings.TrimPrefix(strings.TrimPrefix(pkg, module), "/"); {
		case adapter != "":
			mayLink(pkg, drivers[adapter]...)
		case name == "cache", name == "service/registry", name == "typed", name == "typed/tables":
			mayLink(pkg)
		case name == "etcdserver":
			mayLink(pkg, drivers["etcd"]...) // the API that it serves is that of the driver
			for _, dep := range deps {
				if strings.HasPrefix(dep, "go.etcd.io/etcd/client/") {
					t.Errorf("%s links %s, but serves nobody else's store", pkg, dep)
				}
			}
		case onTop(pkg):
			mayLink(pkg, "google.golang.org/grpc") // the etcd client's too, but the service is one of gRPC
		case name == "", name == "conformance", name == "conformance/faults", name == "driver", name == "driver/backend", name == "driver/key", name == "history", name == "migrate", name == "resourcepb":
			mayLink(pkg)
		}
	}
}

// onTop reports whether a package stands on top of the contract. The store that it works on is the caller's.
func onTop(pkg string) bool {
	name, _ := strings.CutPrefix(pkg, module+"/")
	first, _, _ := strings.Cut(name, "/")
	return slices.Contains([]string{"cache", "typed", "lease", "service", "etcdserver"}, first)
}

// What stands on top of the contract knows no adapter, so that a server links the databases that its program imports; and nothing below
// knows what stands on top.
func TestTheServiceStandsOnTop(t *testing.T) {
	t.Parallel()
	seen := 0
	for pkg, deps := range links(t) {
		name, _ := strings.CutPrefix(pkg, module+"/")
		program := strings.HasPrefix(name, "cmd/") || strings.HasPrefix(name, "examples/")
		for _, dep := range deps {
			switch {
			case onTop(pkg) && adapterOf(dep) != "":
				t.Errorf("%s links the adapter %s", pkg, dep)
			case !onTop(pkg) && !program && onTop(dep):
				t.Errorf("%s links %s, which stands on top of it", pkg, dep)
			case onTop(pkg) && dep == module:
				seen++
			}
			if strings.HasPrefix(dep, "github.com/hashicorp/consul/") {
				t.Errorf("%s links %s: only the tests of compat may", pkg, dep)
			}
		}
	}
	if seen == 0 {
		t.Error("nothing on top of the contract links it: the search is broken")
	}
}

// The tutorial's adapter is made from public packages alone, its tests too: what it needs, everybody has.
func TestTheTutorialNeedsPublicPackagesOnly(t *testing.T) {
	t.Parallel()
	public := []string{"", "/resourcepb", "/driver", "/driver/backend", "/driver/key", "/conformance", "/conformance/faults", "/conformance/faults/proxy", "/" + tutorial}
	for _, p := range list(t, "./"+tutorial+"/...") {
		imports := slices.Concat(p.Imports, p.TestImports, p.XTestImports)
		if !slices.Contains(imports, module+"/driver") {
			t.Errorf("%s does not import the driver tier: the search is broken", p.ImportPath)
		}
		for _, imported := range imports {
			if path, ours := strings.CutPrefix(imported, module); ours && !slices.Contains(public, path) {
				t.Errorf("%s imports %s, which is not among the packages that the tutorial speaks of", p.ImportPath, imported)
			}
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
