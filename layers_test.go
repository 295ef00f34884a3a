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

// goPackage is the output of go list for a package.
type goPackage struct {
	ImportPath                         string
	Deps                               []string // linked packages, without those of tests
	Imports, TestImports, XTestImports []string
}

func goList(t *testing.T, pattern string) (all []goPackage) {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Deps,Imports,TestImports,XTestImports", pattern).Output()
	if err != nil {
		t.Fatal(err)
	}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// links returns the packages that each package of the module links, except packages used only by tests.
func links(t *testing.T) map[string][]string {
	t.Helper()
	links := map[string][]string{}
	for _, p := range goList(t, "./...") {
		links[p.ImportPath] = p.Deps
	}
	return links
}

// drivers lists the prefixes of packages that only this adapter may link.
var drivers = map[string][]string{
	"inmem":    {},
	"sqlite":   {"github.com/ncruces/", "github.com/tetratelabs/"},
	"postgres": {"github.com/jackc/"},
	"etcd":     {"go.etcd.io/etcd/", "google.golang.org/grpc"},
	"dynamodb": {"github.com/aws/"},
	tutorial:   {"go.etcd.io/bbolt"},
}

// tutorial is the adapter of the tutorial, written like one outside this repository.
const tutorial = "examples/bboltstore"

// relayPackage is the part of an adapter that a program imports separately. It is above the contract: it elects relays with package lease,
// and links gRPC.
const relayPackage = "dynamodb/relay"

// adapterOf returns the adapter that contains a package of the module, or "".
func adapterOf(pkg string) string {
	name, _ := strings.CutPrefix(pkg, module+"/")
	for adapter := range drivers {
		if name == adapter || strings.HasPrefix(name, adapter+"/") {
			return adapter
		}
	}
	return ""
}

// A program that imports one adapter does not compile the drivers of the others, and the contract itself links none.
func TestAdaptersLinkOnlyTheirDrivers(t *testing.T) {
	t.Parallel()
	links := links(t)
	forbidDriversExcept := func(pkg string, allowed ...string) {
		for _, dep := range links[pkg] {
			for owner, prefixes := range drivers {
				for _, prefix := range prefixes {
					if strings.HasPrefix(dep, prefix) && !slices.Contains(allowed, prefix) {
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
		case name == relayPackage:
			forbidDriversExcept(pkg, append([]string{"google.golang.org/grpc"}, drivers[adapter]...)...)
		case adapter != "":
			forbidDriversExcept(pkg, drivers[adapter]...)
		case name == "cache", name == "service/registry", name == "typed", name == "typed/tables":
			forbidDriversExcept(pkg)
		case name == "etcdserver":
			forbidDriversExcept(pkg, drivers["etcd"]...) // it serves etcd's API and uses its messages
			for _, dep := range deps {
				if strings.HasPrefix(dep, "go.etcd.io/etcd/client/") {
					t.Errorf("%s links %s, although it needs no client of etcd", pkg, dep)
				}
			}
		case aboveContract(pkg):
			forbidDriversExcept(pkg, "google.golang.org/grpc") // the list of drivers has gRPC for etcd's client, but services serve it
		case name == "", name == "conformance", name == "conformance/faults", name == "driver", name == "driver/backend", name == "driver/key", name == "history", name == "migrate", name == "resourcepb":
			forbidDriversExcept(pkg)
		}
	}
}

// aboveContract reports whether a package is above the contract and works on the caller's store.
func aboveContract(pkg string) bool {
	name, _ := strings.CutPrefix(pkg, module+"/")
	first, _, _ := strings.Cut(name, "/")
	return name == relayPackage || slices.Contains([]string{"cache", "typed", "lease", "service", "controller", "etcdserver"}, first)
}

// Packages above the contract import no adapter, so a server links only the databases that its program imports. Packages below
// import none above.
func TestLayersAboveTheContract(t *testing.T) {
	t.Parallel()
	seen := 0
	for pkg, deps := range links(t) {
		name, _ := strings.CutPrefix(pkg, module+"/")
		program := strings.HasPrefix(name, "cmd/") || strings.HasPrefix(name, "examples/")
		for _, dep := range deps {
			switch {
			case name == "controller/controllertest" && adapterOf(dep) == "inmem": // its environment has a store
			case aboveContract(pkg) && adapterOf(dep) != "" && name != relayPackage:
				t.Errorf("%s links the adapter %s", pkg, dep)
			case !aboveContract(pkg) && !program && aboveContract(dep):
				t.Errorf("%s links %s, which is above it", pkg, dep)
			case aboveContract(pkg) && dep == module:
				seen++
			}
			if strings.HasPrefix(dep, "github.com/hashicorp/consul/") {
				t.Errorf("%s links %s, which is reserved to the tests of compat", pkg, dep)
			}
		}
	}
	if seen == 0 {
		t.Error("no package above the contract links it: the search is broken")
	}
}

// The tutorial's adapter and its tests use only public packages, like any adapter outside this repository.
func TestTutorialImportsPublicPackages(t *testing.T) {
	t.Parallel()
	public := []string{"", "/resourcepb", "/driver", "/driver/backend", "/driver/key", "/conformance", "/conformance/faults", "/conformance/faults/proxy", "/" + tutorial}
	for _, p := range goList(t, "./"+tutorial+"/...") {
		imports := slices.Concat(p.Imports, p.TestImports, p.XTestImports)
		if !slices.Contains(imports, module+"/driver") {
			t.Errorf("%s does not import package driver: the search is broken", p.ImportPath)
		}
		for _, imported := range imports {
			if path, ours := strings.CutPrefix(imported, module); ours && !slices.Contains(public, path) {
				t.Errorf("%s imports %s, which is not one of the public packages that the tutorial uses", p.ImportPath, imported)
			}
		}
	}
}

// Libraries use the API of OpenTelemetry; only programs link an SDK and exporters.
func TestLibrariesLinkNoTelemetrySDK(t *testing.T) {
	t.Parallel()
	api := 0
	for pkg, deps := range links(t) {
		name, _ := strings.CutPrefix(pkg, module+"/")
		for _, dep := range deps {
			rest, isOTel := strings.CutPrefix(dep, "go.opentelemetry.io/otel/")
			switch {
			case isOTel && adapterOf(pkg) != "" && rest == "metric":
				api++
			case strings.HasPrefix(name, "cmd/"), strings.HasPrefix(name, "internal/test/"):
			case isOTel && (strings.HasPrefix(rest, "sdk") || strings.HasPrefix(rest, "exporters")):
				t.Errorf("%s links %s", pkg, dep)
			}
		}
	}
	if api == 0 {
		t.Error("no adapter links the API of OpenTelemetry: the search is broken")
	}
}

// The contract links only the standard library and protobuf.
func TestContractLinksOnlyProtobuf(t *testing.T) {
	t.Parallel()
	for _, dep := range links(t)[module] {
		domain, _, _ := strings.Cut(dep, "/")
		if strings.Contains(domain, ".") && !strings.HasPrefix(dep, "google.golang.org/protobuf/") && dep != module+"/resourcepb" {
			t.Errorf("the contract links %s", dep)
		}
	}
}
